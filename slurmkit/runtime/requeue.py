"""Why did the signal come, and is it right to requeue the job? The job's own state tells; the first row that fits.

================================  ================  ====================
the job at that moment            cause             requeue it ourselves
================================  ================  ====================
any, SIGINT                       a person          no
RUNNING, PreemptTime set          preemption        see :mod:`grace`
COMPLETING, Reason=TimeLimit      time limit        yes
COMPLETING, EndTime=Unknown       requeued already  no
COMPLETING, EndTime set           scancel           never
RUNNING, SIGUSR1                  asked to          yes
RUNNING, SIGTERM alone            unexplained       no
any but preempted, no signal      it failed         no
================================  ================  ====================

Measured on Slurm 22.05.8, 24.11.5 and 26.05.5, which agree. A handler that requeues at every SIGTERM brings
cancelled jobs back, so the state is read after the checkpoint is committed, as near to the act as possible.
"""

from __future__ import annotations

import enum
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmkit.errors import NoCommandError, SlurmRefusedError, SlurmUnavailableError
from slurmkit.runtime.signals import Stop
from slurmkit.runtime.silence import is_unreachable, told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Runner = Callable[[Sequence[str], float], "Answer"]

__all__ = [
    "Answer",
    "Cause",
    "Verdict",
    "ask",
    "cause_of_stop",
    "judge",
    "parse_job",
    "requeue",
    "run_command",
    "show_job",
]

_TIMEOUT = 20.0
_NEVER = {"", "None", "Unknown", "N/A"}
_ALIVE = {"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"}
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
_DONE_ALREADY = ("Job is pending execution", "Requested operation not supported on pending")


class Cause(enum.Enum):
    """Why a run was asked to stop."""

    PREEMPTED = "preempted"
    TIME_LIMIT = "time limit"
    ASKED = "asked to save and requeue"
    REQUEUED_ALREADY = "requeued by Slurm already"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted by a person"
    UNEXPLAINED = "SIGTERM while running"
    NO_JOB = "signal outside of a Slurm job"

    @property
    def wants_requeue(self) -> bool:
        """Whether the run should go on in another life, and Slurm does not know it yet."""
        return self in {Cause.PREEMPTED, Cause.TIME_LIMIT, Cause.ASKED}


@dataclass(frozen=True)
class Answer:
    """What a command gave back."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Verdict:
    """What to do about a stop: the cause, whether to requeue, and in words why."""

    cause: Cause
    requeue: bool
    why: str


def run_command(argv: Sequence[str], timeout: float) -> Answer:
    """Run one of Slurm's commands.

    Args:
        argv: the command and its arguments.
        timeout: seconds that it may take.

    Raises:
        SlurmUnavailableError: if the command is not installed, or does not end in time.
    """
    program = shutil.which(argv[0])
    if program is None:
        raise NoCommandError(f"{argv[0]} is not on PATH on this node")
    # Times are compared as text, and some releases print them as the user likes them.
    env = {**os.environ, "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C"}
    try:
        # Slurm signals every process of the job, this command too, and a requeue signals its own caller:
        # it has to be deaf before it starts, and what is ignored stays ignored through exec.
        done = subprocess.run(
            ["/bin/sh", "-c", 'trap "" TERM USR1 INT; exec "$@"', "sh", program, *argv[1:]],
            check=False,
            capture_output=True,
            timeout=timeout,
            env=env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmUnavailableError(f"{' '.join(argv)}: {error}") from error
    return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def parse_job(text: str) -> dict[str, str]:
    """The fields of ``scontrol show job --oneliner``.

    The job's name can hold anything, even ``JobState=RUNNING``: it is cut out first. Of the rest the
    first value of a key counts, since comment and command come last.

    Args:
        text: the output for one job.
    """
    line = next((row for row in text.splitlines() if row.startswith("JobId=")), "")
    line = re.sub(r" JobName=.*? (?=UserId=\S+\(\d+\) GroupId=)", " ", line, count=1)
    fields: dict[str, str] = {}
    for match in re.finditer(r"(?:^|(?<=\s))([A-Za-z][\w/:.-]*)=(.*?)(?=\s[A-Za-z][\w/:.-]*=|\s*$)", line):
        fields.setdefault(match[1], match[2].strip())
    return fields


def cause_of_stop(job: Mapping[str, str], stop: Stop, restart: int = 0) -> Cause:
    """Why the signals came, from the job's state at that moment.

    Args:
        job: the fields of ``scontrol show job``.
        stop: the signals that came.
        restart: the life that asks (``SLURM_RESTART_COUNT``); a job in a later one has superseded it.
    """
    if Stop.INT in stop:  # Slurm itself never sends it
        return Cause.INTERRUPTED
    states = set(re.split(r"[,+ ]", job.get("JobState", "")))
    restarts = job.get("Restarts", "0")
    if (restarts.isdigit() and int(restarts) > restart) or states & _WAITING:
        return Cause.REQUEUED_ALREADY
    if states & _ALIVE:
        return _cause_while_alive(job, stop)
    if job.get("Reason") == "TimeLimit" or "TIMEOUT" in states:
        return Cause.TIME_LIMIT
    if "CANCELLED" not in states and "COMPLETING" in states and job.get("EndTime", "") in _NEVER:
        return Cause.REQUEUED_ALREADY
    # Every other state ends the job for good. When in doubt a job must stay dead.
    return Cause.CANCELLED


def _cause_while_alive(job: Mapping[str, str], stop: Stop) -> Cause:
    preempted, started = job.get("PreemptTime", ""), job.get("StartTime", "")
    # A requeued job can show the PreemptTime of its last life; ISO times compare as text.
    if preempted not in _NEVER and (started in _NEVER or preempted >= started):
        return Cause.PREEMPTED
    return Cause.ASKED if Stop.USR1 in stop else Cause.UNEXPLAINED


def judge(job: Mapping[str, str], stop: Stop, restart: int = 0) -> Verdict:
    """What to do, from the job's state at that moment.

    Args:
        job: the fields of ``scontrol show job``.
        stop: the signals that came. None: a payload has failed, which a preemption alone excuses.
        restart: the life that asks.
    """
    cause = cause_of_stop(job, stop, restart)
    if not cause.wants_requeue or (stop is Stop.NONE and cause is not Cause.PREEMPTED):
        return Verdict(cause, requeue=False, why=cause.value)
    if job.get("BatchFlag", "1") == "0":
        return Verdict(cause, requeue=False, why=f"{cause.value}; an interactive job cannot be requeued")
    if job.get("Requeue", "1") == "0":
        return Verdict(cause, requeue=False, why=f"{cause.value}; the job was submitted with --no-requeue")
    return Verdict(cause, requeue=True, why=cause.value)


def show_job(own_id: str, run: Runner = run_command) -> dict[str, str]:
    """The state of our own job, read from slurmctld. Changes nothing, may be called again.

    Args:
        own_id: ``12``, or ``12_3`` for an array task.
        run: runs the command; tests inject a fake.

    Raises:
        SlurmUnavailableError: if slurmctld cannot be reached; nothing is known then.
        SlurmRefusedError: if Slurm does not show the job.
    """
    said = ask(["scontrol", "--oneliner", "show", "job", own_id], run)
    job = parse_job(said)
    if "JobState" not in job:
        raise SlurmRefusedError(f"scontrol show job {own_id} names no state of the job", detail=said)
    return job


def ask(argv: Sequence[str], run: Runner = run_command) -> str:
    """What a command prints that only asks.

    Args:
        argv: the command and its arguments.
        run: runs the command; tests inject a fake.

    Raises:
        SlurmUnavailableError: if slurmctld cannot be reached; nothing is known then.
        SlurmRefusedError: with Slurm's own words.
    """
    answer = run(argv, _TIMEOUT)
    if answer.code < 0:  # hit by one of the job's signals; a question can be asked twice
        answer = run(argv, _TIMEOUT)
    if answer.code:
        raise _failure(argv, answer)
    return answer.stdout


def requeue(own_id: str, run: Runner = run_command) -> None:
    """Put our own job back into the queue. Slurm signals this very process within milliseconds.

    Idempotent: a job that waits in the queue already counts as done. Call it on rank 0 alone, after the
    checkpoint is committed and after every rank knows.

    Args:
        own_id: ``12``, or ``12_3`` for an array task; the raw id of a task can name all its siblings.
        run: runs the command; tests inject a fake.

    Raises:
        SlurmUnavailableError: if slurmctld cannot be reached.
        SlurmRefusedError: with Slurm's own words.
    """
    argv = ["scontrol", "requeue", own_id]
    answer = run(argv, _TIMEOUT)
    words = answer.stdout + answer.stderr
    if answer.code and not any(known in words for known in _DONE_ALREADY):
        raise _failure(argv, answer)


def _failure(argv: Sequence[str], answer: Answer) -> SlurmUnavailableError | SlurmRefusedError:
    said = f"{answer.stdout}\n{answer.stderr}".strip() or f"exit code {answer.code}"
    kind = SlurmUnavailableError if is_unreachable(said) else SlurmRefusedError
    return kind(f"{' '.join(argv)}: {told(said)}")
