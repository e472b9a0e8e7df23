"""What has become of a run, ending it, and waiting for its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from slurmkit.errors import RunNotFoundError, SlurmUnavailableError
from slurmkit.launch.jobs import jobs_of, kept_jobs
from slurmkit.launch.ledger import PointStatus
from slurmkit.launch.states import UNFINISHED, TaskState, job_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.jobs import Jobs
    from slurmkit.launch.ledger import Run
    from slurmkit.launch.lives import Life

__all__ = ["cancel_run", "is_live", "kept_status", "run_status", "summary", "wait_for"]


def run_status(run: Run, client: SlurmClient, point: int | None = None) -> list[PointStatus]:
    """The state of every point of a run, by its newest submission.

    What Slurm says is kept in the run folder once it is final, since Slurm forgets (without accounting,
    after MinJobAge). Of a job that ended unseen the batch script's own record tells what it can; one
    without a record is LOST.

    Args:
        run: the run.
        client: how Slurm is asked.
        point: the only point to tell of; ``None`` for all of them.

    Raises:
        ConfigError: if the run was submitted to another cluster than the one that is asked.
        RunNotFoundError: if it has no such point.
    """
    jobs, statuses = _seen(run, client)
    return _of_point(run, [statuses[name] for _, name in sorted(jobs.newest.items())], point)


def kept_status(run: Run, point: int | None = None) -> list[PointStatus]:
    """The state of every point as far as the run folder alone knows it: UNKNOWN where no end is kept there.

    Args:
        run: the run.
        point: the only point to tell of; ``None`` for all of them.

    Raises:
        RunNotFoundError: if it has no such point.
    """
    jobs = kept_jobs(run)
    return _of_point(
        run, [_status(jobs, name, asked=False) for _, name in sorted(jobs.newest.items())], point
    )


def _seen(run: Run, client: SlurmClient) -> tuple[Jobs, dict[str, PointStatus]]:
    """The status of every job and array task of a run, by its id; what is final is kept."""
    jobs = jobs_of(run, client)
    statuses = {name: _status(jobs, name) for name in jobs.points}
    final = {name: item for name, item in statuses.items() if item.source in _SLURM and not is_live(item)}
    run.keep_ended(final)
    return jobs, statuses


def _status(jobs: Jobs, name: str, *, asked: bool = True) -> PointStatus:
    """What is known of one job or task: what Slurm says, else what it once said, else what the batch script wrote."""
    point, state, kept = jobs.points[name], jobs.states.get(name), jobs.ended.get(name)
    life = jobs.lives.get((name.partition("_")[0], point))
    if state is not None and state.source:
        return _told(point, state)
    is_last = life is None or kept is None or life.restart <= kept.restarts  # else somebody requeued it since
    if kept is not None and is_last:
        return kept
    silence = _SILENT if not asked else _FORGOTTEN if state is None else _UNTOLD
    return _from_life(point, name, life, silence)


def _of_point(run: Run, statuses: list[PointStatus], point: int | None) -> list[PointStatus]:
    if point is None:
        return statuses
    found = [status for status in statuses if status.point == point]
    if not found:
        last = max((status.point for status in statuses), default=-1)
        has = f"it has {len(statuses)}, the last is {last}" if statuses else "no submission is recorded"
        raise RunNotFoundError(
            f"no point {point} of {run.id}: {has}", f"see them with: slurmkit status {run.word}"
        )
    return found


_SLURM = frozenset({"squeue", "sacct"})


def is_live(status: PointStatus) -> bool:
    """Whether Slurm says that this job has not ended for good; a record that says STOPPED does not."""
    return status.source in _SLURM and status.state in UNFINISHED


def _told(point: int, state: TaskState) -> PointStatus:
    # squeue goes on to show what a cancelled job waited for.
    stale = state.source == "squeue" and state.state in {"COMPLETED", "CANCELLED"}
    reason = "" if stale else state.reason
    return PointStatus(point, state.name, state.state, reason, state.nodes, state.restarts, state.source)


class _Silence(NamedTuple):
    """Why Slurm tells nothing of a job, in words."""

    state: str
    """Of a job that left no record of its end."""
    of_job: str
    of_cause: str


_FORGOTTEN = _Silence("LOST", "Slurm does not know it", "Slurm has forgotten why")
_UNTOLD = _Silence(
    "LOST",
    "slurmctld has forgotten it, accounting does not answer",
    "slurmctld has forgotten why, and accounting does not answer",
)
_SILENT = _Silence("UNKNOWN", "slurmctld does not answer", "slurmctld does not answer")


def _from_life(point: int, name: str, life: Life | None, silence: _Silence) -> PointStatus:
    """What the batch script's own record tells, and why Slurm does not."""
    restarts = 0 if life is None else life.restart
    if life is None or life.exit is None:
        left = "it left no record" if life is None else "it began, and left no record of its end"
        reason = f"{silence.of_job}, and {left}"
        return PointStatus(point, name, silence.state, reason, "", restarts, "none")
    if life.terminated:
        # Cancelled, out of time, or requeued and then cancelled while it waited: nobody remembers which.
        reason = f"SIGTERM came, exit code {life.exit}; {silence.of_cause}"
        return PointStatus(point, name, "STOPPED", reason, "", restarts, "lives")
    state, reason = ("COMPLETED", "") if life.exit == 0 else ("FAILED", f"exit code {life.exit}")
    return PointStatus(point, name, state, reason, "", restarts, "lives")


def cancel_run(run: Run, client: SlurmClient, point: int | None = None) -> list[str]:
    """End what has not ended of a run, for good, and keep that in the run folder: older submissions too.

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
    jobs, statuses = _seen(run, client)
    _of_point(run, [statuses[name] for name in jobs.newest.values()], point)
    live = [item for item in statuses.values() if is_live(item) and point in {None, item.point}]
    names = [status.job for status in live]
    ended = job_ids(names) if point is None else names
    if ended:
        client.cancel(ended)
        ends = {
            item.job: replace(item, state="CANCELLED", reason="", source="slurmkit cancel") for item in live
        }
        run.keep_ended(ends)
    return ended


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
