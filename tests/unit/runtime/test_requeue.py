"""The table "why did the signal come", and how Slurm is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import SlurmRefusedError, SlurmUnavailableError
from slurmkit.runtime.requeue import (
    Answer,
    Cause,
    cause_of_stop,
    judge,
    parse_job,
    requeue,
    run_command,
    show_job,
)
from slurmkit.runtime.signals import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmkit.runtime.requeue import Runner

#: As Slurm 22.05.8 prints it, shortened.
LINE = (
    "JobId=14 ArrayJobId=12 ArrayTaskId=3 JobName={name} UserId=alice(1000) GroupId=alice(1000) "
    "MCS_label=N/A Priority=1 Nice=0 Account=lab QOS=low JobState={state} Reason={reason} "
    "Dependency=(null) Requeue={requeue} Restarts={restarts} BatchFlag={batch} Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:11 TimeLimit=00:10:00 TimeMin=N/A SubmitTime=2026-01-01T10:00:00 "
    "EligibleTime=2026-01-01T10:00:00 StartTime=2026-01-01T10:00:01 EndTime={end} Deadline=N/A "
    "PreemptEligibleTime=2026-01-01T10:00:01 PreemptTime={preempt} SuspendTime=None Partition=low "
    "NodeList=n[1-2] TRES=cpu=4,mem=400M,node=2 Comment=JobState=PENDING Requeue=0 Command=/j.sbatch"
)
TIME = "2026-01-01T10:00:12"


def line(**values: str) -> str:
    usual = {
        "name": "job",
        "state": "RUNNING",
        "reason": "None",
        "requeue": "1",
        "restarts": "0",
        "batch": "1",
        "end": TIME,
        "preempt": "None",
    }
    return LINE.format(**{**usual, **values}) + "\n"


PREEMPTED = {"preempt": TIME}
LIMIT = {"state": "COMPLETING", "reason": "TimeLimit"}
REQUEUED = {"state": "COMPLETING", "end": "Unknown"}
CANCELLED = {"state": "COMPLETING"}
BOTH = Stop.USR1 | Stop.TERM


@pytest.mark.parametrize(
    ("job", "stop", "cause"),
    [
        (PREEMPTED, Stop.TERM, Cause.PREEMPTED),
        (PREEMPTED, Stop.USR1, Cause.PREEMPTED),
        (PREEMPTED, BOTH, Cause.PREEMPTED),
        (LIMIT, Stop.TERM, Cause.TIME_LIMIT),
        (LIMIT, BOTH, Cause.TIME_LIMIT),
        ({"state": "TIMEOUT", "reason": "TimeLimit"}, Stop.TERM, Cause.TIME_LIMIT),
        (REQUEUED, Stop.TERM, Cause.REQUEUED_ALREADY),
        ({"state": "PENDING", "end": "Unknown", "restarts": "1"}, Stop.TERM, Cause.REQUEUED_ALREADY),
        ({"restarts": "1"}, Stop.TERM, Cause.REQUEUED_ALREADY),
        (CANCELLED, Stop.TERM, Cause.CANCELLED),
        (CANCELLED, BOTH, Cause.CANCELLED),
        (CANCELLED, Stop.USR1, Cause.CANCELLED),
        ({**CANCELLED, **PREEMPTED}, Stop.TERM, Cause.CANCELLED),
        ({"state": "CANCELLED"}, Stop.TERM, Cause.CANCELLED),
        ({"state": "CANCELLED,COMPLETING", "end": "Unknown"}, Stop.TERM, Cause.CANCELLED),
        ({"state": "DEADLINE"}, Stop.TERM, Cause.CANCELLED),
        ({"state": "SOMETHING_NEW"}, BOTH, Cause.CANCELLED),
        ({}, Stop.USR1, Cause.ASKED),
        ({}, BOTH, Cause.ASKED),
        ({}, Stop.TERM, Cause.UNEXPLAINED),
        ({}, Stop.INT, Cause.INTERRUPTED),
        (PREEMPTED, Stop.INT | Stop.TERM, Cause.INTERRUPTED),
        (LIMIT, Stop.INT | Stop.TERM, Cause.INTERRUPTED),
        (REQUEUED, Stop.INT, Cause.INTERRUPTED),
        ({"preempt": "2026-01-01T10:00:01"}, Stop.TERM, Cause.PREEMPTED),  # in the second of the start
        # PreemptTime of an earlier life, from before this one started.
        ({"preempt": "2026-01-01T09:59:00"}, Stop.TERM, Cause.UNEXPLAINED),
    ],
)
def test_table_of_causes(job: dict[str, str], stop: Stop, cause: Cause) -> None:
    """Every row of the table: the job's state at that moment tells why the signal came."""
    assert cause_of_stop(parse_job(line(**job)), stop) is cause


@pytest.mark.parametrize(
    "name", ["x JobState=RUNNING PreemptTime=2027-01-01T00:00:00", "a=b c", "UserId=1 x"]
)
def test_a_job_name_cannot_lie(name: str) -> None:
    """A name or comment with keys in it changes nothing: the cancelled job stays dead."""
    job = parse_job(line(name=name, **CANCELLED))
    assert (job["JobState"], job["Requeue"], job["PreemptTime"]) == ("COMPLETING", "1", "None")
    assert cause_of_stop(job, BOTH) is Cause.CANCELLED


def test_a_later_life_supersedes() -> None:
    """Restarts above ours means that another life runs already; equal means that it is ours."""
    job = parse_job(line(restarts="2", **PREEMPTED))
    assert cause_of_stop(job, Stop.TERM, restart=1) is Cause.REQUEUED_ALREADY
    assert cause_of_stop(job, Stop.TERM, restart=2) is Cause.PREEMPTED


@pytest.mark.parametrize(("field", "words"), [("requeue", "--no-requeue"), ("batch", "interactive")])
def test_what_cannot_be_requeued_is_not(field: str, words: str) -> None:
    """A job with --no-requeue, or one of srun or salloc: the verdict is no, and says why."""
    verdict = judge(parse_job(line(**{field: "0"}, **PREEMPTED)), Stop.TERM)
    assert (verdict.cause, verdict.requeue) == (Cause.PREEMPTED, False)
    assert words in verdict.why


def says(argv: list[str], words: str) -> Runner:
    """A Slurm that takes this one command, and refuses it with these words."""

    def run(got: Sequence[str], timeout: float) -> Answer:
        assert list(got) == argv
        assert 0 < timeout <= 60
        return Answer(1, "", words)

    return run


def test_errors_carry_slurms_own_words() -> None:
    """Refused and unreachable are told apart, in Slurm's words."""
    act, question = ["scontrol", "requeue", "12_3"], ["scontrol", "--oneliner", "show", "job", "12_3"]
    with pytest.raises(SlurmRefusedError, match="presently disabled"):
        requeue("12_3", says(act, "Requested operation is presently disabled for job 12_3\n"))
    with pytest.raises(SlurmUnavailableError, match="Unexpected message"):
        requeue("12_3", says(act, "Unexpected message received for job 12_3\n"))
    with pytest.raises(SlurmUnavailableError, match="timed out"):
        show_job("12_3", says(question, "slurm_load_jobs error: Socket timed out on send/recv operation\n"))


def test_what_answered_in_the_end_counts() -> None:
    """A controller that has no name, or is dead, beside one that refused: the requeue is not asked for ten minutes."""
    noise = 'scontrol: error: slurm_set_addr: Unable to resolve "no-such-backup"\nscontrol: error: connect: Connection refused\n'
    refused = "Requested operation is presently disabled for job 12_3\n"
    with pytest.raises(SlurmRefusedError, match="presently disabled"):
        requeue("12_3", says(["scontrol", "requeue", "12_3"], noise + refused))


def test_a_command_is_deaf_to_the_signals_of_the_job() -> None:
    """Slurm signals every process of the job at a requeue, also the scontrol that asked for it."""
    answer = run_command(["sh", "-c", "kill -TERM $$; kill -USR1 $$; kill -INT $$; echo alive"], 5)
    assert (answer.code, answer.stdout) == (0, "alive\n")


def test_a_missing_or_stuck_command_is_an_error_of_ours() -> None:
    """No scontrol, or one that never answers, is SlurmUnavailableError within the timeout."""
    with pytest.raises(SlurmUnavailableError, match="not on PATH"):
        run_command(["no-such-scontrol"], 5)
    with pytest.raises(SlurmUnavailableError, match="timed out"):
        run_command(["tail", "-f", "/dev/null"], 0.1)
