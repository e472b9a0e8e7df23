"""After a payload that failed: a preempted job is brought back, and nothing else is."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from slurmkit.runtime import preempted
from slurmkit.runtime.ending import Patience
from slurmkit.runtime.preempted import bring_back
from slurmkit.runtime.requeue import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmkit.runtime.requeue import Runner

TASK = {"SLURM_JOB_ID": "14", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
NOW, BEFORE = "2026-01-01T10:00:12", "2026-01-01T10:00:01"


def slurm(job: str) -> tuple[list[list[str]], Runner]:
    """A Slurm that shows this job, and the commands that it was given."""
    asked: list[list[str]] = []

    def run(argv: Sequence[str], timeout: float) -> Answer:
        del timeout
        asked.append(list(argv))
        return Answer(0, f"JobId=14 JobName=x UserId=a(1) GroupId=a(1) {job}\n", "")

    return asked, run


SHOW = ["scontrol", "--oneliner", "show", "job", "12_3"]
CONFIG = ["scontrol", "show", "config"]


def test_a_preempted_task_is_brought_back_by_its_own_id() -> None:
    """``12_3`` is requeued, not 14: the raw id of the last task of an array names the whole array."""
    asked, run = slurm(f"JobState=RUNNING Reason=None StartTime={BEFORE} PreemptTime={NOW}")
    assert bring_back(TASK, run) == "preempted: job 12_3 is requeued"
    assert asked == [SHOW, CONFIG, ["scontrol", "requeue", "12_3"]]


@pytest.mark.parametrize(
    "job",
    [
        f"JobState=RUNNING Reason=None StartTime={BEFORE} PreemptTime=None",
        f"JobState=RUNNING Reason=None StartTime={NOW} PreemptTime={BEFORE}",
        f"JobState=COMPLETING Reason=TimeLimit StartTime={BEFORE} EndTime={NOW} PreemptTime=None",
        f"JobState=COMPLETING Reason=None StartTime={BEFORE} EndTime={NOW} PreemptTime={NOW}",
        f"JobState=COMPLETING Reason=None StartTime={BEFORE} EndTime=Unknown PreemptTime={NOW}",
    ],
    ids=["failed", "failed in a later life", "time limit", "cancelled in its grace", "requeued by Slurm"],
)
def test_nothing_else_is(job: str) -> None:
    """A program that failed, ran out of time, was cancelled or is requeued already: no word and no act."""
    asked, run = slurm(job)
    assert bring_back(TASK, run) == ""
    assert asked == [SHOW]


def test_a_job_that_is_not_to_be_requeued_says_so() -> None:
    """Preempted, but submitted with ``--no-requeue``: the log says why it does not come back."""
    asked, run = slurm(f"JobState=RUNNING Requeue=0 StartTime={BEFORE} PreemptTime={NOW}")
    assert "--no-requeue" in bring_back(TASK, run)
    assert asked == [SHOW]


def test_a_failed_job_waits_two_minutes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a node cannot reach slurmctld, a payload that failed gives its nodes back soon, and says why."""
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    patience = functools.partial(Patience, clock=lambda: now[0], pause=pause)
    monkeypatch.setattr(preempted, "Patience", patience)
    said = bring_back(
        TASK, lambda _argv, _timeout: Answer(1, "", "Socket timed out on send/recv operation\n")
    )
    assert "Socket timed out" in said
    assert 60 <= now[0] <= 120, "a slurmctld that restarts is waited for"
