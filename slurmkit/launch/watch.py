"""What has become of a run, ending it, and waiting for its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurmkit.errors import RunNotFoundError, SlurmUnavailableError
from slurmkit.launch.jobs import jobs_of
from slurmkit.launch.ledger import PointStatus
from slurmkit.launch.states import UNFINISHED, TaskState, job_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import Run

__all__ = ["cancel_run", "is_live", "run_status", "summary", "wait_for"]


def run_status(run: Run, client: SlurmClient, point: int | None = None) -> list[PointStatus]:
    """The state of every point of a run, by its newest submission.

    What Slurm says is kept in the run folder once it is final, since Slurm forgets (without accounting,
    after MinJobAge). Of a job that ended unseen the batch script's exit record tells what it can; one
    without a record is LOST.

    Args:
        run: the run.
        client: how Slurm is asked.
        point: the only point to tell of; ``None`` for all of them.

    Raises:
        ConfigError: if the run was submitted to another cluster than the one that is asked.
        RunNotFoundError: if it has no such point.
    """
    newest, states = jobs_of(run, client)
    known, exits = run.ended(), run.exits()

    def status(number: int, name: str) -> PointStatus:
        state = states.get(name)
        if state is not None and state.source:
            return _told(number, state)
        record = exits.get((name.partition("_")[0], number))
        return known.get(name) or _from_exit(number, name, record, accounting_is_away=state is not None)

    statuses = [status(number, name) for number, name in sorted(newest.items())]
    run.keep_ended(
        {item.job: item for item in statuses if item.source in _SLURM and item.state not in UNFINISHED}
    )
    if point is None:
        return statuses
    if point not in newest:
        raise RunNotFoundError(
            f"no point {point} of {run.id}: "
            + (f"it has {len(newest)}, the last is {max(newest)}" if newest else "no submission is recorded"),
            f"see them with: slurmkit status {run.word}",
        )
    return [status for status in statuses if status.point == point]


_SLURM = frozenset({"squeue", "sacct"})


def is_live(status: PointStatus) -> bool:
    """Whether Slurm says that this job has not ended for good; an exit record that says STOPPED does not."""
    return status.source in _SLURM and status.state in UNFINISHED


def _told(point: int, state: TaskState) -> PointStatus:
    # squeue goes on to show what a cancelled job waited for.
    stale = state.source == "squeue" and state.state in {"COMPLETED", "CANCELLED"}
    reason = "" if stale else state.reason
    return PointStatus(point, state.name, state.state, reason, state.nodes, state.restarts, state.source)


def _from_exit(
    point: int, name: str, record: Mapping[str, Any] | None, *, accounting_is_away: bool
) -> PointStatus:
    """What the batch script's own record tells; where accounting may know more later, that is said."""
    if record is None:
        forgot = "Slurm does not know it"
        if accounting_is_away:
            forgot = "slurmctld has forgotten it, accounting does not answer"
        return PointStatus(point, name, "LOST", f"{forgot}, and it left no record", "", 0, "none")
    restarts, code = int(record["restart"]), int(record["exit"])
    if record.get("term"):
        # Cancelled, out of time, or requeued and then cancelled while it waited: nobody remembers which.
        forgot = "slurmctld has forgotten why, and accounting does not answer"
        why = forgot if accounting_is_away else "Slurm has forgotten why"
        reason = f"SIGTERM came, exit code {code}; {why}"
        return PointStatus(point, name, "STOPPED", reason, "", restarts, "exits")
    state, reason = ("COMPLETED", "") if code == 0 else ("FAILED", f"exit code {code}")
    return PointStatus(point, name, state, reason, "", restarts, "exits")


def cancel_run(run: Run, client: SlurmClient, point: int | None = None) -> list[str]:
    """End what has not ended of a run, for good, and keep that in the run folder.

    Args:
        run: the run.
        client: how Slurm is asked.
        point: the only point to end; ``None`` for all of them.

    Returns:
        The ids of the jobs (of the one task) that were cancelled.

    Raises:
        ConfigError: as ``run_status``.
        RunNotFoundError: as ``run_status``.
    """
    live = [status for status in run_status(run, client, point) if is_live(status)]
    names = [status.job for status in live]
    jobs = job_ids(names) if point is None else names
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


def wait_for(
    run: Run,
    client: SlurmClient,
    pause: Callable[[float], object],
    patience: int = 20,
    say: Callable[[str], None] | None = None,
) -> list[PointStatus]:
    """Wait until every point of a run has ended.

    Args:
        run: the run.
        client: how Slurm is asked.
        pause: ``time.sleep``; called with seconds that grow from 1 to 30.
        patience: how many times in a row slurmctld may be unreachable before that is an error.
        say: hears once that slurmctld does not answer.
    """
    seconds, failures = 1.0, 0
    while True:
        try:
            statuses = run_status(run, client)
        except SlurmUnavailableError as error:
            failures += 1
            if failures > patience:
                raise
            if failures == 1 and say is not None:
                say(f"{error}; waiting for it")
        else:
            failures = 0
            if not any(map(is_live, statuses)):
                return statuses
        pause(seconds)
        seconds = min(seconds * 1.5, 30.0)
