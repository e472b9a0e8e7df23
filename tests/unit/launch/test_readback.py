"""What was asked and what Slurm took."""

from __future__ import annotations

import pytest

from slurmkit.compiler.directives import job_directives
from slurmkit.config.schema import Experiment, Requeue, Resources, Topology
from slurmkit.launch.readback import differences

EXPERIMENT = Experiment(
    name="gpt",
    resources=Resources(
        nodes=2,
        ntasks_per_node=2,
        cpus_per_task=2,
        mem="4G",
        time="30:00",
        gres="gpu:a100:2",
        partition="low",
        comment="a b",
    ),
    topology=Topology(switches=1, wait="5:00"),
)
#: As ``scontrol show job`` of Slurm 22.05 shows the job of that experiment.
JOB = {
    "JobName": "gpt", "Partition": "low", "NumNodes": "2-2", "CPUs/Task": "2", "NtasksPerN:B:S:C": "2:0:*:*", "MinMemoryNode": "4G", "TimeLimit": "00:30:00",
    "TresPerNode": "gres:gpu:a100:2", "Requeue": "1", "Switches": "1@00:05:00", "Comment": "a b",
}  # fmt: skip


#: An experiment with every option that Slurm shows, and the job as 22.05 and as later releases show it.
MANY = Experiment(
    name="a Requeue=0 b",
    resources=Resources(
        nodes=2,
        time="0:30",
        mem_per_gpu="1G",
        cpus_per_gpu=2,
        gpus_per_node="a100:2",
        gpus_per_task="a100:1",
        gres="shard:4",
        nodelist="n[1-2]",
        exclude="n3,n4",
        exclusive="true",
        dependency="afterany:55:56?singleton",
        array_parallelism=2,
        wckey="w",
        mail_type="END,FAIL",
        mail_user="ada",
        comment="x Partition=foo",
        extra={
            "nice": 10, "reservation": "r1", "licenses": "foo,bar:2", "begin": "2030-01-01", "deadline": "2031-01-01T10:00",
            "tmp": "1G", "contiguous": True,
        },
    ),
)  # fmt: skip
MANY_JOB = {
    "JobName": "a Requeue=0 b", "ArrayJobId": "3", "ArrayTaskId": "0-5%2", "ArrayTaskThrottle": "2", "NumNodes": "2-2", "TimeLimit": "00:01:00",
    "MemPerTres": "gres:gpu:1024", "CpusPerTres": "gres:gpu:2", "TresPerNode": "gres:gpu:a100:2,gres:shard:4", "TresPerTask": "gres:gpu:a100:1",
    "ReqNodeList": "n[1-2]", "ExcNodeList": "n[3-4]", "OverSubscribe": "NO", "Dependency": "afterany:55(unfulfilled),singleton(unfulfilled)",
    "Requeue": "1", "WCKey": "w", "MailType": "END,FAIL", "MailUser": "ada", "Nice": "10", "Reservation": "r1", "Licenses": "foo:1,bar:2",
    "EligibleTime": "2030-01-01T00:00:00", "Deadline": "2031-01-01T10:00:00", "MinTmpDiskNode": "1G", "Contiguous": "1", "Comment": "x Partition=foo",
}  # fmt: skip
LATER = {
    "TresPerNode": "gres/gpu:a100:2,gres/shard:4",
    "TresPerTask": "cpu=1,gres/gpu:a100=1",
    "MemPerTres": "gres/gpu=1024",
}


def compare_many(job: dict[str, str]) -> list[str]:
    return [item["option"] for item in differences(job_directives(MANY, "log", 6), job)]


def compare(job: dict[str, str], experiment: Experiment = EXPERIMENT) -> list[tuple[str, str]]:
    return [
        (item["option"], item["got"]) for item in differences(job_directives(experiment, "log", None), job)
    ]


def test_another_spelling_is_no_difference() -> None:
    """Slurm writes 30:00 as 00:30:00 and gres as gres:gpu:…: the same job is not called different."""
    assert compare(JOB) == []
    assert compare({**JOB, "TresPerNode": "gres/gpu:a100:2", "Switches": "1@05:00"}) == [], (
        "and neither are the spellings of later releases"
    )


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("Partition", "short", "--partition"),
        ("NumNodes", "1", "--nodes"),
        ("TimeLimit", "00:10:00", "--time"),
        ("TresPerNode", "gres:gpu:a100:1", "--gres"),
        ("MinMemoryNode", "2G", "--mem"),
        ("Requeue", "0", "--requeue"),
        ("Switches", "2@00:05:00", "--switches"),
        ("JobName", "other", "--job-name"),
    ],
)
def test_what_a_site_rewrites_is_said(field: str, value: str, option: str) -> None:
    """A job_submit plugin that routes, cuts or strips the job shows up as option, asked and got."""
    assert compare({**JOB, field: value}) == [(option, f"Requeue={value}" if field == "Requeue" else value)]


def test_a_requeue_that_was_not_asked_is_said() -> None:
    """A site that forces requeue on a job that said --no-requeue is heard of."""
    experiment = Experiment(requeue=Requeue(enabled=False))
    assert compare({"Requeue": "1"}, experiment) == [("--no-requeue", "Requeue=1")]


def test_every_option_that_slurm_shows_is_compared() -> None:
    """All that was asked is found again, in the spelling of each release."""
    assert compare_many(MANY_JOB) == []
    assert compare_many({**MANY_JOB, **LATER}) == []
    assert compare_many({**MANY_JOB, "Dependency": "(null)"}) == [], "a fulfilled dependency is shown no more"
    assert compare_many({**MANY_JOB, "EligibleTime": "Unknown"}) == [], "a held job has no time yet"


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("JobName", "a", "--job-name"),
        ("ArrayTaskThrottle", "1", "--array"),
        ("MemPerTres", "gres:gpu:512", "--mem-per-gpu"),
        ("CpusPerTres", "gres:gpu:1", "--cpus-per-gpu"),
        ("TresPerNode", "gres:gpu:a100:1,gres:shard:4", "--gres"),
        ("TresPerNode", "gres:shard:4", "--gres"),
        ("TresPerTask", "gres:gpu:1", "--gpus-per-task"),
        ("ReqNodeList", "(null)", "--nodelist"),
        ("ExcNodeList", "n3", "--exclude"),
        ("OverSubscribe", "OK", "--exclusive"),
        ("Dependency", "afterok:57(unfulfilled)", "--dependency"),
        ("WCKey", "v", "--wckey"),
        ("MailType", "NONE", "--mail-type"),
        ("MailUser", "bob", "--mail-user"),
        ("Nice", "100", "--nice"),
        ("Reservation", "r2", "--reservation"),
        ("Licenses", "(null)", "--licenses"),
        ("EligibleTime", "2030-01-02T00:00:00", "--begin"),
        ("Deadline", "2031-01-01T00:00:00", "--deadline"),
        ("MinTmpDiskNode", "0", "--tmp"),
        ("Contiguous", "0", "--contiguous"),
        ("Comment", "x", "--comment"),
    ],
)
def test_no_change_of_any_option_is_missed(field: str, value: str, option: str) -> None:
    """A site that takes away a node list, a reservation, GPUs, a throttle ... is heard of."""
    assert compare_many({**MANY_JOB, field: value}) == [option]


def test_a_throttle_that_is_gone_is_said() -> None:
    """Slurm shows no throttle of an array that has none."""
    job = {key: value for key, value in MANY_JOB.items() if key != "ArrayTaskThrottle"}
    assert compare_many({**job, "ArrayTaskId": "0-5"}) == ["--array"]
    assert compare_many({**job, "ArrayTaskId": "3"}) == [], "the record of one task never shows it"


def test_an_unlimited_job_is_one_with_time_zero() -> None:
    """``time=0`` and UNLIMITED are the same."""
    experiment = Experiment(resources=Resources(time="0"))
    assert compare({"TimeLimit": "UNLIMITED"}, experiment) == []
    assert compare({"TimeLimit": "1-00:00:00"}, experiment) == [("--time", "1-00:00:00")]
