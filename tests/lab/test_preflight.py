"""What stands in a job's way is said before Slurm is given it, from what the live cluster answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command import ONE, command, folders, slurmkit

if TYPE_CHECKING:
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    ("override", "accepted", "mend"),
    [
        ("resources.partition=lwo", "low, high", "resources.partition=low"),
        ("resources.gres=gpu:A100:1", "gpu:a100", "resources.gres=gpu:a100:1"),
        ("resources.gres=gpu:a100:5", "1 to 4", "resources.gres=gpu:a100:4"),
        ("resources.nodes=9", "1 to 8", "resources.nodes=8"),
        ("resources.mem=64G", "up to 16000M", "resources.mem=16000M"),
    ],
)
def test_what_can_never_run_stops_with_exit_code_3(
    lab: Lab, tmp_path: Path, override: str, accepted: str, mend: str
) -> None:
    """Preflight against the live cluster: nothing is submitted or written, and the override that is given mends it."""
    before = lab.run(["squeue", "--noheader", "--states=all"]).stdout
    done = slurmkit(lab, tmp_path, "submit", *ONE, command("true"), override, code=3)
    assert "impossible" in done.stderr
    assert accepted in done.stderr
    assert f"mend it with: {mend}\n" in done.stderr
    assert not list(tmp_path.iterdir())
    assert lab.run(["squeue", "--noheader", "--states=all"]).stdout == before
    slurmkit(lab, tmp_path, "compile", *ONE, command("true"), mend)


def test_a_time_over_the_partitions_limit_is_impossible(lab: Lab, tmp_path: Path) -> None:
    """Slurm would hold such a job for ever as PartitionTimeLimit; the limit and the override are named."""
    lab.run(["scontrol", "update", "partitionname=low", "maxtime=60"])
    try:
        done = slurmkit(lab, tmp_path, "compile", *ONE, command("true"), "resources.time=2:00:00", code=3)
    finally:
        lab.run(["scontrol", "update", "partitionname=low", "maxtime=UNLIMITED"])
    assert "mend it with: resources.time=01:00:00" in done.stderr
    assert done.stdout == ""


def test_force_submits_all_the_same(lab: Lab, tmp_path: Path) -> None:
    """``--force`` hands even an impossible plan to Slurm, whose own words are then the error, and no folder is left."""
    done = slurmkit(
        lab, tmp_path, "submit", "--force", *ONE, command("true"), "resources.partition=lwo", code=1
    )
    assert "nvalid partition" in done.stderr
    assert not folders(tmp_path)


def test_more_nodes_than_a_leaf_is_a_warning(lab: Lab, tmp_path: Path) -> None:
    """Five nodes under one switch of four: the script is printed, and stderr says how long the job waits."""
    done = slurmkit(
        lab,
        tmp_path,
        "compile",
        *ONE,
        command("true"),
        "topology=one_switch",
        "topology.wait='1:00'",
        "resources.nodes=5",
    )
    assert "not now: topology.switches" in done.stderr
    assert "waits 00:01:00" in done.stderr
    assert "#SBATCH --switches=1@1:00" in done.stdout
