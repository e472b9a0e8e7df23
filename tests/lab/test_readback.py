"""What a real Slurm shows of a job is what was asked: no option is called different that is not."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from command import command, fake, submit

if TYPE_CHECKING:
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

#: Far ahead, so that the job waits where it can be read.
LATER = ("+resources.extra.begin=2037-01-01", "payload=command", command("hostname"))


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
        ("-m", "resources.array_parallelism=2", "trainer.seed=1,2,3"),
    ],
    ids=["a node's", "a task's", "gres", "defaults", "throttle"],
)
def test_what_was_asked_is_what_is_shown(lab: Lab, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The one option that a site rewrites is called different, and none that Slurm only spells in another way."""
    path = fake(tmp_path, "sbatch", f'exec {shutil.which("sbatch")} --job-name=rewritten "$@"')
    run = submit(lab, tmp_path, *words, *LATER, PATH=path)
    differences = json.loads((run / "attempts" / "0001.json").read_text())["differences"]
    assert [(item["option"], item["got"]) for item in differences] == [("--job-name", "rewritten")]
