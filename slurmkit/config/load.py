"""``load_experiment``: Hydra's config files and overrides become an ``Experiment``, or one clear error."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slurmkit.config.explain import USER_ERRORS, explain, explained, known_keys
from slurmkit.config.register import register_app
from slurmkit.config.schema import SECTIONS, Experiment, Payload, Resources, mounted_at
from slurmkit.config.sweep import check_sweep
from slurmkit.config.training import Settings, check_batch
from slurmkit.config.written import as_written, refuse_misread
from slurmkit.errors import ConfigError
from slurmkit.paths import data_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hydra.core.config_loader import ConfigLoader

__all__ = [
    "check_points",
    "check_trainer",
    "compose",
    "experiment_of",
    "load_experiment",
    "sections_of",
    "settings_of",
    "without_hydra",
]

T = TypeVar("T")

#: Options after which nobody here knows how many ranks there are.
_TASKS = re.compile(r"-[nN]|--(?:nodes|ntasks)")


def load_experiment(
    overrides: Sequence[str] = (),
    config_name: str = "config",
    config_dir: str | Path | None = None,
    *,
    whole: bool = True,
) -> Experiment:
    """Compose an experiment.

    Args:
        overrides: Hydra's, such as ``experiment=gpt_ddp`` and ``resources.nodes=4``.
        config_name: the primary config, without ``.yaml``.
        config_dir: a folder of your own that is searched after slurmkit's.
        whole: false for what the points of a sweep share: each of them completes it, and ``check_points``
            checks the rest.

    Raises:
        ConfigError: for anything that Hydra, OmegaConf, the schema or the trainer refuses.
    """

    def build(config: DictConfig) -> Experiment:
        loader = GlobalHydra.instance().config_loader()
        return experiment_of(loader, config, overrides, config_dir, whole=whole)

    _refuse_launcher(overrides)
    return compose(overrides, build, config_name, config_dir, whole=whole)


def check_points(
    points: Sequence[Sequence[str]],
    fixed: Sequence[str],
    config_name: str = "config",
    config_dir: str | Path | None = None,
) -> Experiment:
    """Refuse a sweep whose points cannot be composed, or are of different jobs, at a cost that their number leaves alone.

    Args:
        points: one list of overrides a point.
        fixed: the overrides that all points share.
        config_name: as in ``load_experiment``.
        config_dir: as in ``load_experiment``.

    Returns:
        What all points share: ``load_experiment`` of the fixed overrides, not ``whole``.

    Raises:
        ConfigError: for a key that does not exist, a choice that no group has, values that a trainer would
            refuse, and for points that are not of one job.
    """

    def compose_one(point: Sequence[str]) -> tuple[Experiment, list[str]]:
        words = [*fixed, *point]

        def build(config: DictConfig) -> tuple[Experiment, list[str]]:
            loader = GlobalHydra.instance().config_loader()
            experiment = experiment_of(loader, config, words, config_dir, point=point)
            return experiment, list(config.hydra.runtime.choices)

        return compose(words, build, config_name, config_dir)

    base = load_experiment(fixed, config_name, config_dir, whole=False)
    check_sweep(points, base, compose_one)
    return base


def _refuse_launcher(overrides: Sequence[str]) -> None:
    """Nothing is launched by Hydra here: what speaks of its launcher would be read and forgotten."""
    for word in overrides:
        found = re.match(r"[+~]*hydra[./](launcher|sweeper)[./]?([^=@]*)(.*)", word)
        if found is None:
            continue
        part, key, value = found.groups()
        ours = part == "launcher" and key.partition(".")[0] in {*SECTIONS, "name", "runs_dir"}
        hint = "write --wait" if key == "wait" else "leave it out: a sweep is slurmkit submit -m"
        raise ConfigError(
            f"{word}: slurmkit submits by itself, without Hydra's {part}, which this would change",
            f"write {key}{value}" if ours else hint,
        )


def compose(
    overrides: Sequence[str],
    build: Callable[[DictConfig], T],
    config_name: str = "config",
    config_dir: str | Path | None = None,
    *,
    whole: bool = True,
) -> T:
    """Compose a config and build something of it, with the errors of ``load_experiment``.

    Args:
        overrides: Hydra's.
        build: gets the composed config, and may resolve it.
        config_name: the primary config, without ``.yaml``.
        config_dir: a folder of your own that is searched after slurmkit's.
        whole: false where each point of a sweep makes choices that are still open.

    Raises:
        ConfigError: for anything that Hydra, OmegaConf or the schema refuses.
    """
    with _hydra(config_dir) as hydra:
        loader = hydra.config_loader

        def known(others: Sequence[str]) -> set[str]:
            return known_keys(lambda words: _compose(hydra, config_name, words), loader, others)

        with explained(overrides, known, loader.get_group_options):
            config = _compose(hydra, config_name, overrides, RunMode.RUN if whole else RunMode.MULTIRUN)
        with explained(overrides, known, loader.get_group_options, USER_ERRORS):
            return build(config)


@contextlib.contextmanager
def _hydra(config_dir: str | Path | None) -> Iterator[Hydra]:
    """Hydra over our search path, cleared on the way out so that an app around us can start its own."""
    if GlobalHydra.instance().is_initialized():
        raise ConfigError(
            "load_experiment was called inside a running Hydra app",
            "call it before @hydra.main, or use hydra/launcher=slurmkit",
        )
    version.setbase("1.3")
    register_app()
    search_path = create_config_search_path(f"file://{data_dir('conf')}")
    if config_dir is not None:
        folder = Path(config_dir).absolute()
        if not folder.is_dir():
            raise ConfigError(
                f"--config-dir: {folder} is not a folder",
                "give the folder that holds your experiment/, resources/ ...",
            )
        search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema", path=None))
    try:
        yield Hydra.create_main_hydra2("slurmkit", search_path)
    finally:
        GlobalHydra.instance().clear()


def without_hydra(config: DictConfig) -> DictConfig:
    """The part of a composed config that is the app's own."""
    plain: DictConfig = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    return plain


def _compose(
    hydra: Hydra, config_name: str, overrides: Sequence[str], mode: RunMode = RunMode.RUN
) -> DictConfig:
    return hydra.compose_config(
        config_name=config_name,
        overrides=as_written(overrides),
        run_mode=mode,
        with_log_configuration=False,
        from_shell=True,
    )


def experiment_of(
    loader: ConfigLoader,
    config: DictConfig,
    overrides: Sequence[str],
    config_dir: str | Path | None,
    *,
    whole: bool = True,
    point: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Experiment:
    """The experiment of a composed config of our own apps, with all that can be refused.

    Args:
        loader: Hydra's, that composed it.
        config: with its ``hydra`` node.
        overrides: the words that it was composed of.
        config_dir: as in ``load_experiment``.
        whole: as in ``load_experiment``.
        point: those of them that are one point's alone, as in ``refuse_misread``.
        options: the sections that count, where they are not those at the top.

    Raises:
        ConfigError: as ``load_experiment``.
    """
    name = config.hydra.job.config_name
    absent = [key for key in ("name", "runs_dir", "payload", *SECTIONS) if key not in config]
    if absent:
        raise ConfigError(
            f"--config-name {name}: no experiment: it has no {', '.join(absent)}",
            "begin its defaults list with: - config",
        )
    refuse_misread(loader, config, overrides, point=point)
    plain = without_hydra(config)
    missing = sorted(OmegaConf.missing_keys(plain))
    if missing and whole:
        raise ConfigError(f"{', '.join(missing)}: no value is set", f"set {missing[0]}=VALUE")
    sections = sections_of(config)  # always: a key that does not exist is seen at the top alone
    if options is not None:
        sections = sections_of(options)
    flags = [] if name == "config" else ["--config-name", name]
    flags += [] if config_dir is None else ["--config-dir", os.fspath(config_dir)]
    payload = _payload(config, ["-m", "trainer", *flags, *overrides], whole=whole)
    unseen = ""
    if payload.kind == "trainer" and whole:
        check_trainer(config, sections["resources"])
        unseen = "" if _seen(config.data.path) else config.data.path
    resolved: Any = OmegaConf.to_container(plain, resolve=True)
    return Experiment(
        name=config.name,
        runs_dir=config.runs_dir,
        payload=payload,
        config=resolved,
        unseen=unseen,
        **sections,
    )


def _seen(path: str) -> bool:
    """Whether there is such a file; pathlib would raise where a home or a folder is closed to us."""
    return os.path.exists(os.path.expanduser(path))  # noqa: PTH110, PTH111


def sections_of(options: Mapping[str, Any], mount: str = "") -> dict[str, Any]:
    """Our sections as the dataclasses of the schema.

    Args:
        options: the sections by name, composed.
        mount: where they are mounted, as in ``Experiment``; errors name their keys with it.

    Raises:
        ConfigError: for what the schema refuses, and for a key that it does not have.
    """
    found: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        section = options[name]
        try:
            with mounted_at(mount):
                found[name] = OmegaConf.to_object(section) if OmegaConf.is_config(section) else section
        except FrozenInstanceError as error:  # a key that somebody added with a plus
            known = [item.name for item in fields(kind)]
            new = next((str(key) for key in section if key not in known), "")
            near = difflib.get_close_matches(new, known, 1, 0.5)
            raise ConfigError(
                f"there is no config key '{mount}{name}.{new}'; accepted are {', '.join(known)}",
                f"did you mean {mount}{name}.{near[0]}?"
                if near
                else f"any other option of sbatch goes into {mount}resources.extra"
                if name == "resources"
                else f"remove {mount}{name}.{new}",
            ) from error
        except OmegaConfBaseException as error:
            if not mount:
                raise
            raise explain(error, (), lambda _: set()) from error
    return found


def _payload(config: DictConfig, trainer: list[str], *, whole: bool) -> Payload:
    if config.payload.kind == "function":
        raise ConfigError(
            "payload.kind: got 'function', the task of a Hydra app of your own, which its launcher starts; "
            "accepted here are trainer and command",
            "set payload=trainer, or in your app's command line: -m hydra/launcher=slurmkit",
        )
    if not whole and config.payload.kind == "command" and not config.payload.get("command"):
        raise ConfigError(
            "payload.command: no value for all points is set, and a sweep is one job array of one command",
            "set payload.command=[PROGRAM], which gets each point's words; or submit once for each command",
        )
    payload: Any = OmegaConf.to_object(config.payload)
    return Payload("trainer", trainer) if payload.kind == "trainer" else payload


def settings_of(config: DictConfig) -> Settings:
    """What the trainer wants to know, checked.

    Args:
        config: of our own apps, composed.

    Raises:
        ConfigError: for a value that the trainer does not accept.
    """
    typed: Any = {name: OmegaConf.to_object(config[name]) for name in ("trainer", "data")}
    plain: Any = {
        name: OmegaConf.to_container(config[name], resolve=True)
        if OmegaConf.is_config(config[name])
        else config[name]
        for name in ("model", "optim")
    }
    return Settings(name=config.name, **typed, **plain)


def check_trainer(config: DictConfig, resources: Resources) -> None:
    """Refuse on the login node what every rank would refuse on its own.

    Args:
        config: of our own apps, composed.
        resources: what is asked of Slurm, which says how many ranks there are.

    Raises:
        ConfigError: for a value that the trainer does not accept, and for a batch that the ranks cannot share.
    """
    trainer = settings_of(config).trainer
    options = [f"--{name}".replace("_", "-") for name in resources.extra]
    if not any(map(_TASKS.match, (*options, *resources.srun_args))):
        check_batch(trainer.batch_size, trainer.accumulate, resources.nodes * resources.ntasks_per_node)
