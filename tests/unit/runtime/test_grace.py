"""Who requeues a job that ends in the grace of its preemption: Slurm, or nobody but ourselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmkit.runtime.grace import brings_back
from slurmkit.runtime.requeue import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

JOB = {"Partition": "low", "QOS": "cheap"}
#: As scontrol of 24.11.5 prints it, shortened.
CONFIG = """Configuration data as of 2026-11-30T18:40:00
KillWait                = 5 sec
MaxBatchRequeue         = {bound}
PreemptMode             = {mode}
PreemptParameters       = (null)
PreemptType             = {kind}
SLURM_VERSION           = {release}
"""
USUAL = {"release": "24.11.5", "kind": "preempt/partition_prio", "mode": "REQUEUE", "bound": "5"}


class FakeSlurm:
    """Answers for one site, and fails on any question that it was not made for."""

    def __init__(self, partition: str = "REQUEUE", qos: str = "OFF", **config: str) -> None:
        self.answers = {
            "show config": CONFIG.format(**{**USUAL, **config}),
            "--all --oneliner show partition low": f"PartitionName=low GraceTime=20 PreemptMode={partition} State=UP\n",
            "--all --oneliner show assoc_mgr qos=cheap flags=qos": (
                f"Current Association Manager state QOS Records QOS=cheap(2) MinTRESPJ= PreemptMode={qos} Priority=0\n"
            ),
        }
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str], timeout: float) -> Answer:
        program, *words = argv
        assert program == "scontrol"
        assert 0 < timeout <= 60
        self.asked.append(" ".join(words))
        return Answer(0, self.answers[self.asked[-1]], "")


@pytest.mark.parametrize(
    ("slurm", "before", "comes_back"),
    [
        pytest.param(FakeSlurm(), 0, True, id="24.11"),
        pytest.param(FakeSlurm(release="24.05.0"), 0, True, id="24.05"),
        pytest.param(FakeSlurm(release="26.05.5"), 0, True, id="26.05"),
        pytest.param(FakeSlurm(release="23.11.10"), 0, False, id="23.11"),
        pytest.param(FakeSlurm(release="22.05.8"), 0, False, id="22.05"),
        pytest.param(FakeSlurm(partition="CANCEL"), 0, False, id="the partition cancels"),
        pytest.param(FakeSlurm(partition="GANG,REQUEUE"), 0, True, id="the partition takes turns, too"),
        pytest.param(FakeSlurm(), 2, True, id="third preemption"),
        pytest.param(FakeSlurm(), 3, False, id="fourth: Slurm would hold it soon"),
        pytest.param(FakeSlurm(bound="50"), 3, True, id="a site that holds later"),
        pytest.param(FakeSlurm(bound=""), 3, False, id="a bound that is not shown is 5"),
        pytest.param(FakeSlurm(kind="preempt/qos", qos="REQUEUE", mode="CANCEL"), 0, True, id="the QOS"),
        pytest.param(FakeSlurm(kind="preempt/qos", qos="CANCEL"), 0, False, id="the QOS cancels"),
        pytest.param(FakeSlurm(kind="preempt/qos", mode="GANG,REQUEUE"), 0, True, id="a QOS as the cluster"),
        pytest.param(FakeSlurm(kind="preempt/qos", mode="CANCEL"), 0, False, id="and the cluster cancels"),
        pytest.param(FakeSlurm(kind="(null)"), 0, False, id="no such plugin"),
        pytest.param(FakeSlurm(release=""), 0, False, id="no release"),
    ],
)
def test_slurm_brings_a_job_back_by_itself(slurm: FakeSlurm, before: int, comes_back: bool) -> None:
    """From 24.05 on, where jobs are preempted by requeue, and while Slurm, which has done so before, does not hold the job for it."""
    assert brings_back({**JOB, "BatchFlag": f"{1 + before}"}, slurm) is comes_back


def test_the_old_release_costs_one_question() -> None:
    """Where nothing depends on it, nobody asks slurmctld for the partition, too."""
    slurm = FakeSlurm(release="22.05.8")
    brings_back(JOB, slurm)
    assert slurm.asked == ["show config"]


def test_a_refusal_leaves_it_to_us() -> None:
    """A site that shows no QOS: the job is requeued as it always was."""
    slurm = FakeSlurm(kind="preempt/qos", qos="REQUEUE")

    def run(argv: Sequence[str], timeout: float) -> Answer:
        if "assoc_mgr" in argv:
            return Answer(1, "", "slurm_load_assoc_mgr_info error: Access/permission denied\n")
        return slurm(argv, timeout)

    assert not brings_back(JOB, run)


def test_silence_leaves_it_in_doubt() -> None:
    """While slurmctld does not answer nothing is known, and the grace is short: the caller asks for the requeue itself."""
    said = "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n"
    assert not brings_back(JOB, lambda _argv, _timeout: Answer(1, "", said))
