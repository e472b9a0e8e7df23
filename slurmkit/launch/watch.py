"""What has become of submitted jobs: one batched question, answered with or without accounting."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from slurmkit.errors import SlurmUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import Run

__all__ = ["UNFINISHED", "PointStatus", "TaskState", "run_status", "task_states"]

#: States of a job that has not ended for good. A preempted or requeued one comes back.
UNFINISHED = frozenset(
    {
        "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED", "REQUEUED",
        "REQUEUE_FED", "REQUEUE_HOLD", "PREEMPTED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "UNKNOWN", "READY",
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
    )


def _from_history(record: Mapping[str, str]) -> TaskState | None:
    job_id, _, task = record["JobID"].partition("_")
    if not job_id.isdecimal() or (task and not task.isdecimal()):
        return None  # a step, or tasks that sacct still folds: 12_[3-9]
    # "CANCELLED by 1000" is the state and who did it.
    state, _, reason = record["State"].partition(" ")
    nodes = record.get("NodeList", "").replace("None assigned", "")
    return TaskState(job_id, int(task) if task else None, state, reason, nodes, source="sacct")


@dataclass(frozen=True)
class PointStatus:
    """One point of a run; a single run is point 0."""

    point: int
    job: str
    state: str
    reason: str
    nodes: str
    restarts: int
    source: str
    """Who says so: ``squeue``, ``sacct`` or the run's own ``exits`` records."""

    def as_json(self) -> dict[str, Any]:
        """The status as plain values."""
        return asdict(self)


def run_status(run: Run, client: SlurmClient) -> list[PointStatus]:
    """The state of every point of a run, by its newest submission.

    Where Slurm has forgotten a job and keeps no accounting, the exit record that the batch script wrote
    says how it ended; a job without one, and unknown to Slurm, is LOST.
    """
    newest: dict[int, str] = {}
    for attempt in run.attempts():
        for index, point in enumerate(attempt.tasks):
            newest[point] = attempt.job_id if attempt.points is None else f"{attempt.job_id}_{index}"
    states = task_states(client, list(newest.values())) if newest else {}
    exits = run.exits()
    return [
        _point_status(point, name, states.get(name), exits.get(point))
        for point, name in sorted(newest.items())
    ]


def _point_status(
    point: int, name: str, live: TaskState | None, ended: Mapping[str, Any] | None
) -> PointStatus:
    mine = ended if ended is not None and ended["job"] == name.partition("_")[0] else None
    restarts = int(mine["restart"]) if mine else 0
    if live is not None:
        return PointStatus(
            point, name, live.state, live.reason, live.nodes, max(restarts, live.restarts), live.source
        )
    if mine is None:
        return PointStatus(point, name, "LOST", "Slurm has forgotten it and it left no record", "", 0, "none")
    state = "COMPLETED" if mine["exit"] == 0 else "FAILED"
    reason = "" if mine["exit"] == 0 else f"exit code {mine['exit']}"
    return PointStatus(point, name, state, reason, "", restarts, "exits")


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
