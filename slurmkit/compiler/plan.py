"""``compile_job``: an experiment and what is known of the cluster become a plan. Pure."""

from __future__ import annotations

import json
import os.path
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmkit import __version__
from slurmkit.compiler.directives import Directives, job_directives, render
from slurmkit.compiler.preflight import Finding, Verdict, preflight
from slurmkit.compiler.script import ScriptParts, render_script
from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurmkit.cluster.model import ClusterSnapshot
    from slurmkit.config.schema import Experiment

__all__ = ["JobPlan", "Place", "compile_job", "folder_name"]


@dataclass(frozen=True)
class Place:
    """The folders that a script names.

    Args:
        cwd: where it is submitted from, absolute.
        run_dir: the run folder, absolute; ``None`` in a script for submitting by hand, which then makes
            one a job below ``cwd``.
        code_dir: the snapshot that the job runs from; ``cwd`` where there is none.
        output: the file for the batch script's output; by default one in the run folder.
        python: the interpreter on the nodes, where the experiment names none; by default this one.
    """

    cwd: str
    run_dir: str | None = None
    code_dir: str | None = None
    output: str | None = None
    python: str = sys.executable

    def __post_init__(self) -> None:
        for path in (self.cwd, self.run_dir, self.output):
            if path is not None and any(character in path for character in "\n\r\\"):
                raise ConfigError(
                    f"the folder {path!r} has a line break or a backslash in its name, which Slurm does not take in --output",
                    "submit from another folder",
                )


@dataclass(frozen=True)
class JobPlan:
    """A script, the options in it, and what was found out about them."""

    experiment: Experiment
    directives: Directives
    script: str
    findings: tuple[Finding, ...]
    array: int | None
    """The size of the job array; ``None`` for a single run."""

    @property
    def impossible(self) -> tuple[Finding, ...]:
        """The findings that stop a submission."""
        return tuple(item for item in self.findings if item.verdict is Verdict.IMPOSSIBLE)


def compile_job(
    experiment: Experiment,
    snapshot: ClusterSnapshot | None,
    place: Place,
    *,
    points: Sequence[Sequence[str]] | None = None,
    array: int | None = None,
) -> JobPlan:
    """Compile one job.

    Args:
        experiment: what to run, and what to ask of Slurm.
        snapshot: the cluster to check against; ``None`` compiles without any findings.
        place: the folders that the script names.
        points: the overrides of each task of a job array; ``None`` for a single run. A script for
            submitting by hand carries them, others read them from the run folder.
        array: the size of a job array whose tasks differ in their index alone.
    """
    size = len(points) if points is not None else array
    directives = job_directives(experiment, place.output or _output(experiment, place, size), size)
    payload, env, by_hand = experiment.payload, experiment.env, place.run_dir is None
    script = render_script(
        ScriptParts(
            name=experiment.name,
            version=__version__,
            directives=render(directives),
            run_dir=place.run_dir
            or os.path.join(place.cwd, experiment.runs_dir, folder_name(experiment.name)),  # noqa: PTH118 - keeps what was typed
            by_hand=by_hand,
            array=size is not None,
            points=points is not None,
            own_points=list(point_lines(points)) if points is not None and by_hand else [],
            python_path=_python_path(experiment, place.code_dir or place.cwd),
            python=env.python or place.python,
            argv=payload.command,
            interpreted=payload.kind != "command",
            module=payload.kind != "command" and payload.command[:1] == ["-m"],
            hydra_function=payload.kind == "function",
            unasked=[name for name, option in _EXCLUSIVE.items() if option not in directives],
            requeue=experiment.requeue.enabled,
            srun_args=experiment.resources.srun_args,
            setup=env.setup,
            teardown=env.teardown,
            variables=env.vars,
        )
    )
    findings = preflight(experiment, snapshot, size) if snapshot is not None else ()
    return JobPlan(experiment, directives, script, findings, size)


def point_lines(points: Sequence[Sequence[str]]) -> Iterator[str]:
    """``points.jsonl``, line by line: plain ASCII, so that a shell's here-document carries it too."""
    for index, overrides in enumerate(points):
        yield json.dumps({"index": index, "overrides": list(overrides)})


#: Variables of a surrounding job that srun would read as a second, contradicting request.
_EXCLUSIVE = {
    "SLURM_MEM_PER_CPU": "mem-per-cpu",
    "SLURM_MEM_PER_GPU": "mem-per-gpu",
    "SLURM_MEM_PER_NODE": "mem",
    "SLURM_CPUS_PER_GPU": "cpus-per-gpu",
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
    "SLURM_GPUS_PER_TASK": "gpus-per-task",
}


def _python_path(experiment: Experiment, code_dir: str) -> list[str]:
    """Where Python looks first: beside the app's own file, as it does by itself, then in the code of the run."""
    words = experiment.payload.command
    script = experiment.payload.kind == "function" and words and words[0].endswith(".py")
    return [*([words[0].rpartition("/")[0] or "."] if script else []), code_dir]


def folder_name(name: str) -> str:
    """A job's name as part of a file's: no slash, no blank, not hidden, no option, and short enough for every file system."""
    kept = "".join(character if character.isalnum() or character in "._-" else "_" for character in name)
    return kept.lstrip(".-").encode()[:80].decode(errors="ignore") or "run"


def _output(experiment: Experiment, place: Place, array: int | None) -> str:
    """Where the batch script's own output goes.

    slurmd opens this file before the script runs, so its folder has to exist already: the point's log
    in a run folder, the submission folder for a script that is submitted by hand. All tasks of an array
    share one file for what slurmd itself says; each task's own output goes to its point's log.
    """
    if place.run_dir is None:
        folder = place.cwd.replace("%", "%%")
        return f"{folder}/{folder_name(experiment.name)}-{'%A_%a' if array else '%j'}.log"
    run_dir = place.run_dir.replace("%", "%%")
    return f"{run_dir}/array-%A.log" if array else f"{run_dir}/points/0/0/log"
