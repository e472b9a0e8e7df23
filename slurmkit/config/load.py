"""``load_experiment``: Hydra's config files and overrides become an ``Experiment``, or one clear error."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slurmkit.config.register import register_app
from slurmkit.config.schema import SECTIONS, Experiment, Payload
from slurmkit.errors import ConfigError
from slurmkit.paths import data_dir

__all__ = ["load_experiment"]


def load_experiment(overrides: Sequence[str] = (), config_name: str = "config", config_dir: str | Path | None = None) -> Experiment:
    """Compose an experiment.

    Args:
        overrides: Hydra's, such as ``experiment=gpt_ddp`` and ``resources.nodes=4``.
        config_name: the primary config, without ``.yaml``.
        config_dir: a folder of your own that is searched before slurmkit's.

    Raises:
        ConfigError: for anything that Hydra, OmegaConf or the schema refuses.
    """
    with _hydra(config_dir) as hydra:
        try:
            config = _compose(hydra, config_name, overrides)
            return _experiment(config, overrides, config_name, config_dir)
        except (HydraException, OmegaConfBaseException) as error:
            raise _explain(error, hydra, config_name, overrides) from error


class _hydra:  # noqa: N801 - used as a with-statement's verb
    """Hydra over our search path, cleared on the way out so that an app around us can start its own."""

    def __init__(self, config_dir: str | Path | None) -> None:
        self._config_dir = config_dir

    def __enter__(self) -> Hydra:
        if GlobalHydra.instance().is_initialized():
            raise ConfigError("load_experiment was called inside a running Hydra app", "call it before @hydra.main, or use hydra/launcher=slurmkit")
        version.setbase("1.3")
        register_app()
        search_path = create_config_search_path(f"file://{data_dir('conf')}")
        if self._config_dir is not None:
            folder = Path(self._config_dir).absolute()
            if not folder.is_dir():
                raise ConfigError(f"--config-dir: {folder} is not a folder", "give the folder that holds your experiment/, resources/ ...")
            search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema", path=None))
        return Hydra.create_main_hydra2("slurmkit", search_path)

    def __exit__(self, *_: object) -> None:
        GlobalHydra.instance().clear()


def _compose(hydra: Hydra, config_name: str, overrides: Sequence[str]) -> DictConfig:
    config = hydra.compose_config(config_name=config_name, overrides=list(overrides), run_mode=RunMode.RUN, with_log_configuration=False, from_shell=True)
    return config


def _experiment(config: DictConfig, overrides: Sequence[str], config_name: str, config_dir: str | Path | None) -> Experiment:
    plain = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
    missing = sorted(OmegaConf.missing_keys(plain))
    if missing:
        raise ConfigError(f"{', '.join(missing)}: no value is set", f"set {missing[0]}=VALUE")
    payload = OmegaConf.to_object(config.payload)
    assert isinstance(payload, Payload)  # noqa: S101 - the schema is mounted
    if payload.kind == "trainer":
        flags = [] if config_name == "config" else ["--config-name", config_name]
        flags += [] if config_dir is None else ["--config-dir", os.fspath(config_dir)]
        payload = Payload(payload.kind, ["-m", "trainer", *flags, *overrides])
    sections = {name: OmegaConf.to_object(config[name]) for name in SECTIONS}
    resolved: Any = OmegaConf.to_container(plain, resolve=True)
    return Experiment(name=config.name, runs_dir=config.runs_dir, payload=payload, config=resolved, **sections)


def _explain(error: Exception, hydra: Hydra, config_name: str, overrides: Sequence[str]) -> ConfigError:
    """One line of what was wrong, and the nearest key or option to type instead."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else None
    text = str(error)
    options = re.search(r"Could not find '([^']+)'\s+Available options in '([^']+)':\s+(.*)", text, re.DOTALL)
    if options:
        wanted, group, listed = options[1].rpartition("/")[2], options[2], options[3].partition("\n\n")[0].partition("Config search path")[0].split()
        near = (difflib.get_close_matches(wanted, listed, 1, 0.0) or [""])[0]
        return ConfigError(f"{group}: got {wanted!r}; accepted are {', '.join(listed)}", f"did you mean {group}={near}?")
    if "LexerNoViableAlt" in text or "mismatched input" in text or "no viable alternative" in text:
        return ConfigError(f"Hydra cannot read the override {_unreadable(text, overrides)!r}", "write key=value, and quote a value with special characters: 'key=\"a, b\"'")
    key = _failed_key(text, overrides)
    if key is not None:
        known = sorted(set(_known_keys(hydra, config_name, [item for item in overrides if _key(item) != key])))
        if known and key not in known:
            near_keys = difflib.get_close_matches(key, known, 3, 0.5)
            return ConfigError(f"there is no config key {key!r}", f"did you mean {' or '.join(near_keys)}?" if near_keys else f"at the top are {', '.join(name for name in known if '.' not in name)}")
    lines = [line.strip() for line in (str(cause) if cause else text).splitlines() if line.strip()]
    where = f"{key}: " if key and key not in lines[0] else ""
    return ConfigError(where + lines[0], _hint(key, lines))


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def _unreadable(text: str, overrides: Sequence[str]) -> str:
    return next((item for item in overrides if item in text), " ".join(overrides))


def _hint(key: str | None, lines: Sequence[str]) -> str:
    if key:
        return f"show what is accepted with: python -m trainer --cfg job --package {key.rpartition('.')[0] or key}"
    return "; ".join(lines[1:3]) or "see the whole config with: python -m trainer --cfg job"


def _failed_key(text: str, overrides: Sequence[str]) -> str | None:
    """The key of the override that the error speaks of: Hydra quotes it in several ways."""
    for override in overrides:
        key = _key(override)
        if key and re.search(rf"(?<![\w.]){re.escape(key)}(?![\w])", text):
            return key
    match = re.search(r"full_key: (\S+)", text)
    return match[1] if match else None


def _known_keys(hydra: Hydra, config_name: str, others: Sequence[str]) -> Iterator[str]:
    """Every group, and every key of the config as the other overrides make it (or as it is without any)."""
    try:
        config = _compose(hydra, config_name, others)
    except (HydraException, OmegaConfBaseException):
        if not others:
            return  # the config itself is broken: no key of it is known
        yield from _known_keys(hydra, config_name, [])
        return
    yield from (group for group in hydra.config_loader.list_groups("") if group != "hydra")
    yield from (key for key in _walk(config, "") if not key.startswith("hydra"))


def _walk(node: DictConfig, prefix: str) -> Iterator[str]:
    for name in node:
        yield f"{prefix}{name}"
        child = None if OmegaConf.is_missing(node, name) or OmegaConf.is_interpolation(node, name) else node[name]
        if isinstance(child, DictConfig):
            yield from _walk(child, f"{prefix}{name}.")
