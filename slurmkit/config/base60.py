"""``time: 30:00`` without quotes is 1800 in YAML 1.1, which counts in sixties: refused, for Slurm takes minutes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]
from hydra.types import RunMode

from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

__all__ = ["find_base60", "refuse_base60"]

_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})


def refuse_base60(
    loader: ConfigLoader, config: DictConfig, overrides: Sequence[str], under: str = ""
) -> None:
    """Look at the text of every file that a config was composed of: once loaded, 30:00 and 1800 are the same.

    Args:
        loader: Hydra's, that composed it.
        config: the composed config, with its ``hydra`` node.
        overrides: the words that it was composed of.
        under: only keys below this one count, such as ``hydra.launcher.`` in somebody else's app.

    Raises:
        ConfigError: naming the file, the line, the key and how to write it.
    """
    defaults = loader.compute_defaults_list(config.hydra.job.config_name, list(overrides), RunMode.RUN)
    folders = [folder for source in config.hydra.runtime.config_sources for folder in _folders(source)]
    for item in defaults.defaults:
        file = next(
            (path for path in (Path(it, f"{item.config_path}.yaml") for it in folders) if path.is_file()),
            None,
        )
        if file is None:
            continue
        for key, text, line in find_base60(file.read_text(encoding="utf-8")):
            full = f"{item.package}.{key}" if item.package else key
            if full.startswith(under):
                raise ConfigError(
                    f"{file}:{line}: {full}: {text} without quotes is a number in base 60 to YAML, not a time",
                    f'write it in quotes: {key.rpartition(".")[2]}: "{text}"',
                )


def find_base60(text: str) -> Iterator[tuple[str, str, int]]:
    """Every value in a YAML text that is read as a number in base 60.

    Yields:
        The dotted key, the value as written, and its line.
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, scalar in _scalars(node, ""):
        if scalar.tag in _NUMBERS and ":" in scalar.value:
            yield key, scalar.value, scalar.start_mark.line + 1


def _scalars(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, yaml.ScalarNode):
        yield key, node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item, key)
    elif isinstance(node, yaml.MappingNode):
        for name, item in node.value:
            yield from _scalars(item, f"{key}.{name.value}" if key else str(name.value))


def _folders(source: Any) -> Iterator[str]:
    if source.schema == "file":
        yield source.path
    elif source.schema == "pkg" and source.provider != "hydra":
        try:
            spec = importlib.util.find_spec(source.path)
        except ImportError:
            return
        yield from (spec.submodule_search_locations or ()) if spec else ()
