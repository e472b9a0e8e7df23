"""``compile_job``: an experiment and what is known of the cluster become a plan. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmkit import __version__
from slurmkit.compiler.directives import Directives, job_directives, render
from slurmkit.compiler.preflight import Finding, Verdict, preflight
from slurmkit.compiler.script import ScriptParts, render_script

if TYPE_CHECKING:
    from slurmkit.cluster.model import ClusterSnapshot
    from slurmkit.config.schema import Experiment

__all__ = ["JobPlan", "Place", "compile_job"]


@dataclass(frozen=True)
class Place:
    """The folders that a script names.

    Args:
        cwd: where it is submitted from, absolute.
        run_dir: the run folder, absolute; ``None`` in a script for submitting by hand, which then makes
            one a job below ``cwd``.
        code_dir: the snapshot that the job runs from; ``cwd`` where there is none.
        output: the file for the batch script's output; by default one in the run folder.
    """

    cwd: str
    run_dir: str | None = None
    code_dir: str | None = None
    output: str | None = None


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
    array: int | None = None,
    *,
    points: bool = False,
) -> JobPlan:
    """Compile one job.

    Args:
        experiment: what to run, and what to ask of Slurm.
        snapshot: the cluster to check against; ``None`` compiles without any findings.
        place: the folders that the script names.
        array: the size of the job array; ``None`` for a single run.
        points: whether each task of the array takes its overrides from ``points.jsonl``.
    """
    directives = job_directives(experiment, place.output or _output(experiment, place, array), array)
    payload, env = experiment.payload, experiment.env
    script = render_script(
        ScriptParts(
            name=experiment.name,
            version=__version__,
            directives=render(directives),
            run_dir=place.run_dir
            or f"{_below(place.cwd, experiment.runs_dir)}/{_folder_name(experiment.name)}",
            by_hand=place.run_dir is None,
            array=array is not None,
            points=points,
            code_dir=place.code_dir or place.cwd,
            python=env.python or sys.executable,
            argv=payload.command,
            interpreted=payload.kind != "command",
            hydra_function=payload.kind == "function",
            srun_args=experiment.resources.srun_args,
            setup=env.setup,
            teardown=env.teardown,
            variables=env.vars,
        )
    )
    findings = preflight(experiment, snapshot) if snapshot is not None else ()
    return JobPlan(experiment, directives, script, findings, array)


def _below(cwd: str, folder: str) -> str:
    return folder if folder.startswith("/") else f"{cwd}/{folder}"


def _folder_name(name: str) -> str:
    """A job's name as part of a folder's: no slash, no blank, no hidden folder."""
    return (
        "".join(character if character.isalnum() or character in "._-" else "_" for character in name).lstrip(
            "."
        )
        or "run"
    )


def _output(experiment: Experiment, place: Place, array: int | None) -> str:
    """Where the batch script's own output goes.

    slurmd opens this file before the script runs, so its folder has to exist already: the point's log
    in a run folder, the submission folder for a script that is submitted by hand. All tasks of an array
    share one file for what slurmd itself says; each task's own output goes to its point's log.
    """
    if place.run_dir is None:
        folder = place.cwd.replace("%", "%%")
        return f"{folder}/{_folder_name(experiment.name).replace('%', '%%')}-{'%A_%a' if array else '%j'}.log"
    run_dir = place.run_dir.replace("%", "%%")
    return f"{run_dir}/array-%A.log" if array else f"{run_dir}/points/0/0/log"
