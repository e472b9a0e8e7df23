"""What the launcher does once a sweep really runs."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.utils import get_args_parser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf

from slurmkit import open_client, submit
from slurmkit.config.load import sections_of, without_hydra
from slurmkit.config.schema import Experiment, Payload
from slurmkit.errors import SlurmkitError
from slurmkit.launch.results import point_result
from slurmkit.launch.watch import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurmkit.launch.ledger import Run

__all__ = ["launch", "reported"]

#: Writes what the task function of a point returned into the point's folder, as JSON.
_CALLBACK = "+hydra.callbacks.slurmkit._target_=slurmkit.launch.results.RecordResult"


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
    options: Mapping[str, Any],
    job_overrides: Sequence[Sequence[str]],
    *,
    wait: bool,
    wants_values: bool,
) -> Sequence[JobReturn]:
    """See ``SlurmkitLauncher.launch``.

    Args:
        config: the app's, with its ``hydra`` node.
        options: ``hydra.launcher``.
        job_overrides: one list of overrides a point.
        wait: whether to wait for the jobs.
        wants_values: whether the sweeper reads what the points returned, and so hears of the failed ones.
    """
    with reported():
        experiment = _experiment(config, options)
        fixed = set(experiment.payload.command)
        points = [[override for override in point if override not in fixed] for point in job_overrides]
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
                f"read the first one's log with: slurmkit logs {run.id} --point {failed[0].point}",
            )
        return [_job_return(run, index, overrides) for index, overrides in enumerate(job_overrides)]


def _experiment(config: DictConfig, options: Mapping[str, Any]) -> Experiment:
    own: Any = OmegaConf.to_container(without_hydra(config), resolve=False)
    kind = options["payload"]
    if kind == "command":
        command = list(config.payload.command)
    else:
        command = _command() + ([_CALLBACK] if kind == "function" else [])
    mount = "hydra.launcher." if kind == "function" else ""
    sections = sections_of(options, mount)
    return Experiment(
        name=options.get("name") or config.hydra.job.name,
        runs_dir=options["runs_dir"],
        payload=Payload(kind, command),
        config=own,
        mount=mount,
        **sections,
    )


def _command() -> list[str]:
    """What starts this app again for one point: its file or module, Hydra's flags, and the fixed overrides."""
    from slurmkit.launch.sweep import fixed_overrides  # noqa: PLC0415

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
