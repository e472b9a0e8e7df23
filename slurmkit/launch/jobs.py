"""Which jobs belong to a run, and which is each point's. An id alone names none: another cluster has it too, and it is issued again."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from slurmkit.cluster.client import COMMAND_WIDTH
from slurmkit.compiler.plan import folder_name
from slurmkit.errors import ConfigError
from slurmkit.launch.lives import newest_lives
from slurmkit.launch.states import UNFINISHED, TaskState, job_ids, task_states

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import Attempt, Run
    from slurmkit.launch.lives import Life

__all__ = ["Jobs", "is_made_by", "jobs_made_by", "jobs_of", "kept_jobs"]

#: How the folder of a run begins in its script, and how a script submitted by hand ends it.
_RUN_DIR = "export SLURMKIT_RUN_DIR="
_JOB_ID = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"


@dataclass(frozen=True)
class Jobs:
    """The jobs of a run, and what Slurm still knows of them."""

    newest: Mapping[int, str]
    """By point, the id of its job or array task (``12``, ``12_3``): the one that lives, else the last submitted."""
    states: Mapping[str, TaskState]
    """By that id, the states of those that are this run's; of points that were submitted again, of older ones too."""
    points: Mapping[str, int]
    """The point of each of them."""
    lives: Mapping[tuple[str, int], Life]
    """What the batch scripts wrote, by job and point."""


def jobs_of(run: Run, client: SlurmClient) -> Jobs:
    """The jobs of a run: those that are recorded, those that left something in its folder, and those that Slurm has.

    A submission may have been killed before its record, and a person may submit the script again. Such a job has
    the tasks that are seen of it. The run folder is only read.

    Args:
        run: the run.
        client: how Slurm is asked.

    Raises:
        ConfigError: if the run was submitted to another cluster than the one that is asked.
    """
    cluster, lives, attempts = client.cluster(), run.lives(), run.attempts()
    named = [attempt.cluster for attempt in attempts] + [life.cluster for life in lives]
    _check_cluster(run, cluster, named)
    lives = [life for life in lives if life.cluster in {cluster, ""}]
    attempts = [attempt for attempt in attempts if attempt.cluster == cluster]
    if run.by_hand:
        return _by_hand(run, run.by_hand, client, lives)
    points = _points(run, attempts, lives)
    began = dict.fromkeys(job_ids(points), 0.0) | jobs_made_by(run, client) | _began(attempts, lives)
    if not began:
        return Jobs({}, {}, {}, {})
    called = run.manifest.get("name")
    asked = [*points, *sorted(began.keys() - job_ids(points))]
    states = {
        name: state for name, state in task_states(client, asked).items() if _is_ours(run, state, called)
    }
    for name, state in states.items():  # also what no record has, of a job that is seen in the queue alone
        if state.source:
            points.setdefault(name, (state.task or 0) if run.is_sweep else 0)
    order = sorted(points, key=lambda name: (_is_live(states.get(name)), began[name.partition("_")[0]]))
    return Jobs({points[name]: name for name in order}, states, points, newest_lives(lives))


def _began(attempts: Iterable[Attempt], lives: Iterable[Life]) -> dict[str, float]:
    """When each job was submitted, or began first where that is not recorded."""
    began: dict[str, float] = {}
    for life in lives:
        began[life.job] = min(life.began, began.get(life.job, life.began))
    return began | {attempt.job_id: attempt.submitted_at for attempt in attempts}


def _points(run: Run, attempts: Iterable[Attempt], lives: Iterable[Life]) -> dict[str, int]:
    """The point of each job or array task that is written down.

    One that ended before it began is in no other record than that of its end, and supersedes nothing.
    """
    points = {name: status.point for name, status in run.ended().items()}
    for attempt in attempts:
        for index, point in enumerate(attempt.tasks):
            points[attempt.job_id if attempt.points is None else f"{attempt.job_id}_{index}"] = point
    recorded, is_sweep = {attempt.job_id for attempt in attempts}, run.is_sweep
    unrecorded = [life for life in lives if life.job not in recorded]
    return points | {f"{life.job}_{life.point}" if is_sweep else life.job: life.point for life in unrecorded}


def kept_jobs(run: Run) -> Jobs:
    """The jobs of a run as far as its folder knows, wherever they ran."""
    lives, attempts = run.lives(), run.attempts()
    points = _points(run, attempts, lives)
    began = _began(attempts, lives)
    order = sorted(points, key=lambda name: began.get(name.partition("_")[0], 0.0))
    return Jobs({points[name]: name for name in order}, {}, points, newest_lives(lives))


def _is_live(state: TaskState | None) -> bool:
    return state is not None and state.source == "squeue" and state.state in UNFINISHED


def _by_hand(run: Run, job_id: str, client: SlurmClient, lives: Iterable[Life]) -> Jobs:
    """A run whose script a person gave to sbatch: nobody has written down which tasks it has."""
    own = [life for life in lives if life.job == job_id]
    known = {job_id, *run.ended()}
    if run.is_sweep:  # a single run has its log elsewhere
        known |= {f"{job_id}_{life.point}" for life in own}
    states = task_states(client, sorted(known))
    if any(state.source == "squeue" for state in states.values()) and not _script_names(run, job_id, client):
        states = {name: state for name, state in states.items() if state.source != "squeue"}
    called = run.id.removesuffix(f"-{job_id}")
    states = {
        name: state for name, state in states.items() if state.source == "squeue" or _is_called(state, called)
    }
    tasks = {int(name.partition("_")[2]): name for name in known.union(states) if "_" in name}
    newest = tasks or {0: job_id}
    return Jobs(newest, states, {name: point for point, name in newest.items()}, newest_lives(own))


def jobs_made_by(run: Run, client: SlurmClient) -> dict[str, float]:
    """The jobs of ours that were made from the script of a run, while Slurm knows them: when each was submitted."""
    return {job: at for job, at, command in client.own_jobs() if is_made_by(run, command)}


def is_made_by(run: Run, command: str) -> bool:
    """Whether a job was made from the script of this run, whose id no other has: paths lead there by many names.

    Args:
        run: the run.
        command: what squeue shows, cut where it is long; behind the path stand the words that the script was given.
    """
    cut = len(command) >= COMMAND_WIDTH and str(run.path / "job.sbatch").startswith(command)
    return cut or f"/{run.id}/job.sbatch" in command


def _is_ours(run: Run, state: TaskState, called: str | None) -> bool:
    if state.source == "sacct":
        return _is_called(state, called)
    return not state.source or is_made_by(run, state.made_from)


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


def _check_cluster(run: Run, asked: str, known: list[str]) -> None:
    """Refuse a run that has nothing to do with the cluster that is asked."""
    if not known and not run.by_hand:
        known = [str((run.manifest.get("slurm") or {}).get("cluster") or "")]
    named = [name for name in known if name]
    if named and asked not in named:
        raise ConfigError(
            f"this run was submitted to the cluster {named[-1]!r}; SLURM_CONF points at {asked!r}",
            f"set SLURM_CONF to the slurm.conf of {named[-1]}",
        )
