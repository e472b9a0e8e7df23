"""Which job belongs to a run. An id alone names none: another cluster has it too, and it is issued again."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from slurmkit.compiler.plan import folder_name
from slurmkit.errors import ConfigError
from slurmkit.launch.ledger import Attempt
from slurmkit.launch.states import TaskState, task_states

if TYPE_CHECKING:
    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import Run

__all__ = ["adopt", "jobs_of"]

#: How the folder of a run begins in its script, and how a script submitted by hand ends it.
_RUN_DIR = "export SLURMKIT_RUN_DIR="
_JOB_ID = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"


def jobs_of(run: Run, client: SlurmClient) -> tuple[dict[int, str], dict[str, TaskState]]:
    """The jobs of a run, and what Slurm still knows of them.

    Args:
        run: the run.
        client: how Slurm is asked.

    Returns:
        The id of each point's job or array task by its newest submission (``12``, ``12_3``), and by id the
        states of those that are this run's.

    Raises:
        ConfigError: if the run was submitted to another cluster than the one that is asked.
    """
    if run.by_hand:
        return _by_hand(run, run.by_hand, client)
    newest: dict[int, str] = {}
    for attempt in adopt(run, client):
        for index, point in enumerate(attempt.tasks):
            newest[point] = attempt.job_id if attempt.points is None else f"{attempt.job_id}_{index}"
    if not newest:
        return {}, {}
    called = run.manifest.get("name")

    def is_ours(state: TaskState) -> bool:
        return _is_called(state, called) if state.source == "sacct" else _is_made_by(run, state)

    states = task_states(client, list(newest.values()))
    return newest, {name: state for name, state in states.items() if is_ours(state)}


def _by_hand(run: Run, job_id: str, client: SlurmClient) -> tuple[dict[int, str], dict[str, TaskState]]:
    """A run whose script a person gave to sbatch: nobody has written down which tasks it has."""
    begun = [f"{job_id}_{point}" for point in run.started() if (run.point_dir(point) / "log").exists()]
    known = {job_id, *begun, *run.ended()}  # a single run has its log elsewhere
    states = task_states(client, sorted(known))
    if any(state.source == "squeue" for state in states.values()) and not _script_names(run, job_id, client):
        states = {name: state for name, state in states.items() if state.source != "squeue"}
    own = run.id.removesuffix(f"-{job_id}")
    states = {
        name: state for name, state in states.items() if state.source == "squeue" or _is_called(state, own)
    }
    tasks = {int(name.partition("_")[2]): name for name in known.union(states) if "_" in name}
    return tasks or {0: job_id}, states


def _is_made_by(run: Run, state: TaskState) -> bool:
    """Whether a job was made from the script of this run, whose id no other has: paths lead there by many names."""
    cut = str(run.path / "job.sbatch").startswith(state.made_from)  # as squeue does with long ones
    return cut or Path(state.made_from).parent.name == run.id


def _is_called(state: TaskState, name: str | None) -> bool:
    """Whether the accounting knows a job by this name, which it may not have heard yet."""
    return state.made_from in ("", "allocation", name) or folder_name(state.made_from) == name


def _script_names(run: Run, job_id: str, client: SlurmClient) -> bool:
    """Whether the script that Slurm keeps with the job names this folder as its own."""
    script = client.script(job_id) or ""
    lines = [line for line in script.splitlines() if line.startswith(_RUN_DIR)]
    if not lines:
        return False
    try:
        words = shlex.split(lines[0].removeprefix(_RUN_DIR), comments=True)
    except ValueError:  # edited, and no shell would read it
        return False
    folder = "".join(words[:1]).replace(_JOB_ID, job_id)
    edited = Template(folder).safe_substitute(os.environ, SLURM_JOB_ID=job_id, SLURM_ARRAY_JOB_ID=job_id)
    with contextlib.suppress(OSError):  # a place that is not there, or that we may not look into
        return any(Path(path).exists() and run.path.samefile(Path(path)) for path in (folder, edited) if path)
    return False


def adopt(run: Run, client: SlurmClient) -> list[Attempt]:
    """All submissions of a run, after those that are not recorded yet are.

    Their submission was killed before it could, or its script was submitted again by hand. Slurm knows such a job by
    the script, and what has ended in this folder is its own.

    Args:
        run: one that was submitted.
        client: how Slurm is asked.

    Returns:
        The submissions, oldest first.

    Raises:
        ConfigError: if the run was submitted to another cluster than the one that is asked.
    """
    known, cluster = run.attempts(), client.cluster()
    if known:
        _same_cluster(known[-1].cluster, cluster)
    scripts = {str(path / "job.sbatch") for path in (run.path, run.path.resolve())}
    found = {job for script in scripts for job in client.jobs_made_from(script)}
    found |= {job.partition("_")[0] for job, _ in run.exits()}
    # What is older than the newest that we know of supersedes nothing.
    last = max((int(attempt.job_id) for attempt in known), default=-1)
    unknown = sorted((job_id for job_id in found if int(job_id) > last), key=int)
    points = tuple(range(len(run.points()))) or None
    new = [Attempt(cluster, job_id, time.time(), points) for job_id in unknown]
    with contextlib.suppress(OSError):  # in a folder that may only be read, the next one asks again
        for attempt in new:
            run.add_attempt(attempt)
    return [*known, *new]


def _same_cluster(submitted: str, asked: str) -> None:
    if submitted and submitted != asked:
        raise ConfigError(
            f"this run was submitted to the cluster {submitted!r}; SLURM_CONF points at {asked!r}",
            f"set SLURM_CONF to the slurm.conf of {submitted}",
        )
