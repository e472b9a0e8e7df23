"""Labs come and go, against the real Slurm of this machine: whatever cuts a start short leaves nothing."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import fake
from labs import CLI, call, need_programs, start, state, submit, traces
from polling import wait_until

from slurmkit.errors import LabError
from slurmkit.lab import daemons, report
from slurmkit.lab.daemons import Lab
from slurmkit.lab.processes import MARK, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurmkit.lab.record import Record

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def up(lab_folder: Path) -> Iterator[Callable[[str], Lab]]:
    """Three labs that ``slurmkit lab up`` starts at one moment; each is waited for by the test that wants it.

    A test may end ``right`` and ``books``: nobody else wants them.
    """
    shapes = {"left": [], "right": ["-N2"], "books": ["-N2", "--accounting"]}
    begun = {name: start(lab_folder, "up", "--name", name, *words) for name, words in shapes.items()}

    def wait(name: str) -> Lab:
        _, err = begun[name].communicate(timeout=60)
        assert begun[name].returncode == 0, err
        return Lab.open(name, lab_folder)

    yield wait
    for name, process in begun.items():
        process.communicate(timeout=60)
        Lab.end(name, lab_folder)


def test_up_is_fast_and_every_node_is_idle(up: Callable[[str], Lab]) -> None:
    """Eight nodes are idle within 10 s, even if two other labs start meanwhile."""
    begin = time.monotonic()
    left = up("left")
    assert time.monotonic() - begin < 10
    assert left.status().nodes == {"idle": 8}


def test_labs_live_side_by_side_and_down_leaves_nothing(lab: Lab, up: Callable[[str], Lab]) -> None:
    """Labs started at one moment do not meet; of one that ends nothing is left, and the others go on.

    Nothing is no file, no daemon, no step, and no process of a job that ignores SIGTERM and has forked.
    """
    left, right = up("left"), up("right")
    assert left.spec.port != right.spec.port
    script = "trap '' TERM; (setsid sleep 600 &); env -i sleep 600 & sleep 600"
    job = submit(right, script, "-N2", "-o", "/dev/null")
    wait_until(lambda: state(right, job) == "RUNNING", 10, "the job to run")
    wait_until(lambda: sum("sleep" in trace for trace in traces(right.root)) >= 2, 10, "its processes")
    right.down()
    assert not right.root.exists()
    assert traces(right.root) == []
    for other in (lab, left):
        assert other.run(["srun", "-N2", "true"]).returncode == 0
        assert other.status().healthy


def test_a_job_of_the_lab_can_end_it(start_lab: Callable[..., Lab]) -> None:
    """`down` from within a job: the job, its step daemon and the folder go too."""
    lab = start_lab(nodes=1)
    words = " ".join(shlex.quote(word) for word in [*CLI, "down", "--name", lab.name])
    submit(lab, f"SLURMKIT_LAB_DIR={lab.root.parent} {words}", "-o", "/dev/null")
    wait_until(lambda: not lab.root.exists() and not traces(lab.root), 20, "the lab to be gone")


def test_a_dead_daemon_is_named(start_lab: Callable[..., Lab], lab_folder: Path) -> None:
    """`status` names it, exits 1 and shows its last words; `up` does not start over a live lab."""
    lab = start_lab("one-dead", nodes=2)
    os.kill(lab.pids["slurmd n2"], signal.SIGKILL)
    wait_until(lambda: not lab.status().healthy, 5, "the slurmd to be dead")
    status, again = (call(lab_folder, verb, "--name", lab.name) for verb in ("status", "up"))
    assert (status.returncode, again.returncode) == (1, 1)
    assert "daemons  3 of 4 alive; dead: slurmd n2\nnodes    2 idle\njobs     none" in status.stdout
    assert status.stderr.startswith("slurmkit: slurmd n2 of lab one-dead is dead\n  hint: slurmkit lab down")
    assert "slurmd version" in status.stderr
    assert again.stderr == status.stderr


def test_a_slurmctld_that_does_not_answer_is_named(
    start_lab: Callable[..., Lab], lab_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped or dead, it is named with its last words, and nobody is told that there are no jobs."""
    lab = start_lab("silent", nodes=1)
    job = submit(lab, "exec sleep 600", "-w", "n1", "-o", "/dev/null")
    slurmctld = lab.pids["slurmctld"]
    monkeypatch.setattr(report, "_ANSWER_TIMEOUT", 0.5)
    os.kill(slurmctld, signal.SIGSTOP)
    stopped = lab.status()
    os.kill(slurmctld, signal.SIGCONT)
    assert state(lab, job)
    assert (stopped.jobs, stopped.healthy) == (None, False)
    assert "slurmctld of lab silent lives and does not answer" in str(stopped.trouble)
    os.kill(slurmctld, signal.SIGKILL)
    wait_until(lambda: not lab.status().daemons["slurmctld"], 5, "slurmctld to be dead")
    status = call(lab_folder, "status", "--name", lab.name)
    assert status.returncode == 1
    assert "dead: slurmctld" in status.stdout
    assert "jobs     unknown: slurmctld does not answer" in status.stdout
    assert "slurmctld of lab silent is dead" in status.stderr
    last = (lab.root / "log" / "slurmctld.out").read_text().splitlines()[-1]
    assert f"\n  {last.strip()}\n" in status.stderr


def test_a_failed_start_shows_the_log_and_leaves_nothing(
    start_lab: Callable[..., Lab], lab_folder: Path
) -> None:
    """A daemon that dies at its start is named with its last words, and the rest is cleared away."""
    name = "broken"
    with pytest.raises(LabError, match=r"slurmctld of lab .* died") as caught:
        start_lab(name, extra="SchedulerType=sched/nonsense")
    assert "sched/nonsense" in caught.value.detail
    assert not (lab_folder / name).exists()
    assert traces(lab_folder / name) == []


def test_a_slurm_for_one_slurmd_a_host_is_told(
    start_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where several slurmd on one host were not compiled in, the error says that and how to build it."""
    scontrol = f'{shutil.which("scontrol")} "$@" | grep -v MULTIPLE_SLURMD'
    monkeypatch.setenv("PATH", fake(tmp_path, "scontrol", scontrol))
    with pytest.raises(LabError, match="several slurmd on one host") as caught:
        start_lab(nodes=2)
    assert "--enable-multiple-slurmd" in caught.value.hint


@pytest.mark.parametrize(
    ("number", "shape", "reached"),
    [
        (signal.SIGINT, "--nodes=8", "log/munged.out"),
        (signal.SIGTERM, "--nodes=8", "log/slurmctld.out"),
        (signal.SIGINT, "--nodes=8", "log/n8.out"),
        (signal.SIGINT, "--accounting", "db/ibdata1"),
    ],
    ids=["Ctrl-C", "SIGTERM", "Ctrl-C while nodes come up", "Ctrl-C while MariaDB is made"],
)
def test_an_interrupted_start_leaves_nothing(
    lab_folder: Path,
    missing: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    shape: str,
    reached: str,
) -> None:
    """Ctrl-C in the middle of `up` exits 130 and leaves no process and no file."""
    need_programs(missing, accounting=shape == "--accounting")
    monkeypatch.setenv("PATH", fake(tmp_path, "sinfo", "exit 1"))  # no node is ever idle: the middle lasts
    root = lab_folder / "cut"
    with start(lab_folder, "up", "--name", root.name, shape) as cut:
        wait_until((root / reached).exists, 10, f"{reached} to be made")
        cut.send_signal(number)
        out, _ = cut.communicate(timeout=30)
    assert (cut.returncode, out) == (130, "")
    assert not root.exists()
    assert traces(root) == []


def test_a_second_ctrl_c_does_not_cut_the_clearing_short(
    lab_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is impatient with a start that is being undone is left with no daemon either."""
    remove = daemons.remove_lab

    def started_enough(record: Record, *_: object) -> None:
        spawn(["/bin/sleep", "600"], env={MARK: str(record.root)}, cwd=record.root, output=Path(os.devnull))
        raise KeyboardInterrupt

    def impatient(root: Path, record: Record | None) -> int:
        signal.raise_signal(signal.SIGINT)
        return remove(root, record)

    monkeypatch.setattr(daemons, "boot", started_enough)
    monkeypatch.setattr(daemons, "remove_lab", impatient)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        Lab.up("twice", nodes=1, folder=lab_folder)
    assert not (lab_folder / "twice").exists()
    assert traces(lab_folder / "twice") == []
    assert signal.getsignal(signal.SIGINT) is before


def test_a_killed_start_can_be_started_anew_and_ended(
    lab_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a SIGKILLed `up` leaves is no running lab: `status` says so, `up` starts anew, `down` ends it."""
    root = lab_folder / "killed"
    monkeypatch.setenv("PATH", fake(tmp_path, "scontrol", "exit 1"))  # slurmctld is never seen to be up
    with start(lab_folder, "up", "--name", root.name) as cut:
        wait_until((root / "log" / "slurmctld.out").exists, 20, "slurmctld to be started")
        cut.kill()
    monkeypatch.undo()
    assert "its start was cut off" in call(lab_folder, "status", "--name", root.name).stderr
    up = call(lab_folder, "up", "--name", root.name, "--nodes", "2")
    assert (up.returncode, up.stdout) == (0, f"export SLURM_CONF={root}/etc/slurm.conf\n"), up.stderr
    assert Lab.open(root.name, lab_folder).status().nodes == {"idle": 2}
    done = call(lab_folder, "down", "--name", root.name)
    assert done.returncode == 0
    assert not root.exists()
    assert traces(root) == []
    again = call(lab_folder, "down", "--name", root.name)
    assert (again.returncode, again.stdout) == (0, "")
    assert "there is no lab" in again.stderr


def test_accounting_makes_sacct_work(up: Callable[[str], Lab], missing: Callable[[str], None]) -> None:
    """With --accounting, sacct knows a finished job and its GPUs."""
    need_programs(missing, accounting=True)
    lab = up("books")
    job = submit(lab, "true", "--gres=gpu:2", "-o", "/dev/null")
    ask = ["sacct", "-nXP", "-j", job, "-o", "State,AllocTRES"]
    found = wait_until(
        lambda: "COMPLETED" in (said := lab.run(ask).stdout) and said, 20, "sacct to know the job"
    )
    assert "gres/gpu=2" in found
    lab.down()
    assert traces(lab.root) == []


OWNER = """
import os, signal, sys
from pathlib import Path
from guard import guard
from slurmkit.lab.daemons import Lab
guard(Path(sys.argv[1]))
print(Lab.up("orphan", nodes=1, folder=Path(sys.argv[1])).root, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_labs_of_a_killed_test_session_end_with_it(lab_folder: Path) -> None:
    """`kill -9` of pytest runs no fixture: its guard ends its labs and removes its folder, and no other."""
    folder = lab_folder / "killed-session"
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    owner = [sys.executable, "-c", OWNER, str(folder)]
    done = subprocess.run(owner, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, f"{folder}/orphan\n"), done.stderr
    wait_until(lambda: not folder.exists() and not traces(folder), 20, "the guard to end the lab")
