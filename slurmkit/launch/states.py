"""How Slurm says that a job is: one batched question, answered with or without accounting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmkit.errors import SlurmUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmkit.cluster.client import SlurmClient

__all__ = ["UNFINISHED", "TaskState", "job_ids", "queued", "task_states"]

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
    """Who says so. Nobody (empty, and so is the state) where slurmctld has forgotten it and accounting does not answer."""
    made_from: str = ""
    """The script's path (squeue) or the job's name (sacct): a job id may have been issued again since."""

    @property
    def name(self) -> str:
        """The id that names exactly this task, such as ``12_3``."""
        return self.job_id if self.task is None else f"{self.job_id}_{self.task}"


def task_states(client: SlurmClient, names: Sequence[str]) -> dict[str, TaskState]:
    """The state of each of these jobs and array tasks that Slurm still knows.

    ``squeue`` is asked first, since it knows what runs now; ``sacct``, where a site has it, fills in what
    the queue has forgotten (it forgets the tasks of an array one by one). Where accounting does not answer, such a
    job has a state that nobody tells (``source`` is empty).

    Args:
        client: how Slurm is asked; at most twice, whatever the number of names.
        names: ``12`` for a job and for all tasks of an array, ``12_3`` for one of them.

    Returns:
        State by name.
    """
    wanted = set(names)

    def asked(states: Iterable[TaskState | None]) -> dict[str, TaskState]:
        return {item.name: item for item in states if item and (item.name in wanted or item.job_id in wanted)}

    found = asked(map(_from_queue, client.queue(job_ids(names))))
    forgotten = wanted.difference(found, (state.job_id for state in found.values()))
    if not forgotten:
        return found
    try:
        return asked(map(_from_history, client.history(job_ids(forgotten)))) | found
    except SlurmUnavailableError:
        return {name: _untold(name) for name in forgotten} | found


def queued(client: SlurmClient, job_id: str) -> TaskState | None:
    """What the queue knows by this id, which may be that of one task beside the id of its array."""
    return next(map(_from_queue, client.queue([job_id])), None)


def job_ids(names: Iterable[str]) -> list[str]:
    """The jobs and whole arrays that these tasks are of."""
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


def _untold(name: str) -> TaskState:
    job_id, _, task = name.partition("_")
    return TaskState(job_id, int(task) if task else None, state="", source="")


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
