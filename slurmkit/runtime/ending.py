"""How a life ends once its state is saved: Slurm is asked why, the job is requeued, and all get an exit code.

While Slurm cannot be reached it is asked again. After three lives that stopped at one step the job is not
requeued any more, unless Slurm preempted it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurmkit.errors import NoCommandError, SlurmRefusedError, SlurmUnavailableError
from slurmkit.runtime.grace import brings_back
from slurmkit.runtime.requeue import (
    Cause,
    cause_of_stop,
    judge,
    requeue,
    run_command,
    show_job,
)
from slurmkit.runtime.signals import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmkit.runtime.requeue import Runner, Verdict

__all__ = ["EXIT_SAVED", "STALLED_LIVES", "Ending", "Patience", "end_life"]


@dataclass(frozen=True)
class Ending:
    """How a life ends: the exit code, and what was found and done."""

    code: int
    cause: Cause | None
    requeued: bool
    words: str


#: sysexits.h EX_TEMPFAIL: saved, but nobody requeued the job. Sites can list it in RequeueExit.
EXIT_SAVED = 75
_EXIT_CODES = {
    Cause.REQUEUED_ALREADY: 0,
    Cause.CANCELLED: 143,
    Cause.UNEXPLAINED: 143,
    Cause.INTERRUPTED: 130,
}


#: After so many lives in a row that stopped at one step, another would stop there too: a time limit that
#: is shorter than the start and one step, or a model that does not get past it. Slurm has no bound for
#: explicit requeues.
STALLED_LIVES = 3
#: A slurmctld that is busy or restarts is back in minutes; a run that waits in vain holds its nodes. After a
#: SIGTERM Slurm itself ends the wait, with SIGKILL after KillWait or at the end of the grace.
_PATIENCE_SECONDS = 600.0
_PAUSES = (1.0, 30.0)


@dataclass
class Patience:
    """How long Slurm is asked again while it cannot be reached. Tests inject clock and pause."""

    seconds: float = _PATIENCE_SECONDS
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    _next: float = field(default=_PAUSES[0], init=False)
    _until: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._until = self.clock() + self.seconds

    def wait(self, error: SlurmUnavailableError, stop: Stop) -> bool:
        """Pause before the next question, longer each time.

        Args:
            error: why the last one was in vain.
            stop: the signals that came; a person at the terminal is not kept waiting.

        Returns:
            False where it is of no use to ask again.
        """
        if isinstance(error, NoCommandError) or Stop.INT in stop or self.clock() + self._next > self._until:
            return False
        self.pause(self._next)
        self._next = min(2 * self._next, _PAUSES[1])
        return True


def end_life(
    own_id: str,
    stop: Stop,
    restart: int,
    run: Runner = run_command,
    *,
    stalled: int = 0,
    patience: Patience | None = None,
) -> Ending:
    """After the save: ask why we have to stop, requeue the job if that is right, and say how to exit.

    For rank 0 alone. Where Slurm cannot be reached it is asked again, from the first question on: the job
    can have been cancelled meanwhile. Nothing is guessed: a cancelled job must stay dead.

    Args:
        own_id: the id of exactly this job or array task; empty outside of Slurm.
        stop: the signals that came.
        restart: the life that ends.
        run: runs Slurm's commands; tests inject a fake.
        stalled: how many lives before this one asked for a requeue at this very step, in a row.
        patience: how long to ask again; ten minutes if None.
    """
    if not own_id:
        by_person = Stop.INT in stop
        code = 130 if by_person else 143 if Stop.TERM in stop else EXIT_SAVED
        cause = Cause.INTERRUPTED if by_person else Cause.NO_JOB
        return Ending(code, cause, requeued=False, words=f"{cause.value}: start it again to go on")
    patience = patience or Patience()
    lost: list[Verdict] = []
    while isinstance(found := _ask(own_id, stop, restart, run, stalled, lost), SlurmUnavailableError):
        if not patience.wait(found, stop):
            return _unknown(stop, lost, found)
    return found


def _ask(
    own_id: str, stop: Stop, restart: int, run: Runner, stalled: int, lost: list[Verdict]
) -> Ending | SlurmUnavailableError:
    """From the first question to the act; ``lost`` holds verdicts that were acted on, the answer unknown."""
    try:
        job = show_job(own_id, run)
        verdict = judge(job, stop, restart)
        if lost and verdict.cause is Cause.REQUEUED_ALREADY:
            return _requeued(own_id, lost[-1])
        if refusal := _refusal(verdict, stalled):
            return refusal
        if verdict.cause is Cause.PREEMPTED and brings_back(job, run):
            return _requeued(own_id, verdict, "is requeued by Slurm when it has ended")
        lost.append(verdict)
        return _requeue_and_tell(own_id, verdict, stop, restart, run)
    except SlurmUnavailableError as error:
        return error
    except SlurmRefusedError as error:
        return _unknown(stop, lost, error)


def _refusal(verdict: Verdict, stalled: int) -> Ending | None:
    """How a life ends that is not to have another one."""
    if not verdict.requeue:
        code = _EXIT_CODES.get(verdict.cause, EXIT_SAVED)
        return Ending(code, verdict.cause, requeued=False, words=f"{verdict.why}: not requeued by us")
    if verdict.cause is not Cause.PREEMPTED and stalled + 1 >= STALLED_LIVES:
        words = f"{verdict.why}: not requeued: {stalled + 1} lives in a row stopped at this step"
        return Ending(EXIT_SAVED, verdict.cause, requeued=False, words=words)
    return None


def _requeue_and_tell(own_id: str, verdict: Verdict, stop: Stop, restart: int, run: Runner) -> Ending:
    try:
        requeue(own_id, run)
    except SlurmRefusedError as error:
        # It may have been cancelled, or requeued by Slurm, while we asked.
        try:
            now = cause_of_stop(show_job(own_id, run), stop, restart)
        except SlurmRefusedError:
            now = verdict.cause
        if now is Cause.REQUEUED_ALREADY:
            return _requeued(own_id, verdict)
        words = f"{verdict.why}: could not requeue: {error}"
        return Ending(_EXIT_CODES.get(now, EXIT_SAVED), now, requeued=False, words=words)
    return _requeued(own_id, verdict)


def _requeued(own_id: str, verdict: Verdict, how: str = "is requeued") -> Ending:
    return Ending(0, verdict.cause, requeued=True, words=f"{verdict.why}: job {own_id} {how}")


def _unknown(stop: Stop, lost: list[Verdict], error: Exception) -> Ending:
    code = 130 if Stop.INT in stop else EXIT_SAVED
    if lost:
        words = f"{lost[-1].why}: could not requeue: {error}"
        return Ending(code, lost[-1].cause, requeued=False, words=words)
    return Ending(code, None, requeued=False, words=f"cause not known, so not requeued: {error}")
