"""A slurmctld that is busy, or hangs: what a person is told, and that no job is lost."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from command import slurmkit, status, submit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

ONE = ("payload=command", "payload.command=[hostname]", "resources.mem=100M")
#: Stops slurmctld for as long as sbatch waits for it.
SBATCH = """#!/bin/sh
kill -STOP {pid}
{sbatch} "$@"
code=$?
kill -CONT {pid}
exit $code
"""


@pytest.fixture(scope="module")
def busy(start_lab: Callable[..., Lab]) -> Lab:
    """A lab whose commands wait two seconds for slurmctld where others wait ten."""
    return start_lab(nodes=1, extra="MessageTimeout=2")


@pytest.fixture
def stop(busy: Lab) -> Iterator[Callable[[], None]]:
    """Stops slurmctld until the end of the test."""
    pid = busy.pids["slurmctld"]
    yield lambda: os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)


def test_a_busy_slurmctld_is_waited_for(busy: Lab, stop: Callable[[], None], tmp_path: Path) -> None:
    """Submit and status take longer, and say nothing of it."""
    for act in (lambda: submit(busy, tmp_path, *ONE), lambda: status(busy, tmp_path)):
        stop()
        again = threading.Timer(0.5, os.kill, (busy.pids["slurmctld"], signal.SIGCONT))
        again.start()
        act()
        again.join()


def test_one_that_hangs_is_told_in_one_line(busy: Lab, stop: Callable[[], None], tmp_path: Path) -> None:
    """Exit code 4: it did not answer in time, which is not the same as being down; nothing is written."""
    run = submit(busy, tmp_path, *ONE)
    stop()
    for words in (("status", "last"), ("submit", *ONE)):
        said, hint = slurmkit(busy, tmp_path, *words, code=4).stderr.splitlines()
        assert said.startswith("slurmkit: slurmctld did not answer within ")
        assert "try again" in hint
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.name != ".gitignore"] == [run.name]


def test_a_job_that_was_taken_after_sbatch_gave_up_is_found(busy: Lab, tmp_path: Path) -> None:
    """Sbatch timed out, and slurmctld made the job all the same: there is one run, and it has its job."""
    (tmp_path / "bin").mkdir()
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(SBATCH.format(pid=busy.pids["slurmctld"], sbatch=shutil.which("sbatch")))
    sbatch.chmod(0o755)
    run = submit(busy, tmp_path, *ONE, PATH=f"{sbatch.parent}{os.pathsep}{os.environ['PATH']}")
    (point,) = status(busy, tmp_path, run)
    assert point["job"]
    made = busy.run(["squeue", "--noheader", "--states=all", "--format=%o"]).stdout.splitlines()
    assert made.count(str(run / "job.sbatch")) == 1
