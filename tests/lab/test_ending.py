"""How a job ends, and what is known of it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import (
    ONE,
    command,
    fake,
    job_of,
    log_of,
    slurmkit,
    status,
    submit,
    wait_ended,
    wait_printed,
)
from polling import wait_until

from slurmkit.errors import MissingProgramError
from slurmkit.lab.daemons import Lab
from slurmkit.launch.ledger import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.lab

#: Prints, and then waits to be ended.
ENDLESS = command("bash", "-c", "echo up; exec sleep 300")


BOOKS = f"book{os.getpid()}"


@pytest.fixture(scope="module", autouse=True)
def books(lab_folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Begin to start a Slurm with accounting. Its database takes seconds: other tests run meanwhile."""
    words = ["lab", "up", f"--name={BOOKS}", "--nodes=1", "--leaf=1", "--accounting"]
    env = {**os.environ, "SLURMKIT_LAB_DIR": str(lab_folder)}
    program = Path(sys.executable).parent / "slurmkit"
    with subprocess.Popen(
        [program, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as begun:
        yield begun
    Lab.end(BOOKS, lab_folder)


@pytest.fixture(scope="module", autouse=True)
def forgotten(
    start_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lab, Path, dict[str, Path]]:
    """Runs that ended in every way on a Slurm that forgets a job two seconds after its end.

    As every one without accounting does after minutes. It takes its time, and does so while other tests run.
    """
    lab = start_lab(f"forget{os.getpid()}", nodes=1, leaf=1, extra="MinJobAge=2\n")
    folder = tmp_path_factory.mktemp("forgotten")
    deaf = command("bash", "-c", "trap 'exit 0' TERM; echo up; while :; do read -rt 0.1 <> <(:); done")
    commands = {
        "done": command("true"),
        "failed": command("bash", "-c", "exit 3"),
        "ours": deaf,
        "theirs": deaf,
    }
    runs = {
        name: submit(lab, folder, *ONE, words, f"name={name}", "resources.cpus_per_task=1")
        for name, words in commands.items()
    }
    for name in ("ours", "theirs"):
        wait_printed(log_of(runs[name]))
    slurmkit(lab, folder, "cancel", str(runs["ours"]))
    lab.run(["scancel", job_of(folder, runs["theirs"])])
    return lab, folder, runs


def test_cancel_ends_a_run(lab: Lab, tmp_path: Path) -> None:
    """``slurmkit cancel`` ends a running job and a second one says that nothing is left."""
    run = submit(lab, tmp_path, *ONE, ENDLESS)
    wait_printed(log_of(run))
    slurmkit(lab, tmp_path, "cancel", "last")
    assert wait_ended(lab, tmp_path) == ["CANCELLED"]
    assert "nothing to cancel" in slurmkit(lab, tmp_path, "cancel", "last").stderr


def test_one_point_of_a_sweep(lab: Lab, tmp_path: Path) -> None:
    """``JOB_1``, or the id that the task itself sees, names one point for status, logs and cancel; the others live on."""
    words = ("-m", *ONE, "+env.vars.X=0", "trainer.seed=1,2,3")
    run = submit(lab, tmp_path, *words, command("bash", "-c", 'echo "$@"; exec sleep 300', "me"))
    job = job_of(tmp_path)
    for point in range(3):
        wait_printed(run / "points" / "0" / str(point) / "log")
    assert [point["job"] for point in status(lab, tmp_path, f"{job}_1")] == [f"{job}_1"]
    assert slurmkit(lab, tmp_path, "logs", f"{job}_1").stdout == "trainer.seed=2\n"
    listed = lab.run(["squeue", "--noheader", f"--jobs={job}", "--format=%A %F_%K"]).stdout.splitlines()
    seen = dict(
        line.split() for line in listed if line.split()[0] != job
    )  # SLURM_JOB_ID, but the last has the array's
    assert len(seen) == 2
    for own, task in seen.items():
        assert [point["job"] for point in status(lab, tmp_path, own)] == [task]
    slurmkit(lab, tmp_path, "cancel", f"{job}_1")
    wait_until(
        lambda: status(lab, tmp_path, f"{job}_1")[0]["state"] == "CANCELLED", 30, "the point to be cancelled"
    )
    assert [point["state"] for point in status(lab, tmp_path)] == ["RUNNING", "CANCELLED", "RUNNING"]
    for verb in ("status", "logs", "cancel"):
        assert "tasks 0 to 2" in slurmkit(lab, tmp_path, verb, f"{job}_3", code=2).stderr


def test_a_reason_ends_with_its_cause(lab: Lab, tmp_path: Path) -> None:
    """What a job waited for is no reason once it is cancelled."""
    submit(lab, tmp_path, *ONE, command("true"), "+resources.extra.hold=true")
    assert status(lab, tmp_path)[0]["reason"] == "JobHeldUser"
    lab.run(["scancel", job_of(tmp_path)])
    assert wait_ended(lab, tmp_path) == ["CANCELLED"]
    assert status(lab, tmp_path)[0]["reason"] == ""


def test_wait_tells_failure_from_success(lab: Lab, tmp_path: Path) -> None:
    """``submit --wait`` ends with 0 or 1 as the job did, and a failed rank fails the whole job at once."""
    slurmkit(lab, tmp_path, "submit", "--wait", *ONE, command("true"))
    failing = command("bash", "-c", "[ $SLURM_PROCID = 1 ] && exit 3; sleep 100")
    slurmkit(lab, tmp_path, "submit", "--wait", *ONE, failing, "resources.ntasks_per_node=2", code=1)
    assert status(lab, tmp_path)[0]["state"] == "FAILED"


def test_ctrl_c_ends_the_waiting_and_not_the_job(lab: Lab, tmp_path: Path) -> None:
    """``submit --wait`` that is interrupted says how to end the job, which goes on."""
    words = [Path(sys.executable).parent / "slurmkit", "submit", "--wait", *ONE, ENDLESS]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path, env=lab.env, stdout=pipe, stderr=pipe, text=True) as waiting:
        assert waiting.stdout is not None
        run = Path(waiting.stdout.readline().strip())
        wait_printed(log_of(run))
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert f"slurmkit cancel {run.name}" in said
    assert status(lab, tmp_path)[0]["state"] == "RUNNING"


def test_a_cancelled_program_does_not(lab: Lab, tmp_path: Path) -> None:
    """What brings a preempted program back never brings a cancelled one back."""
    run = submit(lab, tmp_path, *ONE, ENDLESS)
    wait_printed(log_of(run))
    job = job_of(tmp_path)
    lab.run(["scancel", job])
    assert wait_ended(lab, tmp_path) == ["CANCELLED"]
    wait_until(lambda: any(life.exit is not None for life in Run(run).lives()), 30, "its batch script to end")
    assert "Restarts=0" in lab.run(["scontrol", "show", "job", job]).stdout


def test_status_with_accounting(
    books: subprocess.Popen[bytes], lab_folder: Path, missing: Callable[[str], None], tmp_path: Path
) -> None:
    """Where a site has accounting, sacct knows the end of a job that the queue has dropped."""
    books.wait(120)
    try:
        lab = Lab.up(BOOKS, nodes=1, leaf=1, accounting=True, folder=lab_folder)
    except MissingProgramError as error:
        missing(f"{error}; {error.hint}")
    submit(lab, tmp_path, *ONE, command("true"))
    job = job_of(tmp_path)
    wait_until(
        lambda: "COMPLETED" in lab.run(["sacct", "-XnPj", job, "-o", "State"]).stdout,
        30,
        "sacct to know the job",
    )
    # A squeue that has forgotten everything, in front of the real one.
    path = fake(tmp_path, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    done = slurmkit(lab, tmp_path, "status", "last", "--json", PATH=path)
    assert '"state": "COMPLETED"' in done.stdout
    assert '"source": "sacct"' in done.stdout


def test_how_a_run_ended_is_known_after_slurm_forgot_it(forgotten: tuple[Lab, Path, dict[str, Path]]) -> None:
    """Completed, failed, cancelled by us and cancelled by scancel: none is taken for another once Slurm has dropped it."""
    lab, folder, runs = forgotten
    wait_until(
        lambda: not lab.run(["squeue", "--noheader", "--states=all"]).stdout,
        60,
        "Slurm to forget all of it",
    )
    ended = {name: status(lab, folder, run)[0] for name, run in runs.items()}
    assert {name: point["state"] for name, point in ended.items()} == {
        "done": "COMPLETED",
        "failed": "FAILED",
        "ours": "CANCELLED",
        "theirs": "STOPPED",
    }
    assert ended["failed"]["reason"] == "exit code 3"
    assert "nothing to cancel" in slurmkit(lab, folder, "cancel", str(runs["theirs"])).stderr
