"""What the launcher does once a sweep really runs."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.utils import get_args_parser
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from slurmkit import open_client, submit
from slurmkit.config.explain import explained, known_keys
from slurmkit.config.load import experiment_of, sections_of, without_hydra
from slurmkit.config.overrides import fixed_overrides, without_fixed
from slurmkit.config.register import APP_SCHEMA
from slurmkit.config.schema import Experiment, Payload
from slurmkit.config.sweep import check_sweep
from slurmkit.config.written import as_written, refuse_misread
from slurmkit.errors import SlurmkitError
from slurmkit.launch.results import point_result
from slurmkit.launch.watch import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hydra.core.config_loader import ConfigLoader

    from slurmkit.launch.ledger import Run

__all__ = ["launch", "reported"]

#: Writes what the task function of a point returned into the point's folder, as JSON.
_CALLBACK = "+hydra.callbacks.slurmkit._target_=slurmkit.launch.results.RecordResult"

#: Where another app's config has our sections.
LAUNCHER = "hydra.launcher."


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Turn our errors into a line, a hint and an exit code: Hydra would print a traceback."""
    try:
        yield
    except SlurmkitError as error:
        print(error.report(), file=sys.stderr)
        sys.exit(error.exit_code)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def launch(
    config: DictConfig,
    loader: ConfigLoader,
    job_overrides: Sequence[Sequence[str]],
    *,
    wait: bool,
    wants_values: bool,
) -> Sequence[JobReturn]:
    """See ``SlurmkitLauncher.launch``.

    Args:
        config: the app's, with its ``hydra`` node.
        loader: Hydra's, that composed it.
        job_overrides: one list of overrides a point.
        wait: whether to wait for the jobs.
        wants_values: whether the sweeper reads what the points returned, and so hears of the failed ones.
    """
    with reported():
        words: list[str] = list(config.hydra.overrides.task)
        points = without_fixed(job_overrides, words)
        experiment = _checked(config, loader, fixed_overrides(words), points)
        run = submit(experiment, points, say=_note)
        print(run.path, flush=True)
        if not wait:
            return []
        statuses = wait_for(run, open_client(), time.sleep)
        failed = [status for status in statuses if status.state != "COMPLETED"]
        if failed and not wants_values:
            raise SlurmkitError(
                f"{len(failed)} of {len(points)} points did not complete: "
                + ", ".join(f"{item.point} {item.state}" for item in failed[:5]),
                f"read the first one's log with: slurmkit logs {run.word} --point {failed[0].point}",
            )
        return [_job_return(run, index, overrides) for index, overrides in enumerate(job_overrides)]


def _checked(
    config: DictConfig, loader: ConfigLoader, fixed: Sequence[str], points: Sequence[Sequence[str]]
) -> Experiment:
    """The experiment that all points share; refuses points that cannot be composed, or that need another one.

    Args:
        config: the app's, as Hydra made it: what a person wrote as text may not be in it as written.
        loader: Hydra's.
        fixed: the overrides that all points share.
        points: one list of overrides a point, without these.
    """
    ours = config.hydra.runtime.choices.get("hydra/launcher") == APP_SCHEMA
    under = "" if ours else LAUNCHER
    hydras: list[str] = list(config.hydra.overrides.hydra)

    def compose(typed: Sequence[str], mode: RunMode = RunMode.RUN) -> DictConfig:
        return loader.load_configuration(config.hydra.job.config_name, list(typed), mode)

    def known(others: Sequence[str]) -> set[str]:
        return known_keys(compose, loader, others)

    def build(point: Sequence[str] | None) -> tuple[Experiment, list[str]]:
        typed = as_written([*hydras, *fixed, *(point or ())], under)
        with explained(typed, known, loader.get_group_options):
            # The points alone make every choice.
            composed = compose(typed, RunMode.MULTIRUN if point is None else RunMode.RUN)
            OmegaConf.copy_cache(config, composed)
            if ours:
                experiment = _of_our_app(composed, loader, typed, point)
            else:
                refuse_misread(loader, composed, typed, under, point)
                experiment = _of_an_app(composed)
        return experiment, list(composed.hydra.runtime.choices)

    base, _ = build(None)
    check_sweep(points, base, build)
    return base


def _of_our_app(
    config: DictConfig, loader: ConfigLoader, words: Sequence[str], point: Sequence[str] | None
) -> Experiment:
    """What ``slurmkit submit`` would make of it, but for what ``hydra.launcher`` says otherwise."""
    launcher = config.hydra.launcher
    found = experiment_of(loader, config, words, None, whole=point is not None, point=point, options=launcher)
    payload = found.payload if found.payload.kind == "command" else Payload(found.payload.kind, _command())
    return replace(found, name=launcher.name, runs_dir=launcher.runs_dir, payload=payload)


def _of_an_app(config: DictConfig) -> Experiment:
    launcher = config.hydra.launcher
    own: Any = OmegaConf.to_container(without_hydra(config), resolve=False)
    return Experiment(
        name=launcher.name or config.hydra.job.name,
        runs_dir=launcher.runs_dir,
        payload=Payload("function", [*_command(), _CALLBACK]),
        config=own,
        mount=LAUNCHER,
        **sections_of(launcher, LAUNCHER),
    )


def _command() -> list[str]:
    """What starts this app again for one point: its file or module, Hydra's flags, and the fixed overrides."""
    arguments = get_args_parser().parse_args(sys.argv[1:])
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    start = (
        ["-m", spec.name.removesuffix(".__main__")]
        if spec is not None
        else [str(Path(sys.argv[0]).absolute())]
    )
    flags = []
    if arguments.config_name is not None:
        flags += ["--config-name", arguments.config_name]
    if arguments.config_path is not None:
        flags += ["--config-path", arguments.config_path]
    if arguments.config_dir is not None:
        flags += ["--config-dir", str(Path(arguments.config_dir).absolute())]
    fixed = fixed_overrides(arguments.overrides)
    return [*start, *flags, *(override for override in fixed if not _only_for_sweeps(override))]


def _only_for_sweeps(override: str) -> bool:
    """Whether an override speaks of the launcher or sweeper, which a single point has not."""
    key = override.lstrip("+~").partition("=")[0]
    return key.startswith(
        ("hydra/launcher", "hydra.launcher", "hydra/sweeper", "hydra.sweeper", "hydra.mode", "hydra.sweep.")
    )


def _job_return(run: Run, index: int, overrides: Sequence[str]) -> JobReturn:
    result = point_result(run, index)
    done = JobReturn(overrides=list(overrides), working_dir=str(run.point_dir(index)))
    if result is not None and result["state"] == "finished":
        done.status, done.return_value = JobStatus.COMPLETED, result["value"]
    else:
        done.status = JobStatus.FAILED
        done.return_value = SlurmkitError(
            f"point {index} did not finish: {result['error'] if result else 'it left no result'}",
            f"read {run.point_dir(index) / 'log'}",
        )
    return done
