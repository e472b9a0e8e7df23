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
