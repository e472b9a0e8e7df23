"""The lab against the real Slurm of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from polling import wait_until

import slurmkit
from slurmkit.errors import LabError, MissingProgramError, SlurmkitError
from slurmkit.lab import machine
from slurmkit.lab.daemons import Lab

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.lab

CLI = [sys.executable, "-c", "from slurmkit.cli.main import main; main()", "lab"]
# Every Linux has this one. It is not `nobody`, which Slurm takes as SlurmUser no more.
SOMEBODY = "daemon"
AS_SOMEBODY = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]


def traces(folder: Path) -> list[str]:
    """Processes, other than this one, that have to do with a folder.

    They have it in their command line or environment, stand in it, or have a file of it open.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            known = [command, (process / "environ").read_bytes()]
            known += [os.fsencode(link.readlink()) for link in [process / "cwd", *(process / "fd").iterdir()]]
        except OSError:
            continue
        if any(os.fsencode(folder) in text for text in known) and int(process.name) != os.getpid():
            found.append(f"{process.name} {command.decode(errors='replace')}")
    return found


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SLURMKIT_LAB_DIR": str(folder)}
    return subprocess.run([*CLI, *words], capture_output=True, text=True, check=False, env=env, timeout=60)


def state(lab: Lab, job: str) -> str:
    return lab.run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]).stdout.strip()


def need_accounting() -> None:
    try:
        machine.find_programs(accounting=True)
    except MissingProgramError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


def submit(lab: Lab, script: str, *options: str) -> str:
    done = lab.run(["sbatch", "--parsable", *options], stdin=f"#!/bin/bash\n{script}\n")
    return done.stdout.strip()


def test_up_is_fast_and_every_node_is_idle(start_lab: Callable[..., Lab]) -> None:
    """Eight nodes are idle within 10 s."""
    begin = time.monotonic()
    lab = start_lab()
    assert time.monotonic() - begin < 10
    assert lab.status().nodes == {"idle": 8}
    lab.down()


def test_two_leaves_hang_under_one_spine(lab: Lab) -> None:
    """Slurm itself sees leaf1 = n[1-4], leaf2 = n[5-8] and a spine over both."""
    topology = lab.run(["scontrol", "show", "topology"]).stdout
    assert "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-4]" in topology
    assert "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[5-8]" in topology
    assert "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-8] Switches=leaf[1-2]" in topology


def test_gpus_are_handed_out(lab: Lab) -> None:
    """A node has four a100, and two jobs on one node get different ones."""
    assert lab.run(["sinfo", "-h", "-p", "low", "-o", "%N %G"]).stdout.strip() == "n[1-8] gpu:a100:4"
    held = submit(lab, "exec sleep 60", "-w", "n1", "--gres=gpu:a100:3", "-o", "/dev/null")
    wait_until(lambda: state(lab, held) == "RUNNING", 10, "the first job to hold three GPUs")
    ask = ["srun", "-w", "n1", "--gres=gpu:a100:1", "printenv", "CUDA_VISIBLE_DEVICES"]
    assert lab.run(ask).stdout.strip() == "3"


def test_prolog_and_epilog_write_a_line_on_each_node(lab: Lab) -> None:
    """A job of two nodes leaves a start and an end on both, with its number and exit code."""
    script = "echo $SLURM_JOB_ID; exit 3"
    job = lab.run(["srun", "-N2", "--gres=gpu:2", "sh", "-c", script], check=False).stdout.split()[0]

    def lines() -> list[dict[str, object]]:
        files = [path.read_text() for path in lab.hook_state.glob("n*/jobs.jsonl")]
        every = [json.loads(line) for text in files for line in text.splitlines()]
        return [line for line in every if line["job"] == int(job)]

    wait_until(lambda: len(lines()) == 4, 10, "two lines from each of two nodes")
    assert sorted((line["event"], line["node"]) for line in lines()) == [
        ("end", "n1"),
        ("end", "n2"),
        ("start", "n1"),
        ("start", "n2"),
    ]
    assert {line["exit_code"] for line in lines() if line["event"] == "end"} == {3}
    assert {(line["cluster"], line["restart"], line["gpus"]) for line in lines()} == {(lab.name, 0, "0,1")}


def test_a_low_job_moves_aside_for_a_high_one_and_comes_back(lab: Lab, tmp_path: Path) -> None:
    """Preemption sends its steps SIGTERM at once; a job that requeues itself runs again within seconds."""
    task = tmp_path / "task"
    requeue = 'trap "scontrol requeue $SLURM_JOB_ID; exit 1" TERM'
    task.write_text(f"{requeue}\ntouch {tmp_path}/started\nsleep 60 & wait\n")
    low = submit(lab, f"exec srun -N1 -n1 bash {task}", "-N8", "--exclusive", "-o", "/dev/null")
    wait_until((tmp_path / "started").exists, 10, "the low job to start")
    high = submit(lab, "exec sleep 60", "-p", "high", "-N8", "--exclusive", "-o", "/dev/null")
    wait_until(lambda: state(lab, high) == "RUNNING", 15, "the high job to run")
    assert state(lab, low) == "PENDING"
    lab.run(["scancel", high])
    wait_until(lambda: state(lab, low) == "RUNNING", 20, "the low job to run again")
    assert "Restarts=1" in lab.run(["scontrol", "show", "job", low]).stdout


def test_an_outer_job_does_not_leak_in(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """SBATCH and SLURM variables of the caller do not reach the lab's commands."""
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    job = submit(lab, "true", "-o", "/dev/null")
    wait_until(lambda: state(lab, job) == "COMPLETED", 30, "the job to run where the lab says")


def test_down_leaves_no_process_and_no_file(start_lab: Callable[..., Lab]) -> None:
    """Daemons, steps and a job that ignores SIGTERM and has forked are gone, and so is the folder."""
    lab = start_lab(nodes=2)
    script = "trap '' TERM; (setsid sleep 600 &); env -i sleep 600 & sleep 600"
    job = submit(lab, script, "-N2", "-o", "/dev/null")
    wait_until(lambda: state(lab, job) == "RUNNING", 10, "the job to run")
    wait_until(lambda: sum("sleep" in trace for trace in traces(lab.root)) >= 2, 10, "its processes")
    lab.down()
    assert not lab.root.exists()
    assert traces(lab.root) == []


def test_two_labs_live_side_by_side(lab: Lab, lab_folder: Path) -> None:
    """Labs started at the same moment do not meet; ending one leaves the others alone."""
    names = (f"left-{os.getpid()}", f"right-{os.getpid()}")
    env = {**os.environ, "SLURMKIT_LAB_DIR": str(lab_folder)}
    starts = [
        subprocess.Popen([*CLI, "up", "--name", name, "-N2"], env=env, stdout=subprocess.DEVNULL)
        for name in names
    ]
    try:
        assert [start.wait(30) for start in starts] == [0, 0]
        left, right = (Lab.open(name, lab_folder) for name in names)
        assert left.spec.port != right.spec.port
        left.down()
        assert right.run(["srun", "-N2", "true"]).returncode == 0
        assert right.status().healthy
        assert lab.status().healthy
    finally:
        for name in names:
            Lab.end(name, lab_folder)


def test_up_on_a_running_lab_takes_it_as_it_is(lab: Lab, lab_folder: Path) -> None:
    """The second `up` exits 0 with the same line; another shape is refused, naming the remedy."""
    again = call(lab_folder, "up", "--name", lab.name)
    assert (again.returncode, again.stdout) == (0, f"export SLURM_CONF={lab.conf}\n")
    assert "runs already" in again.stderr
    other = call(lab_folder, "up", "--name", lab.name, "--nodes", "3")
    assert other.returncode == 1
    assert f"slurmkit lab down --name {lab.name}" in other.stderr


def test_shell_runs_one_command_and_exits_as_it_does(lab: Lab, lab_folder: Path) -> None:
    """`lab shell -- COMMAND` is that command in the lab: its output, options and exit code."""
    done = call(lab_folder, "shell", "--name", lab.name, "--", "sh", "-c", "scontrol ping; exit 7")
    assert done.returncode == 7
    assert "is UP" in done.stdout
    missing = call(lab_folder, "shell", "--name", lab.name, "--", "no-such-command")
    assert missing.returncode == 2
    assert "no-such-command" in missing.stderr


def test_shell_marks_its_prompt(lab: Lab, lab_folder: Path) -> None:
    """`lab shell` alone opens $SHELL with the lab's name in front of the prompt."""
    env = {**os.environ, "SLURMKIT_LAB_DIR": str(lab_folder), "SHELL": "/bin/bash", "HOME": "/nonexistent"}
    argv = [
        "script",
        "-qec",
        f"{sys.executable} -c 'from slurmkit.cli.main import main; main()' lab shell --name {lab.name}",
    ]
    done = subprocess.run(
        [*argv, "/dev/null"],
        input="squeue --version; exit\n",
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=30,
    )
    assert f"({lab.name}) " in done.stdout
    assert "slurm-wlm" in done.stdout or "slurm " in done.stdout


def test_a_dead_daemon_is_named(start_lab: Callable[..., Lab], lab_folder: Path) -> None:
    """`status` names it and exits 1; `up` shows the tail of its log and does not start over a live lab."""
    lab = start_lab(nodes=2)
    os.kill(lab.pids["slurmd n2"], signal.SIGKILL)
    wait_until(lambda: not lab.status().healthy, 5, "the slurmd to be dead")
    status = call(lab_folder, "status", "--name", lab.name)
    assert status.returncode == 1
    assert "daemons  3 of 4 alive; dead: slurmd n2" in status.stdout
    up = call(lab_folder, "up", "--name", lab.name)
    assert up.returncode == 1
    assert "slurmd n2 is dead" in up.stderr
    assert "slurmd version" in up.stderr
    lab.down()
    assert traces(lab.root) == []


def test_a_failed_start_shows_the_log_and_leaves_nothing(
    start_lab: Callable[..., Lab], lab_folder: Path
) -> None:
    """A daemon that dies at its start is named with its last words, and the rest is cleared away."""
    name = f"broken-{os.getpid()}"
    with pytest.raises(LabError, match=r"slurmctld of lab .* died") as caught:
        start_lab(name, extra="SchedulerType=sched/nonsense")
    assert "sched/nonsense" in caught.value.detail
    assert not (lab_folder / name).exists()
    assert traces(lab_folder / name) == []


def test_a_slurm_for_one_slurmd_a_host_is_told(
    start_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where several slurmd on one host were not compiled in, the error says that and how to build it."""
    wrapper = tmp_path / "scontrol"
    wrapper.write_text(f'#!/bin/sh\n{shutil.which("scontrol")} "$@" | grep -v MULTIPLE_SLURMD\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(LabError, match="several slurmd on one host") as caught:
        start_lab(nodes=2)
    assert "--enable-multiple-slurmd" in caught.value.hint


@pytest.mark.parametrize(
    ("number", "shape", "reached"),
    [
        (signal.SIGINT, "--nodes=64", "log/munged.out"),
        (signal.SIGTERM, "--nodes=64", "log/slurmctld.out"),
        (signal.SIGINT, "--accounting", "db/ibdata1"),
    ],
    ids=["Ctrl-C", "SIGTERM", "Ctrl-C while MariaDB is made"],
)
def test_an_interrupted_start_leaves_nothing(lab_folder: Path, number: int, shape: str, reached: str) -> None:
    """Ctrl-C in the middle of `up` exits 130 and leaves no process and no file."""
    if shape == "--accounting":
        need_accounting()
    root = lab_folder / f"cut-{os.getpid()}"
    env = {**os.environ, "SLURMKIT_LAB_DIR": str(lab_folder)}
    argv = [*CLI, "up", "--name", root.name, shape]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as up:
        wait_until((root / reached).exists, 10, f"{reached} to be made")
        up.send_signal(number)
        out, _ = up.communicate(timeout=30)
    assert (up.returncode, out) == (130, b"")
    assert not root.exists()
    assert traces(root) == []


def test_a_killed_start_can_be_ended_and_started_anew(lab_folder: Path) -> None:
    """What a SIGKILLed `up` leaves is ended by `down`."""
    root = lab_folder / f"killed-{os.getpid()}"
    env = {**os.environ, "SLURMKIT_LAB_DIR": str(lab_folder)}
    argv = [*CLI, "up", "--name", root.name, "--nodes", "64"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        wait_until((root / "log" / "slurmctld.out").exists, 10, "the controller")
        up.kill()
    assert traces(root)
    done = call(lab_folder, "down", "--name", root.name)
    assert done.returncode == 0
    assert not root.exists()
    assert traces(root) == []
    again = call(lab_folder, "down", "--name", root.name)
    assert (again.returncode, again.stdout) == (0, "")
    assert "there is no lab" in again.stderr


def test_a_folder_that_is_no_lab_is_never_removed(lab_folder: Path) -> None:
    """`down` and `up` refuse a folder with other people's files, and touch nothing in it."""
    folder = lab_folder / f"thesis-{os.getpid()}"
    folder.mkdir()
    (folder / "chapter1.tex").touch()
    try:
        for verb in ("down", "up"):
            done = call(lab_folder, verb, "--name", folder.name)
            assert done.returncode == 1
            assert "is no lab: it holds chapter1.tex" in done.stderr
        assert (folder / "chapter1.tex").exists()
    finally:
        shutil.rmtree(folder)


def test_a_deep_folder_works(lab_folder: Path) -> None:
    """Where the folder's path is too long for a socket, sockets lie elsewhere, and go with the lab."""
    deep = lab_folder / ("deep" * 25)
    lab = Lab.up("x", nodes=2, folder=deep)
    run = Path(lab.spec.run)
    assert lab.run(["srun", "-N2", "true"]).returncode == 0
    lab.down()
    assert not run.exists()
    deep.rmdir()


def test_accounting_makes_sacct_work(start_lab: Callable[..., Lab]) -> None:
    """With --accounting, sacct knows a finished job and its GPUs."""
    need_accounting()
    lab = start_lab(nodes=2, accounting=True)
    job = submit(lab, "true", "--gres=gpu:2", "-o", "/dev/null")
    ask = ["sacct", "-nXP", "-j", job, "-o", "State,AllocTRES"]
    found = wait_until(
        lambda: "COMPLETED" in (said := lab.run(ask).stdout) and said, 20, "sacct to know the job"
    )
    assert "gres/gpu=2" in found
    lab.down()
    assert traces(lab.root) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_other_users_submit_to_a_lab_of_root(lab: Lab) -> None:
    """A job of an ordinary user runs as that user."""
    assert lab.run([*AS_SOMEBODY, "srun", "-N2", "id", "-un"], cwd=Path("/")).stdout.split() == [SOMEBODY] * 2


ORDINARY = """
import sys
from pathlib import Path
from slurmkit.lab.daemons import Lab
lab = Lab.up("mine", nodes=4, leaf=2, gpus=8, folder=Path(sys.argv[1]))
print(lab.spec.user)
print(lab.status().nodes["idle"])
print(lab.run(["srun", "-N4", "--gres=gpu:8", "id", "-un"], cwd=Path(sys.argv[1])).stdout.split())
print(sorted(path.parent.name for path in lab.hook_state.glob("*/jobs.jsonl")))
lab.down()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="every test here runs as an ordinary user already")
def test_an_ordinary_user_can_have_one(lab_folder: Path, missing: Callable[[str], None]) -> None:
    """Without root: all nodes idle, GPUs to hand out, Prolog runs, and nothing stays."""
    home = lab_folder / f"home-{os.getpid()}"
    package = Path(slurmkit.__file__).parent
    python = next(
        (
            path
            for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
            if _somebody_can_run(path)
        ),
        None,
    )
    if python is None:
        missing("there is no Python 3.10 that an ordinary user may execute")
    home.mkdir()
    try:
        shutil.copytree(package, home / "slurmkit", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(package.parent / "prolog_epilog", home / "prolog_epilog")
        shutil.chown(home, SOMEBODY, SOMEBODY)
        done = subprocess.run(
            [*AS_SOMEBODY, python, "-c", ORDINARY, str(home)],
            capture_output=True,
            text=True,
            check=False,
            env={
                "HOME": str(home),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(home),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            timeout=60,
        )
        assert done.stderr == ""
        user, idle, names, hooks = done.stdout.splitlines()
        assert (user, idle) == (SOMEBODY, "4")
        assert names == str([SOMEBODY] * 4)
        assert hooks == str(["n1", "n2", "n3", "n4"])
        assert not (home / "mine").exists()
        assert traces(home) == []
    finally:
        shutil.rmtree(home)


def _somebody_can_run(python: str) -> bool:
    probe = [*AS_SOMEBODY, python, "-c", "import sys; sys.exit(sys.version_info < (3, 10))"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def test_a_refused_lab_leaves_no_run_folder(tmp_path: Path) -> None:
    """A folder that cannot hold a lab is refused, and the short one for its sockets is gone again."""
    before = set(Path(tempfile.gettempdir()).glob("slurmkit-*"))
    with pytest.raises(SlurmkitError):
        Lab.up("odd", folder=tmp_path / ("a b" + "x" * 90))
    assert set(Path(tempfile.gettempdir()).glob("slurmkit-*")) <= before
