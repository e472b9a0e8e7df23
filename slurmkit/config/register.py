"""The only file that touches Hydra's ConfigStore: where the schema is mounted, and under which names."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, fields
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, ListConfig, OmegaConf

from slurmkit.config import schema
from slurmkit.config.training import DataConfig, TrainerConfig
from slurmkit.paths import data_dir

__all__ = ["APP_SCHEMA", "register_app", "register_launcher"]

#: The name by which ``conf/config.yaml`` takes the schema of our own apps, and their launcher.
APP_SCHEMA = "slurmkit_app"

#: Sections with presets in ``conf/``, and the preset that is taken when nothing is said.
_PRESETS = {"resources": "one_node", "topology": "any", "requeue": "auto"}


@dataclass(frozen=True)
class _App(schema.Sections):
    """The root of the config of our own apps."""

    name: str = "experiment"
    runs_dir: str = "${oc.env:SLURMKIT_RUNS_DIR,runs}"
    payload: schema.Payload = field(default_factory=schema.Payload)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    model: Any = None
    data: DataConfig = field(default_factory=DataConfig)
    optim: Any = None


@dataclass(frozen=True)
class _AppLauncher(schema.Sections):
    """``hydra.launcher`` of our own apps, which takes everything from the top mount."""

    _target_: str = "hydra_plugins.slurmkit_plugin.launcher.SlurmkitLauncher"
    name: str | None = None
    """The job's name; ``hydra.job.name`` when unset."""
    runs_dir: str = "${oc.env:SLURMKIT_RUNS_DIR,runs}"
    wait: bool | None = None
    """Whether to wait for the jobs; when unset, only under a sweeper that reads their results."""


@dataclass(frozen=True)
class _Launcher(_AppLauncher):
    """``hydra.launcher`` of any other Hydra app, with the presets of ``conf/``."""

    defaults: list[Any] = field(
        default_factory=lambda: ["_self_", *({name: preset} for name, preset in _PRESETS.items())]
    )


def _writable(dataclass_type: type) -> DictConfig:
    """A structured config that composes.

    OmegaConf marks the nodes of frozen dataclasses read-only, and Hydra can then put nothing over them:
    the mark is cleared on every level. Open mappings (``resources.extra``, ``env.vars``) take new keys.
    """
    config: DictConfig = OmegaConf.structured(dataclass_type)
    _open(config)
    return config


def _open(node: DictConfig | ListConfig) -> None:
    OmegaConf.set_readonly(node, None)
    if isinstance(node, DictConfig) and OmegaConf.get_type(node) is dict:
        OmegaConf.set_struct(node, False)
    keys: Any = list(node) if isinstance(node, DictConfig) else range(len(node))
    for key in keys:
        child = node._get_node(key)  # noqa: SLF001 - the public access hands out values, not nodes
        if isinstance(child, (DictConfig, ListConfig)) and not child._is_none():  # noqa: SLF001
            _open(child)


@functools.cache
def register_app() -> None:
    """Mount the schema at the top, once, for ``slurmkit compile|submit`` and ``python -m trainer``.

    Their launcher interpolates the top mount leaf by leaf, since OmegaConf merges no text over a typed
    section: ``resources.nodes=2`` is enough. ``hydra.launcher.resources.nodes=2`` is for ``python -m trainer
    -m`` alone, which has a launcher; ``slurmkit compile|submit`` refuse it.
    """
    store = ConfigStore.instance()
    store.store(name=APP_SCHEMA, node=_writable(_App), provider="slurmkit")
    launcher = _writable(_AppLauncher)
    launcher.name, launcher.runs_dir = "${name}", "${runs_dir}"
    for section, kind in schema.SECTIONS.items():
        for item in fields(kind):
            launcher[section][item.name] = f"${{{section}.{item.name}}}"
    store.store(group="hydra/launcher", name=APP_SCHEMA, node=launcher, provider="slurmkit")


def register_launcher() -> None:
    """Mount the schema under ``hydra.launcher`` alone, with the presets of ``conf/`` beside it.

    Nothing is registered at the top, so that an app's own group named ``resources`` is never touched.
    """
    store = ConfigStore.instance()
    store.store(group="hydra/launcher", name="slurmkit", node=_writable(_Launcher), provider="slurmkit")
    sweeper = {"_target_": "hydra_plugins.slurmkit_plugin.sweeper.SlurmkitSweeper"}
    store.store(group="hydra/sweeper", name="slurmkit", node=sweeper, provider="slurmkit")
    for section in _PRESETS:
        for preset in sorted((data_dir("conf") / section).glob("*.yaml")):
            store.store(
                group=f"hydra/launcher/{section}",
                name=preset.stem,
                node=OmegaConf.load(preset),
                provider="slurmkit",
            )
