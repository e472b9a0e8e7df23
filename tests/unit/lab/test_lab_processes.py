"""Processes of a lab are found again and ended, and no other process ever is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from polling import wait_until

from slurmkit.lab.processes import MARK, end_all, lab_processes, spawn, started, tail
from slurmkit.lab.record import Daemon


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "slurm.conf"


def start(root: Path, script: str, **env: str) -> int:
    """Start a marked daemon and wait until it has said so."""
    output = root / "output"
    pid = spawn(
        ["/bin/sh", "-c", script],
        env={MARK: str(root), "PATH": "/usr/bin:/bin", **env},
        cwd=root,
        output=output,
    )
    wait_until(lambda: output.exists() and "ready" in output.read_text(), 10, "the daemon to be ready")
    return pid


def test_a_daemon_is_in_a_session_of_its_own(tmp_path: Path, conf: Path) -> None:
    """Neither our terminal's Ctrl-C nor our end reaches it, and it keeps no folder of ours busy."""
    pid = start(tmp_path, "echo ready; exec sleep 60")
    try:
        assert os.getsid(pid) == pid
        assert Path(f"/proc/{pid}/cwd").resolve() == tmp_path.resolve()
    finally:
        end_all(tmp_path, conf)


def test_daemons_and_what_descends_from_them_are_ended(tmp_path: Path, conf: Path) -> None:
    """A child that ignores SIGTERM, has a session of its own and an empty environment is ended too."""
    pid = start(tmp_path, "trap '' TERM; setsid env -i /bin/sleep 60 & echo ready $!; wait")
    child = int((tmp_path / "output").read_text().split()[1])

    def bare() -> bool:
        command, variables = (Path(f"/proc/{child}/{name}").read_bytes() for name in ("cmdline", "environ"))
        return command.startswith(b"/bin/sleep") and not variables

    wait_until(bare, 10, "the child to have lost the mark")
    assert lab_processes(tmp_path, conf) == {pid, child}
    assert end_all(tmp_path, conf) == 2
    assert started(pid) is None
    assert started(child) is None
    assert lab_processes(tmp_path, conf) == set()


def test_jobs_are_ended_and_people_in_its_shell_are_not(tmp_path: Path, conf: Path) -> None:
    """SLURM_CONF with a job id is a job of the lab; without one it is somebody who looks at it."""
    script = "import sys; print(flush=True); sys.stdin.read()"
    base = {"SLURM_CONF": str(conf)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen([sys.executable, "-c", script], env={**base, "SLURM_JOB_ID": "7"}, **pipes) as job,
        subprocess.Popen([sys.executable, "-c", script], env=base, **pipes) as person,
        subprocess.Popen(
            [sys.executable, "-c", script], env={MARK: f"{tmp_path}-other"}, **pipes
        ) as neighbour,
    ):
        for process in (job, person, neighbour):
            process.stdout.readline()
        assert end_all(tmp_path, conf) == 1
        job.wait(5)
        assert person.poll() is None
        assert neighbour.poll() is None
        for process in (person, neighbour):
            process.kill()


def test_steps_without_an_environment_are_ended_and_people_in_the_folder_are_not(
    tmp_path: Path, conf: Path
) -> None:
    """From 24.11 on, slurmstepd's title overwrites its environment: its name and folder tell it."""
    (tmp_path / "slurmstepd").symlink_to("/bin/sleep")
    with (
        subprocess.Popen([tmp_path / "slurmstepd", "60"], cwd=tmp_path, env={}) as step,
        subprocess.Popen([tmp_path / "slurmstepd", "60"], cwd="/", env={}) as other,
        subprocess.Popen(["/bin/sleep", "60"], cwd=tmp_path, env={}) as person,
    ):
        assert end_all(tmp_path, conf) == 1
        step.wait(5)
        for process in (other, person):
            assert process.poll() is None
            process.kill()


def test_a_lab_can_be_ended_from_within(tmp_path: Path, conf: Path) -> None:
    """The process that ends a lab, and whoever called it, are never among those it ends."""
    ender = (
        "import sys; from pathlib import Path; from slurmkit.lab.processes import end_all; "
        f"print('ready', end_all(Path({str(tmp_path)!r}), Path({str(conf)!r})), flush=True)"
    )
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    start(tmp_path, f'sleep 60 & {sys.executable} -c "{ender}"; echo survived', **env)
    output = tmp_path / "output"
    wait_until(lambda: "survived" in output.read_text(), 10, "who ended the lab to go on")
    assert "ready 1" in output.read_text()


def test_a_dead_child_counts_as_dead(tmp_path: Path) -> None:
    """A zombie of ours is no live daemon."""
    pid = start(tmp_path, "echo ready")
    wait_until(lambda: started(pid) is None, 10, "the child to be dead")


def test_a_number_that_came_round_again_is_another_process(tmp_path: Path, conf: Path) -> None:
    """With its start a process is told from a later one of the same number, however long it lives."""
    pid = start(tmp_path, "echo ready; exec sleep 60")
    try:
        mine, its = started(os.getpid()), started(pid)
        assert mine is not None
        assert its is not None
        assert mine < its  # pytest took longer than a tick to come here
        assert started(pid) == its
        assert not Daemon("slurmd n1", pid, mine, "").alive
        assert Daemon("slurmd n1", pid, its, "").alive
    finally:
        end_all(tmp_path, conf)


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    """The last lines; a log that is empty or missing says so."""
    log = tmp_path / "log"
    assert "is empty" in tail(log)
    log.write_bytes(b"one\ntwo\n\xffthree\n")
    assert tail(log, 2) == "two\n\ufffdthree"
