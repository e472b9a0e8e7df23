"""A sweep's overrides into points: Hydra's grammar, and nothing composed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from slurmkit.config.written import choices_as_written
from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override

__all__ = ["fixed_overrides", "split_overrides", "without_fixed"]


def split_overrides(
    overrides: Sequence[str], *, loader: ConfigLoader | None = None
) -> tuple[list[str], list[list[str]]]:
    """Part a multirun's overrides into those that hold for every point and the points.

    Args:
        overrides: as typed, such as ``["experiment=digits", "optim.lr=1e-3,3e-3"]``.
        loader: finds the configs that a ``glob(*)`` means.

    Returns:
        The fixed overrides, and one list of overrides a point, the last key varying fastest (as Hydra's
        own sweeper orders them). Values stay as they were typed.

    Raises:
        ConfigError: for what Hydra cannot read, for intervals (no grid has them), for sweeps over Hydra's own
            config, and for no point at all.
    """
    parsed = _parse(overrides, loader)
    fixed = [override.input_line or "" for override in parsed if not override.is_sweep_override()]
    axes = [_values(override) for override in parsed if override.is_sweep_override()]
    points = [list(point) for point in itertools.product(*axes)]
    if not points:
        raise ConfigError(
            "the sweep has no point: one of its ranges is empty",
            "give each key a value at least, such as range(0,3)",
        )
    return fixed, points


def fixed_overrides(overrides: Sequence[str]) -> list[str]:
    """The overrides of a multirun that hold for every point."""
    return [
        override.input_line or "" for override in _parse(overrides, None) if not override.is_sweep_override()
    ]


def _parse(overrides: Sequence[str], loader: ConfigLoader | None) -> list[Override]:
    try:
        return OverridesParser.create(config_loader=loader).parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(
            str(error).splitlines()[0], "quote what the shell or Hydra would read: 'key=\"a,b\"'"
        ) from error


def _values(override: Override) -> list[str]:
    """One override for each value of a sweep.

    Raises:
        ConfigError: as ``split_overrides``.
    """
    key = override.get_key_element()
    if override.is_hydra_override():
        raise ConfigError(
            f"{key}: Hydra's own config cannot be swept, it is the same for all points",
            f"give {key} one value, and submit once for each other value",
        )
    if not override.is_discrete_sweep():
        raise ConfigError(
            f"{key}: an interval has no grid of values", f"name the values: {key}=1,2,3 or {key}=range(0,10)"
        )
    try:
        values = choices_as_written(override.input_line or "") or override.sweep_string_iterator()
        return [f"{key}={value}" for value in values]
    except HydraException as error:
        raise ConfigError(f"{key}: {str(error).splitlines()[0]}", f"name the values: {key}=a,b") from error


def without_fixed(points: Sequence[Sequence[str]], overrides: Sequence[str]) -> list[list[str]]:
    """The points without the words that all of them share, which Hydra's own sweeper repeats in each.

    Args:
        points: one list of overrides a point, in the sweeper's spelling.
        overrides: of the multirun, as typed.
    """
    swept = {item.get_key_element() for item in _parse(overrides, None) if item.is_sweep_override()}
    fixed = {word.partition("=")[0] for word in fixed_overrides(overrides)} - swept
    return [[word for word in point if word.partition("=")[0] not in fixed] for point in points]
