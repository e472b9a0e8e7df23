"""A slurmctld that is busy, or hangs: what a person is told, and that no job is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from command import ONE, command, fake, folders, slurmkit, status, submit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

JOB = (*ONE, command("hostname"))
MOVING = r"\S*[0-9]\S*|[A-Z]{4,}"
#: Once there is a file, half a second after it was first asked, slurmctld goes on.
SCONTROL = """
if rm {stopped} 2>/dev/null; then (sleep 0.5; kill -CONT {pid}) >/dev/null 2>&1 & fi
exec {scontrol} "$@"
"""
#: Stops slurmctld for as long as sbatch waits for it.
SBATCH = """
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
    stopped, pid = tmp_path / "stopped", busy.pids["slurmctld"]
    scontrol = SCONTROL.format(stopped=stopped, pid=pid, scontrol=shutil.which("scontrol"))
    path = fake(tmp_path, "scontrol", scontrol)
    for words in (("submit", *JOB), ("status", "last")):
        quick = slurmkit(busy, tmp_path, *words).stderr
        stopped.touch()
        stop()
        slow = slurmkit(busy, tmp_path, *words, PATH=path).stderr
        assert not stopped.exists()
        # Ids and the job's state may differ.
        assert re.sub(MOVING, "", slow) == re.sub(MOVING, "", quick)


def test_one_that_hangs_is_told_in_one_line(busy: Lab, stop: Callable[[], None], tmp_path: Path) -> None:
    """Exit code 4: it did not answer in time, which is not the same as being down; nothing is written, and status shows what it can."""
    run = submit(busy, tmp_path, *JOB)
    stop()
    for words in (("status", "last"), ("submit", *JOB)):
        done = slurmkit(busy, tmp_path, *words, code=4)
        *known, said, hint = done.stderr.splitlines()
        assert len(known) == done.stdout.count("UNKNOWN") == (words[0] == "status"), "what the folder knows"
        assert said.startswith("slurmkit: slurmctld did not answer within ")
        assert "try again" in hint
    assert folders(tmp_path) == [run.name]


def test_a_job_that_was_taken_after_sbatch_gave_up_is_found(busy: Lab, tmp_path: Path) -> None:
    """Sbatch timed out, and slurmctld made the job all the same: there is one run, and it has its job."""
    sbatch = SBATCH.format(pid=busy.pids["slurmctld"], sbatch=shutil.which("sbatch"))
    run = submit(busy, tmp_path, *JOB, PATH=fake(tmp_path, "sbatch", sbatch))
    (point,) = status(busy, tmp_path, run)
    assert point["job"]
    made = busy.run(["squeue", "--noheader", "--states=all", "--format=%o"]).stdout.splitlines()
    assert made.count(str(run / "job.sbatch")) == 1
