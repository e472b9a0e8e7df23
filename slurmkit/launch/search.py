"""The run, and the point of it, that a person means by a word."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.errors import RunNotFoundError, SlurmkitError, SlurmRefusedError, SlurmUnavailableError
from slurmkit.launch.jobs import is_made_by
from slurmkit.launch.ledger import Run, is_run
from slurmkit.launch.lives import JOB
from slurmkit.launch.states import queued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import Attempt

__all__ = ["find_point"]


def find_point(word: str, runs_dir: Path, client: SlurmClient) -> tuple[Run, int | None]:
    """The run that a person means, and the point of it where the word names one.

    Args:
        word: a run folder, a run id, ``last``, a Slurm job id (``12``), or an array task's id (``12_3``).
        runs_dir: where run ids and job ids are looked for.
        client: asked of a job id that no run has recorded: the submission may have been killed before it could,
            and a task of an array has an id of its own, beside that of its array.

    Raises:
        RunNotFoundError: naming the runs that there are, or the tasks of the array.
        SlurmkitError: if the record of the run that is meant cannot be read.
    """
    if is_run(Path(word)):
        return Run(word), None
    runs = _runs(runs_dir)
    if word == "last" and runs:
        return runs[-1], None
    named = next((run for run in runs if run.id == word), None)
    if named is not None:
        return named, None
    asked = JOB.fullmatch(word)
    if asked is None:
        raise _unknown(word, runs_dir, runs, "")
    job, task = asked[1], asked[2] or ""
    unread: list[str] = []
    found = _recorded(job, task, runs, unread) or _asked(job, task, runs, client)
    if found is None:
        raise _unknown(word, runs_dir, runs, "\n".join(unread))
    return found


def _runs(runs_dir: Path) -> list[Run]:
    """All runs there, oldest first."""

    def made_at(path: Path) -> float:
        with contextlib.suppress(OSError):
            return (path / "run.json").stat().st_mtime
        with contextlib.suppress(OSError):
            return (path / "points").stat().st_mtime  # made by its script, and never changed again
        return 0.0

    return [Run(path) for path in sorted(filter(is_run, runs_dir.glob("*")), key=made_at)]


def _recorded(job: str, task: str, runs: Sequence[Run], unread: list[str]) -> tuple[Run, int | None] | None:
    """The newest run that has this job; what is said of records that cannot be read goes to ``unread``."""
    for run in reversed(runs):
        if run.by_hand == job:
            return run, _own_point(run, job, task)
        try:
            attempts = run.attempts()
        except SlurmkitError as error:
            unread.append(str(error))
            continue
        for attempt in reversed(attempts):
            if attempt.job_id == job:
                return run, _point_of(attempt, task, run)
    # One that is not recorded has left something in the folder of its run, if it has begun.
    begun = (run for run in reversed(runs) if any(life.job == job for life in run.lives()))
    return next(((run, _own_point(run, job, task)) for run in begun), None)


def _asked(job: str, task: str, runs: Sequence[Run], client: SlurmClient) -> tuple[Run, int | None] | None:
    """The run of a job that Slurm knows, though not we by this id."""
    try:
        state = queued(client, job)
    except (SlurmUnavailableError, SlurmRefusedError):
        return None
    own = state is not None and state.job_id != job  # of a task, which names nothing further
    if state is None or (own and task):
        return None
    task = str(state.task) if own else task
    found = _recorded(state.job_id, task, runs, [])
    made = next((run for run in runs if is_made_by(run, state.made_from)), None)
    return found if found or made is None else (made, _own_point(made, state.job_id, task))


def _own_point(run: Run, job: str, task: str) -> int | None:
    """The point of a task of a job that runs the script of a run as it is: its index."""
    if task and not run.is_sweep:
        raise _no_task(job, task, "is no array", run)
    return int(task) if task else None


def _point_of(attempt: Attempt, task: str, run: Run) -> int | None:
    if not task:
        return None
    tasks = () if attempt.points is None else attempt.points
    if int(task) >= len(tasks):
        has = f"has the tasks 0 to {len(tasks) - 1}" if tasks else "is no array"
        raise _no_task(attempt.job_id, task, has, run)
    return tasks[int(task)]


def _no_task(job: str, task: str, has: str, run: Run) -> RunNotFoundError:
    return RunNotFoundError(
        f"no task {task} of job {job}, which {has}", f"see what there is with: slurmkit status {run.word}"
    )


def _unknown(word: str, runs_dir: Path, runs: Sequence[Run], unread: str) -> RunNotFoundError:
    names = ", ".join(run.id for run in runs[-5:]) or "none"
    said = f"no run {word!r} in {runs_dir.absolute()}; the newest there: {names}"
    if os.sep in word:
        said = f"{word} is no run folder: there is no run.json in it that you may read"
    elif not runs_dir.is_dir():
        said = f"no run {word!r}: there is no folder {runs_dir.absolute()}"
    hint = "give a run folder, a run id, a Slurm job id or last; --runs-dir names another folder of runs"
    if word.partition("_")[0].isdecimal():
        hint += "; a job that was submitted by hand has its folder once it starts"
    return RunNotFoundError(said, hint, unread)
