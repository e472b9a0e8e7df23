"""A sweep's overrides into points: Hydra's grammar, and nothing composed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from slurmkit.config.schema import SECTIONS
from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override

__all__ = ["cross_product", "fixed_overrides", "split_overrides"]


#: What all tasks of one job array have in common.
_SHARED = frozenset({*SECTIONS, "payload", "name", "runs_dir"})


def split_overrides(
    overrides: Sequence[str], *, ours: bool, loader: ConfigLoader | None = None
) -> tuple[list[str], list[list[str]]]:
    """Part a multirun's overrides into those that hold for every point and the points.

    Args:
        overrides: as typed, such as ``["experiment=digits", "optim.lr=1e-3,3e-3"]``.
        ours: whether the top of the config is ours; another app's own ``resources`` may be swept.
        loader: finds the configs that a ``glob(*)`` means.

    Returns:
        The fixed overrides, and one list of overrides a point, the last key varying fastest (as Hydra's
        own sweeper orders them).

    Raises:
        ConfigError: for what Hydra cannot read, for intervals (no grid has them), for no point at all, and
            for sweeps over what all tasks of one job array must share.
    """
    parsed = _parse(overrides, loader)
    fixed = [override.input_line or "" for override in parsed if not override.is_sweep_override()]
    points = cross_product(
        [override for override in parsed if override.is_sweep_override()], _SHARED if ours else ()
    )
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


def cross_product(sweeps: Iterable[Override], shared: Collection[str] = ()) -> list[list[str]]:
    """Every combination of the values of these overrides.

    Args:
        sweeps: Hydra's parsed overrides with several values.
        shared: the sections that all tasks of one job array have in common.

    Raises:
        ConfigError: as ``split_overrides``.
    """
    axes = []
    for override in sweeps:
        key = override.get_key_element()
        section = key.lstrip("+~").partition(".")[0].partition("@")[0]
        if section in shared or key.lstrip("+~").startswith(("hydra.launcher", "hydra/launcher")):
            raise ConfigError(
                f"{key}: a sweep is one job array, and all its tasks share {section}",
                f"give {key} one value, and submit once for each other value",
            )
        if not override.is_discrete_sweep():
            raise ConfigError(
                f"{key}: an interval has no grid of values",
                f"name the values: {key}=1,2,3 or {key}=range(0,10)",
            )
        try:
            axes.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        except HydraException as error:
            raise ConfigError(
                f"{key}: {str(error).splitlines()[0]}", f"name the values: {key}=a,b"
            ) from error
    return [list(point) for point in itertools.product(*axes)]
