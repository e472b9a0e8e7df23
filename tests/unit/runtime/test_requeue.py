"""The table "why did the signal come", and what is done about each cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import SlurmRefusedError, SlurmUnavailableError
from slurmkit.runtime.ending import Patience, end_life
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


class FakeSlurm:
    """Answers scontrol from a list, and fails on any other command line."""

    def __init__(self, own_id: str, *answers: tuple[str, Answer]) -> None:
        self.expected = list(answers)
        self.own_id = own_id

    def __call__(self, argv: Sequence[str], timeout: float) -> Answer:
        verb, answer = self.expected.pop(0)
        accepted = {
            "show": ["scontrol", "--oneliner", "show", "job", self.own_id],
            "requeue": ["scontrol", "requeue", self.own_id],
        }
        assert list(argv) == accepted[verb]
        assert 0 < timeout <= 60
        return answer


def patient() -> Patience:
    """Ten minutes that pass at once."""
    now = [0.0]

    def pause(seconds: float) -> None:
        assert 0 < seconds <= 30
        now[0] += seconds

    return Patience(clock=lambda: now[0], pause=pause)


def shows(**values: str) -> tuple[str, Answer]:
    return "show", Answer(0, line(**values), "")


GOOD = "requeue", Answer(0, "", "")
PENDING = "requeue", Answer(1, "", "Job is pending execution for job 12_3\n")
DISABLED = "requeue", Answer(1, "", "Requested operation is presently disabled for job 12_3\n")
CUT = "requeue", Answer(-9, "", "")
DOWN = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
BUSY = "show", DOWN


@pytest.mark.parametrize(
    ("stop", "answers", "code", "requeued"),
    [
        pytest.param(Stop.TERM, [shows(**PREEMPTED), GOOD], 0, True, id="preempted"),
        pytest.param(
            Stop.TERM, [("show", Answer(-15, "", "")), shows(**PREEMPTED), GOOD], 0, True, id="asked twice"
        ),
        pytest.param(Stop.TERM, [shows(**LIMIT), GOOD], 0, True, id="time limit"),
        pytest.param(Stop.USR1, [shows(), GOOD], 0, True, id="asked"),
        pytest.param(Stop.USR1, [shows(), PENDING], 0, True, id="pending already: done"),
        pytest.param(Stop.TERM, [shows(**CANCELLED)], 143, False, id="scancel: never"),
        pytest.param(Stop.TERM, [shows(**REQUEUED)], 0, False, id="Slurm has done it"),
        pytest.param(Stop.TERM, [shows()], 143, False, id="unexplained"),
        pytest.param(Stop.INT, [shows()], 130, False, id="Ctrl-C"),
        pytest.param(Stop.USR1, [shows(requeue="0")], 75, False, id="no-requeue job"),
        pytest.param(Stop.USR1, [shows(batch="0")], 75, False, id="interactive job"),
        pytest.param(Stop.USR1, [shows(), DISABLED, shows()], 75, False, id="refused"),
        pytest.param(
            Stop.USR1, [shows(), DISABLED, shows(**CANCELLED)], 143, False, id="cancelled while we asked"
        ),
        pytest.param(
            Stop.USR1, [shows(), CUT, shows(**REQUEUED)], 0, True, id="done, though the answer was cut off"
        ),
        pytest.param(Stop.TERM, [BUSY, BUSY, shows(**PREEMPTED), GOOD], 0, True, id="busy: asked again"),
        pytest.param(Stop.TERM, [BUSY, shows(**CANCELLED)], 143, False, id="busy, then scancel: never"),
        pytest.param(
            Stop.USR1, [shows(), ("requeue", DOWN), shows(), GOOD], 0, True, id="busy at the act: once more"
        ),
        pytest.param(
            Stop.USR1, [shows(), ("requeue", DOWN), shows(**CANCELLED)], 143, False, id="busy, then cancelled"
        ),
        pytest.param(
            Stop.USR1, [shows(), ("requeue", DOWN), BUSY, shows(**REQUEUED)], 0, True, id="lost, but done"
        ),
        pytest.param(Stop.TERM, [BUSY] * 24, 75, False, id="for ten minutes: nothing is guessed"),
        pytest.param(Stop.INT, [BUSY], 130, False, id="a person does not wait"),
        pytest.param(
            Stop.TERM,
            [("show", Answer(1, "", "slurm_load_jobs error: Invalid job id specified"))],
            75,
            False,
            id="refused: not asked again",
        ),
    ],
)
def test_endings(stop: Stop, answers: list[tuple[str, Answer]], code: int, requeued: bool) -> None:
    """After the save: one question, at most one act, and an exit code that tells."""
    fake = FakeSlurm("12_3", *answers)
    ending = end_life("12_3", stop, 0, fake, patience=patient())
    assert (ending.code, ending.requeued) == (code, requeued)
    assert not fake.expected, "a command was not run"


@pytest.mark.parametrize(
    ("job", "stalled", "code"),
    [({}, 1, 0), ({}, 2, 75), (LIMIT, 2, 75), (LIMIT, 0, 0), (PREEMPTED, 9, 0), (CANCELLED, 9, 143)],
)
def test_a_third_life_without_a_step_is_the_last(job: dict[str, str], stalled: int, code: int) -> None:
    """Lives that come to no new step do not requeue for ever; those that Slurm preempted always may."""
    fake = FakeSlurm("12_3", shows(**job), *([] if code else [GOOD]))
    ending = end_life("12_3", Stop.USR1, 5, fake, stalled=stalled)
    assert (ending.code, ending.requeued) == (code, not code)
    assert not fake.expected
    assert ("3 lives in a row stopped at this step" in ending.words) == (code == 75)


def test_without_scontrol_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is not installed will not come: it is said at once."""
    monkeypatch.setenv("PATH", "/no/such")
    ending = end_life("12_3", Stop.TERM, 0, patience=Patience(pause=lambda _: pytest.fail("waited")))
    assert (ending.code, ending.requeued) == (75, False)
    assert "not on PATH" in ending.words


@pytest.mark.parametrize(("stop", "code"), [(Stop.TERM, 143), (Stop.INT, 130), (Stop.USR1, 75)])
def test_without_a_job_slurm_is_not_asked(stop: Stop, code: int) -> None:
    """By hand there is nobody to requeue."""
    ending = end_life("", stop, 0, FakeSlurm(""))
    assert (ending.code, ending.requeued) == (code, False)


def test_errors_carry_slurms_own_words() -> None:
    """Refused and unreachable are told apart, in Slurm's words."""
    with pytest.raises(SlurmRefusedError, match="presently disabled"):
        requeue("12_3", FakeSlurm("12_3", DISABLED))
    with pytest.raises(SlurmUnavailableError, match="Unable to contact"):
        show_job("12_3", FakeSlurm("12_3", ("show", DOWN)))


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
