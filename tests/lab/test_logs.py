"""``slurmkit logs --follow``: from before the job starts until after it has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import ONE, command, job_of, log_of, slurmkit, status, submit, wait_ended, wait_printed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurmkit.lab.daemons import Lab

    Follow = Callable[[Path], subprocess.Popen[str]]

pytestmark = pytest.mark.lab


@pytest.fixture
def follow(lab: Lab) -> Iterator[Follow]:
    """Start ``slurmkit logs last --follow`` in a folder."""
    begun: list[subprocess.Popen[str]] = []

    def start(cwd: Path) -> subprocess.Popen[str]:
        words = [Path(sys.executable).parent / "slurmkit", "logs", "last", "--follow"]
        pipe = subprocess.PIPE
        begun.append(subprocess.Popen(words, cwd=cwd, env=lab.env, stdout=pipe, stderr=pipe, text=True))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def test_a_follower_comes_early_and_leaves_when_the_run_is_cancelled(
    lab: Lab, tmp_path: Path, follow: Follow
) -> None:
    """Follow says that it waits for the job, prints each line as it comes, and ends with the job."""
    run = submit(
        lab, tmp_path, *ONE, command("bash", "-c", "echo up; exec sleep 300"), "+resources.extra.hold=true"
    )
    follower = follow(tmp_path)
    assert follower.stderr is not None
    assert follower.stdout is not None
    assert "waiting for it" in follower.stderr.readline()
    lab.run(["scontrol", "release", job_of(tmp_path)])
    assert follower.stdout.readline() == "up\n"
    slurmkit(lab, tmp_path, "cancel", str(run))
    out, err = follower.communicate(timeout=60)
    assert "up\n" + out == log_of(run).read_text(), "Slurm has its say, too"
    assert err == f"{job_of(tmp_path)}: CANCELLED\n"
    assert follower.returncode == 0


def test_a_preempted_program_comes_back(lab: Lab, tmp_path: Path, follow: Follow) -> None:
    """A program that knows nothing of signals dies of the SIGTERM of its grace, and is requeued once; who follows it sees both lives."""
    words = command(
        "bash", "-c", 'echo life 0$SLURM_RESTART_COUNT; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
    )
    run = submit(lab, tmp_path, *ONE, words)
    follower = follow(tmp_path)
    wait_printed(log_of(run), "life 0")
    lab.run(["sbatch", "--partition=high", "--nodes=8", "--exclusive", "--output=/dev/null", "--wrap=true"])
    assert wait_ended(lab, tmp_path) == ["COMPLETED"]
    assert [line for line in log_of(run).read_text().splitlines() if line.startswith("life")] == [
        "life 0",
        "life 01",
    ]
    assert status(lab, tmp_path)[0]["restarts"] == 1
    out, err = follower.communicate(timeout=60)
    assert out == log_of(run).read_text()
    assert err.endswith(f"{job_of(tmp_path)}: COMPLETED\n")
