"""``load_experiment``: Hydra's config files and overrides become an ``Experiment``, or one clear error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slurmkit.config.explain import check_choices, explain, keys_of
from slurmkit.config.register import register_app
from slurmkit.config.schema import SECTIONS, Experiment, Payload
from slurmkit.errors import ConfigError
from slurmkit.paths import data_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["check_points", "compose", "load_experiment", "without_hydra"]

T = TypeVar("T")


def load_experiment(
    overrides: Sequence[str] = (), config_name: str = "config", config_dir: str | Path | None = None
) -> Experiment:
    """Compose an experiment.

    Args:
        overrides: Hydra's, such as ``experiment=gpt_ddp`` and ``resources.nodes=4``.
        config_name: the primary config, without ``.yaml``.
        config_dir: a folder of your own that is searched after slurmkit's.

    Raises:
        ConfigError: for anything that Hydra, OmegaConf or the schema refuses.
    """
    return compose(
        overrides,
        lambda config: _experiment(config, overrides, config_name, config_dir),
        config_name,
        config_dir,
    )


def check_points(
    points: Sequence[Sequence[str]],
    fixed: Sequence[str],
    config_name: str = "config",
    config_dir: str | Path | None = None,
) -> None:
    """Refuse a sweep whose points cannot be composed, with one composition whatever their number.

    Args:
        points: one list of overrides a point.
        fixed: the overrides that all points share.
        config_name: as in ``load_experiment``.
        config_dir: as in ``load_experiment``.

    Raises:
        ConfigError: for a key that does not exist, and for a choice that no group has.
    """
    with _hydra(config_dir) as hydra:
        check_choices(points, hydra.config_loader.get_group_options)
    load_experiment([*fixed, *points[0]], config_name, config_dir)


def compose(
    overrides: Sequence[str],
    build: Callable[[DictConfig], T],
    config_name: str = "config",
    config_dir: str | Path | None = None,
) -> T:
    """Compose a config and build something of it, with the errors of ``load_experiment``.

    Args:
        overrides: Hydra's.
        build: gets the composed config, and may resolve it.
        config_name: the primary config, without ``.yaml``.
        config_dir: a folder of your own that is searched after slurmkit's.

    Raises:
        ConfigError: for anything that Hydra, OmegaConf or the schema refuses.
    """
    with _hydra(config_dir) as hydra:
        try:
            return build(_compose(hydra, config_name, overrides))
        except (HydraException, OmegaConfBaseException) as error:
            raise explain(error, overrides, lambda others: _known_keys(hydra, config_name, others)) from error


class _hydra:  # noqa: N801 - used as a with-statement's verb
    """Hydra over our search path, cleared on the way out so that an app around us can start its own."""

    def __init__(self, config_dir: str | Path | None) -> None:
        self._config_dir = config_dir

    def __enter__(self) -> Hydra:
        if GlobalHydra.instance().is_initialized():
            raise ConfigError(
                "load_experiment was called inside a running Hydra app",
                "call it before @hydra.main, or use hydra/launcher=slurmkit",
            )
        version.setbase("1.3")
        register_app()
        search_path = create_config_search_path(f"file://{data_dir('conf')}")
        if self._config_dir is not None:
            folder = Path(self._config_dir).absolute()
            if not folder.is_dir():
                raise ConfigError(
                    f"--config-dir: {folder} is not a folder",
                    "give the folder that holds your experiment/, resources/ ...",
                )
            search_path.prepend(
                "command-line", f"file://{folder}", SearchPathQuery(provider="schema", path=None)
            )
        return Hydra.create_main_hydra2("slurmkit", search_path)

    def __exit__(self, *_: object) -> None:
        GlobalHydra.instance().clear()


def without_hydra(config: DictConfig) -> DictConfig:
    """The part of a composed config that is the app's own."""
    plain: DictConfig = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    return plain


def _compose(hydra: Hydra, config_name: str, overrides: Sequence[str]) -> DictConfig:
    return hydra.compose_config(
        config_name=config_name,
        overrides=list(overrides),
        run_mode=RunMode.RUN,
        with_log_configuration=False,
        from_shell=True,
    )


def _experiment(
    config: DictConfig, overrides: Sequence[str], config_name: str, config_dir: str | Path | None
) -> Experiment:
    plain = without_hydra(config)
    missing = sorted(OmegaConf.missing_keys(plain))
    if missing:
        raise ConfigError(f"{', '.join(missing)}: no value is set", f"set {missing[0]}=VALUE")
    payload = OmegaConf.to_object(config.payload)
    assert isinstance(payload, Payload)  # noqa: S101 - the schema is mounted
    if payload.kind == "trainer":
        flags = [] if config_name == "config" else ["--config-name", config_name]
        flags += [] if config_dir is None else ["--config-dir", os.fspath(config_dir)]
        payload = Payload(payload.kind, ["-m", "trainer", *flags, *overrides])
    sections: dict[str, Any] = {name: OmegaConf.to_object(config[name]) for name in SECTIONS}
    resolved: Any = OmegaConf.to_container(plain, resolve=True)
    return Experiment(
        name=config.name, runs_dir=config.runs_dir, payload=payload, config=resolved, **sections
    )


def _known_keys(hydra: Hydra, config_name: str, others: Sequence[str]) -> set[str]:
    """Every group, and every key of the config as the other overrides make it (or as it is without any)."""
    try:
        config = _compose(hydra, config_name, others)
    except (HydraException, OmegaConfBaseException):
        # The config itself may be broken: then no key of it is known.
        return _known_keys(hydra, config_name, []) if others else set()
    return {group for group in hydra.config_loader.list_groups("") if group != "hydra"} | keys_of(config)
