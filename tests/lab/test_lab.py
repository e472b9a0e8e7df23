"""A running lab, against the real Slurm of this machine: what it has, and what happens in it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from labs import call, environ, state, submit
from polling import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab


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
    env = {**environ(lab_folder), "SHELL": "/bin/bash", "HOME": "/nonexistent"}
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
