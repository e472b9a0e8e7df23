"""What has become of submitted jobs: one batched question, answered with or without accounting."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurmkit.errors import ConfigError, SlurmUnavailableError
from slurmkit.launch.ledger import Attempt, PointStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import Run

__all__ = ["UNFINISHED", "TaskState", "cancel_run", "run_status", "task_states"]

#: States of a job that has not ended for good. (A preempted job that comes back is PENDING at once; one that
#: stays PREEMPTED was not to be requeued.)
UNFINISHED = frozenset(
    {
        "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED", "REQUEUED",
        "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "UNKNOWN", "READY",
    }
)  # fmt: skip


@dataclass(frozen=True)
class TaskState:
    """One job or array task, as Slurm knows it now."""

    job_id: str
    """Of the job, or of the whole array."""
    task: int | None
    """The array index; ``None`` for a job that is no array."""
    state: str
    reason: str = ""
    nodes: str = ""
    restarts: int = 0
    source: str = "squeue"
    made_from: str = ""
    """The script's path (squeue) or the job's name (sacct): a job id may have been issued again since."""

    @property
    def name(self) -> str:
        """The id that names exactly this task, such as ``12_3``."""
        return self.job_id if self.task is None else f"{self.job_id}_{self.task}"


def task_states(client: SlurmClient, names: Sequence[str]) -> dict[str, TaskState]:
    """The state of each of these jobs and array tasks that Slurm still knows.

    ``squeue`` is asked first, since it knows what runs now; ``sacct``, where a site has it, fills in what
    the queue has forgotten (it forgets the tasks of an array one by one).

    Args:
        client: how Slurm is asked; at most twice, whatever the number of names.
        names: ``12`` for a job, ``12_3`` for an array task.

    Returns:
        State by name.
    """
    wanted = set(names)
    found = {
        state.name: state for state in map(_from_queue, client.queue(_job_ids(names))) if state.name in wanted
    }
    forgotten = [name for name in names if name not in found]
    if forgotten:
        for state in filter(None, map(_from_history, client.history(_job_ids(forgotten)) or [])):
            if state.name in wanted:
                found.setdefault(state.name, state)
    return found


def _job_ids(names: Sequence[str]) -> list[str]:
    return sorted({name.partition("_")[0] for name in names}, key=int)


def _from_queue(record: Mapping[str, str]) -> TaskState:
    task, restarts = record["ArrayTaskID"], record["RestartCnt"]
    return TaskState(
        job_id=record["ArrayJobID"],
        task=int(task) if task.isdecimal() else None,
        state=record["State"],
        reason="" if record["Reason"] == "None" else record["Reason"],
        nodes=record["NodeList"],
        restarts=int(restarts) if restarts.isdecimal() else 0,
        made_from=record["Command"],
    )


def _from_history(record: Mapping[str, str]) -> TaskState | None:
    job_id, _, task = record["JobID"].partition("_")
    if not job_id.isdecimal() or (task and not task.isdecimal()):
        return None  # a step, or tasks that sacct still folds: 12_[3-9]
    # "CANCELLED by 1000" is the state and who did it.
    state, _, reason = record["State"].partition(" ")
    nodes = record.get("NodeList", "").replace("None assigned", "")
    return TaskState(
        job_id,
        int(task) if task else None,
        state,
        reason,
        nodes,
        source="sacct",
        made_from=record.get("JobName", ""),
    )


def run_status(run: Run, client: SlurmClient) -> list[PointStatus]:
    """The state of every point of a run, by its newest submission.

    What Slurm says is kept in the run folder once it is final, since Slurm forgets (without accounting,
    after MinJobAge). Of a job that ended unseen the batch script's exit record tells what it can; one
    without a record is LOST.

    Raises:
        ConfigError: if the run was submitted to another cluster than the one that is asked.
    """
    if not run.attempts():
        _adopt(run, client)
    newest: dict[int, str] = {}
    for attempt in run.attempts():
        for index, point in enumerate(attempt.tasks):
            newest[point] = attempt.job_id if attempt.points is None else f"{attempt.job_id}_{index}"
    if not newest:
        return []
    _same_cluster(run.attempts()[-1].cluster, client.cluster())
    states = {
        name: state
        for name, state in task_states(client, list(newest.values())).items()
        if _is_of(run, state)
    }
    known, exits = run.ended(), run.exits()
    statuses = [
        _live(point, states[name])
        if name in states
        else known.get(name) or _from_exit(point, name, exits.get(point))
        for point, name in sorted(newest.items())
    ]
    run.keep_ended(
        {
            item.job: item
            for item in statuses
            if item.source in {"squeue", "sacct"} and item.state not in UNFINISHED
        }
    )
    return statuses


def _adopt(run: Run, client: SlurmClient) -> None:
    """Record the job of a run whose submission was killed before it could: Slurm knows it by its script."""
    job_id = client.job_of(str(run.path / "job.sbatch"))
    if job_id is not None:
        points = run.points()
        run.add_attempt(
            Attempt(client.cluster(), job_id, time.time(), tuple(range(len(points))) if points else None)
        )


def _same_cluster(submitted: str, asked: str) -> None:
    if submitted and submitted != asked:
        raise ConfigError(
            f"this run was submitted to the cluster {submitted!r}; SLURM_CONF points at {asked!r}",
            f"set SLURM_CONF to the slurm.conf of {submitted}",
        )


def _is_of(run: Run, state: TaskState) -> bool:
    """Whether this job was made from the run's script: ids are issued again, and belong to somebody else then."""
    script = str(run.path / "job.sbatch")
    if state.source == "sacct":
        # A job that was over before slurmdbd heard of its start is called "allocation" there.
        return state.made_from in {"", "allocation", run.manifest.get("name")}
    return script.startswith(state.made_from)  # squeue cuts long paths


def _live(point: int, state: TaskState) -> PointStatus:
    return PointStatus(
        point, state.name, state.state, state.reason, state.nodes, state.restarts, state.source
    )


def _from_exit(point: int, name: str, record: Mapping[str, Any] | None) -> PointStatus:
    if record is None or record["job"] != name.partition("_")[0]:
        return PointStatus(point, name, "LOST", "Slurm has forgotten it and it left no record", "", 0, "none")
    restarts, code = int(record["restart"]), int(record["exit"])
    if record.get("term"):
        # Cancelled, out of time, or requeued and then cancelled while it waited: nobody remembers which.
        reason = f"SIGTERM came, exit code {code}; Slurm has forgotten why"
        return PointStatus(point, name, "STOPPED", reason, "", restarts, "exits")
    state, reason = ("COMPLETED", "") if code == 0 else ("FAILED", f"exit code {code}")
    return PointStatus(point, name, state, reason, "", restarts, "exits")


def cancel_run(run: Run, client: SlurmClient) -> list[str]:
    """End what has not ended of a run, for good, and keep that in the run folder.

    Returns:
        The ids of the jobs that were cancelled.
    """
    live = [status for status in run_status(run, client) if status.state in UNFINISHED]
    jobs = _job_ids([status.job for status in live])
    if jobs:
        client.cancel(jobs)
        ends = {
            item.job: replace(item, state="CANCELLED", reason="", source="slurmkit cancel") for item in live
        }
        run.keep_ended(ends)
    return jobs


def summary(statuses: Iterable[PointStatus]) -> dict[str, int]:
    """How many points are in which state, most first."""
    counts: dict[str, int] = {}
    for status in statuses:
        counts[status.state] = counts.get(status.state, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def wait_for(run: Run, client: SlurmClient, pause: Any, patience: int = 20) -> list[PointStatus]:
    """Wait until every point of a run has ended.

    Args:
        run: the run.
        client: how Slurm is asked.
        pause: ``time.sleep``; called with seconds that grow from 1 to 30.
        patience: how many times in a row slurmctld may be unreachable before that is an error.
    """
    seconds, failures = 1.0, 0
    while True:
        try:
            statuses = run_status(run, client)
        except SlurmUnavailableError:
            failures += 1
            if failures > patience:
                raise
        else:
            failures = 0
            if all(status.state.rstrip("+") not in UNFINISHED for status in statuses):
                return statuses
        pause(seconds)
        seconds = min(seconds * 1.5, 30.0)
