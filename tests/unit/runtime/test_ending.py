"""The end of a life: questions, at most one act, and an exit code that tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmkit.runtime.ending import Patience, end_life
from slurmkit.runtime.requeue import Answer, Cause
from slurmkit.runtime.signals import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

BEFORE, NOW = "2026-01-01T10:00:01", "2026-01-01T10:00:12"
USUAL = {
    "JobState": "RUNNING",
    "Reason": "None",
    "Requeue": "1",
    "Restarts": "0",
    "BatchFlag": "1",
    "StartTime": BEFORE,
    "EndTime": NOW,
    "PreemptTime": "None",
    "Partition": "low",
}
PREEMPTED = {"PreemptTime": NOW}
LIMIT = {"JobState": "COMPLETING", "Reason": "TimeLimit"}
REQUEUED = {"JobState": "COMPLETING", "EndTime": "Unknown"}
CANCELLED = {"JobState": "COMPLETING"}


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
            "config": ["scontrol", "show", "config"],
            "partition": ["scontrol", "--all", "--oneliner", "show", "partition", "low"],
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
    fields = " ".join(f"{key}={value}" for key, value in {**USUAL, **values}.items())
    return "show", Answer(0, f"JobId=14 {fields}\n", "")


GOOD = "requeue", Answer(0, "", "")
OLD = (
    "config",
    Answer(0, "PreemptType             = preempt/partition_prio\nSLURM_VERSION           = 22.05.8\n", ""),
)
NEW = "config", Answer(0, OLD[1].stdout.replace("22.05.8", "24.11.5"), "")
BY_REQUEUE = "partition", Answer(0, "PartitionName=low GraceTime=20 PreemptMode=REQUEUE State=UP\n", "")
PENDING = "requeue", Answer(1, "", "Job is pending execution for job 12_3\n")
DISABLED = "requeue", Answer(1, "", "Requested operation is presently disabled for job 12_3\n")
CUT = "requeue", Answer(-9, "", "")
# As Slurm 22.05 says it: of a question that nobody answers, and of a requeue.
BUSY = "show", Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
LOST = "requeue", Answer(1, "", "Unexpected message received for job 12_3\n")


@pytest.mark.parametrize(
    ("stop", "answers", "code", "requeued"),
    [
        pytest.param(Stop.TERM, [shows(**PREEMPTED), OLD, GOOD], 0, True, id="preempted"),
        pytest.param(
            Stop.TERM,
            [("show", Answer(-15, "", "")), shows(**PREEMPTED), OLD, GOOD],
            0,
            True,
            id="asked twice",
        ),
        pytest.param(
            Stop.TERM, [shows(**PREEMPTED), NEW, BY_REQUEUE], 0, True, id="preempted: Slurm will do it"
        ),
        pytest.param(
            Stop.TERM,
            [shows(**PREEMPTED), ("config", BUSY[1]), GOOD],
            0,
            True,
            id="busy at the second question: the grace is short",
        ),
        pytest.param(
            Stop.TERM,
            [shows(**PREEMPTED), ("config", BUSY[1]), LOST, BUSY, shows(**REQUEUED)],
            0,
            True,
            id="busy from the second question on, but done",
        ),
        pytest.param(Stop.TERM, [shows(**LIMIT), GOOD], 0, True, id="time limit"),
        pytest.param(Stop.USR1, [shows(), GOOD], 0, True, id="asked"),
        pytest.param(Stop.USR1, [shows(), PENDING], 0, True, id="pending already: done"),
        pytest.param(Stop.TERM, [shows(**CANCELLED)], 143, False, id="scancel: never"),
        pytest.param(Stop.TERM, [shows(**REQUEUED)], 0, False, id="Slurm has done it"),
        pytest.param(Stop.TERM, [shows()], 143, False, id="unexplained"),
        pytest.param(Stop.INT, [shows()], 130, False, id="Ctrl-C"),
        pytest.param(Stop.INT | Stop.TERM, [shows(**LIMIT)], 130, False, id="Ctrl-C at the time limit"),
        pytest.param(Stop.USR1, [shows(Requeue="0")], 75, False, id="no-requeue job"),
        pytest.param(Stop.USR1, [shows(BatchFlag="0")], 75, False, id="interactive job"),
        pytest.param(Stop.USR1, [shows(), DISABLED, shows()], 75, False, id="refused"),
        pytest.param(
            Stop.USR1, [shows(), DISABLED, shows(**CANCELLED)], 143, False, id="cancelled while we asked"
        ),
        pytest.param(
            Stop.USR1, [shows(), CUT, shows(**REQUEUED)], 0, True, id="done, though the answer was cut off"
        ),
        pytest.param(Stop.TERM, [BUSY, BUSY, shows(**PREEMPTED), OLD, GOOD], 0, True, id="busy: asked again"),
        pytest.param(Stop.TERM, [BUSY, shows(**CANCELLED)], 143, False, id="busy, then scancel: never"),
        pytest.param(Stop.USR1, [shows(), LOST, shows(), GOOD], 0, True, id="busy at the act: once more"),
        pytest.param(
            Stop.USR1, [shows(), LOST, shows(**CANCELLED)], 143, False, id="busy at the act, then cancelled"
        ),
        pytest.param(
            Stop.USR1, [shows(), LOST, BUSY, shows(**REQUEUED)], 0, True, id="lost at the act, but done"
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
    """After the save: questions, at most one act, and an exit code that tells."""
    fake = FakeSlurm("12_3", *answers)
    ending = end_life("12_3", stop, 0, fake, patience=patient())
    assert (ending.code, ending.requeued) == (code, requeued)
    assert not fake.expected, "a command was not run"


def test_what_is_known_is_said_though_slurm_falls_silent() -> None:
    """A preemption that could not be acted upon is told as one, and not as a stop without a cause."""
    ending = end_life(
        "12_3",
        Stop.TERM,
        0,
        FakeSlurm("12_3", shows(**PREEMPTED), ("config", BUSY[1]), LOST, *[BUSY] * 23),
        patience=patient(),
    )
    assert (ending.code, ending.cause, ending.requeued) == (75, Cause.PREEMPTED, False)
    assert ending.words.startswith("preempted: could not requeue: ")


def test_a_payload_that_only_failed_is_not_requeued() -> None:
    """Without a signal a preemption alone excuses a failure: one that came to its time limit stays ended."""
    for job in ({}, LIMIT):
        assert not end_life("12_3", Stop.NONE, 0, FakeSlurm("12_3", shows(**job))).requeued
    ending = end_life("12_3", Stop.NONE, 0, FakeSlurm("12_3", shows(**PREEMPTED), OLD, GOOD))
    assert (ending.requeued, ending.cause) == (True, Cause.PREEMPTED)


@pytest.mark.parametrize(
    ("job", "stalled", "code"),
    [({}, 1, 0), ({}, 2, 75), (LIMIT, 2, 75), (LIMIT, 0, 0), (PREEMPTED, 9, 0), (CANCELLED, 9, 143)],
)
def test_a_third_life_without_a_step_is_the_last(job: dict[str, str], stalled: int, code: int) -> None:
    """Lives that come to no new step do not requeue for ever; those that Slurm preempted always may."""
    acts = [] if code else [*([OLD] if job is PREEMPTED else []), GOOD]
    fake = FakeSlurm("12_3", shows(**job), *acts)
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
