"""What was asked and what Slurm took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmkit.compiler.directives import job_directives
from slurmkit.config.schema import Experiment, Requeue, Resources, Topology
from slurmkit.launch.readback import differences

if TYPE_CHECKING:
    from collections.abc import Mapping

FEW_ASKED = Experiment(
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
FEW_JOB = {
    "JobName": "gpt", "Partition": "low", "NumNodes": "2-2", "CPUs/Task": "2", "NtasksPerN:B:S:C": "2:0:*:*", "MinMemoryNode": "4G", "TimeLimit": "00:30:00",
    "TresPerNode": "gres:gpu:a100:2", "Requeue": "1", "Switches": "1@00:05:00", "Comment": "a b",
}  # fmt: skip


#: An experiment with every option that Slurm shows, and the job as 22.05 and as later releases show it.
MANY_ASKED = Experiment(
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
#: What was asked, the size of its array, and the job as Slurm shows it.
Asked = tuple[Experiment, "int | None", dict[str, str]]
#: A job for one user's jobs alone, in the words of 26.05; before it, OverSubscribe says it.
OF_A_USER: Asked = (
    Experiment(resources=Resources(time="0", exclusive="user")),
    None,
    {"OverSubscribe": "NO", "Exclusive": "USER"},
)

FEW: Asked = (FEW_ASKED, None, FEW_JOB)
MANY: Asked = (MANY_ASKED, 6, MANY_JOB)
UNLIMITED: Asked = (Experiment(resources=Resources(time="0")), None, {"TimeLimit": "UNLIMITED"})


def compare(asked: Asked, changes: Mapping[str, str]) -> list[tuple[str, str]]:
    """What is called different in a job that Slurm shows with some fields changed."""
    experiment, array, job = asked
    found = differences(job_directives(experiment, "log", array), {**job, **changes})
    return [(item["option"], item["got"]) for item in found]


@pytest.mark.parametrize(
    ("asked", "changes"),
    [
        (FEW, {}),
        (FEW, {"TresPerNode": "gres/gpu:a100:2", "Switches": "1@05:00"}),
        (MANY, {}),
        (MANY, LATER),
        (MANY, {"Dependency": "(null)"}),
        (MANY, {"EligibleTime": "Unknown"}),
        (MANY, {"Exclusive": "NODE"}),
        (UNLIMITED, {}),
        (OF_A_USER, {}),
        ((*OF_A_USER[:2], {"OverSubscribe": "USER"}), {}),
    ],
)
def test_another_spelling_is_no_difference(asked: Asked, changes: dict[str, str]) -> None:
    """Slurm writes 30:00 as 00:30:00 and gres as gres:gpu:…, by release: the same job is not called different."""
    assert compare(asked, changes) == []


@pytest.mark.parametrize(
    ("asked", "field", "value", "option"),
    [
        (FEW, "Partition", "short", "--partition"),
        (FEW, "NumNodes", "1", "--nodes"),
        (FEW, "TimeLimit", "00:10:00", "--time"),
        (FEW, "TresPerNode", "gres:gpu:a100:1", "--gres"),
        (FEW, "MinMemoryNode", "2G", "--mem"),
        (FEW, "CPUs/Task", "1", "--cpus-per-task"),
        (FEW, "NtasksPerN:B:S:C", "1:0:*:*", "--ntasks-per-node"),
        (FEW, "Switches", "2@00:05:00", "--switches"),
        (UNLIMITED, "TimeLimit", "1-00:00:00", "--time"),
        (MANY, "JobName", "a", "--job-name"),
        (MANY, "ArrayTaskThrottle", "1", "--array"),
        (MANY, "MemPerTres", "gres:gpu:512", "--mem-per-gpu"),
        (MANY, "CpusPerTres", "gres:gpu:1", "--cpus-per-gpu"),
        (MANY, "TresPerNode", "gres:gpu:a100:1,gres:shard:4", "--gres"),
        (MANY, "TresPerNode", "gres:shard:4", "--gres"),
        (MANY, "TresPerTask", "gres:gpu:1", "--gpus-per-task"),
        (MANY, "ReqNodeList", "(null)", "--nodelist"),
        (MANY, "ExcNodeList", "n3", "--exclude"),
        (MANY, "OverSubscribe", "OK", "--exclusive"),
        (MANY, "Exclusive", "NO", "--exclusive"),
        (OF_A_USER, "Exclusive", "NODE", "--exclusive"),
        (MANY, "Dependency", "afterok:57(unfulfilled)", "--dependency"),
        (MANY, "WCKey", "v", "--wckey"),
        (MANY, "MailType", "NONE", "--mail-type"),
        (MANY, "MailUser", "bob", "--mail-user"),
        (MANY, "Nice", "100", "--nice"),
        (MANY, "Reservation", "r2", "--reservation"),
        (MANY, "Licenses", "(null)", "--licenses"),
        (MANY, "EligibleTime", "2030-01-02T00:00:00", "--begin"),
        (MANY, "Deadline", "2031-01-01T00:00:00", "--deadline"),
        (MANY, "MinTmpDiskNode", "0", "--tmp"),
        (MANY, "Contiguous", "0", "--contiguous"),
        (MANY, "Comment", "x", "--comment"),
    ],
)
def test_what_a_site_rewrites_is_said(asked: Asked, field: str, value: str, option: str) -> None:
    """A job_submit plugin that routes, cuts or strips the job shows up as option and got, whatever the option."""
    assert compare(asked, {field: value}) == [(option, value)]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_site_that_decides_on_requeue_is_heard_of(enabled: bool) -> None:
    """A requeue that is taken away, and one that is forced on a job that said --no-requeue."""
    asked: Asked = (Experiment(requeue=Requeue(enabled=enabled)), None, {})
    got = "0" if enabled else "1"
    option = "--requeue" if enabled else "--no-requeue"
    assert compare(asked, {"Requeue": got}) == [(option, f"Requeue={got}")]


def test_a_throttle_that_is_gone_is_said() -> None:
    """Slurm shows no throttle of an array that has none."""
    job = {key: value for key, value in MANY_JOB.items() if key != "ArrayTaskThrottle"}
    asked: Asked = (MANY_ASKED, 6, job)
    assert compare(asked, {"ArrayTaskId": "0-5"}) == [("--array", "none")]
    assert compare(asked, {"ArrayTaskId": "3"}) == [], "the record of one task never shows it"
