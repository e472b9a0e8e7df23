"""What a real Slurm shows of a job is what was asked: no option is called different that is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import slurmkit

if TYPE_CHECKING:
    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

#: Far ahead, so that the job waits where it can be read.
LATER = ("+resources.extra.begin=2037-01-01", "payload=command", "payload.command=[hostname]")


def asked_and_got(lab: Lab, folder: Path, *words: str) -> list[dict[str, str]]:
    run = Path(slurmkit(lab, folder, "submit", *LATER, *words).stdout.strip())
    attempt = json.loads((run / "attempts" / "0001.json").read_text())
    lab.run(["scancel", attempt["job_id"]])
    found: list[dict[str, str]] = attempt["differences"]
    return found


@pytest.mark.parametrize(
    "words",
    [
        (
            "name='a Requeue=0 b'",
            "resources.comment='x Partition=foo y'",
            "resources.nodes=2",
            "resources.nodelist='n[1-2]'",
            "resources.exclude='n3,n4'",
            "resources.exclusive=true",
            "resources.gpus_per_node=a100:2",
            "resources.dependency=singleton",
            "resources.time=0:30",
            "+resources.extra.nice=10",
            "+resources.extra.contiguous=true",
            "+resources.extra.deadline=2038-01-01",
            "resources.mail_type='END,FAIL'",
        ),
        (
            "resources.gpus_per_task=a100:1",
            "resources.ntasks_per_node=2",
            "resources.mem_per_gpu=1G",
            "resources.exclusive=user",
            "resources.time=0",
            "resources.mail_type=ALL",
        ),
        ("resources.gres=gres/gpu:a100:2", "resources.cpus_per_gpu=2", "resources.mem_per_gpu=1500M"),
        (
            "resources.gres=gpu",
            "resources.cpus_per_task=2",
            "resources.mem_per_cpu=100M",
            "+resources.extra.nice=true",
        ),
    ],
)
def test_what_was_asked_is_what_is_shown(lab: Lab, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Every option that Slurm shows is read back in Slurm's spelling, and none is called different."""
    assert asked_and_got(lab, tmp_path, *words) == []


def test_a_throttle_is_read_back(lab: Lab, tmp_path: Path) -> None:
    """The throttle of an array is in its record."""
    assert (
        asked_and_got(
            lab, tmp_path, "-m", "resources.array_parallelism=2", "+env.vars.A=1", "trainer.seed=1,2,3"
        )
        == []
    )
