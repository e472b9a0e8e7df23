"""Scripts that a person gives to sbatch: the same job, and found by the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command import (
    ONE,
    call,
    command,
    job_of,
    log_of,
    slurmkit,
    status,
    submit,
    wait_ended,
    wait_idle,
    wait_printed,
)
from polling import wait_until

from slurmkit.launch.ledger import Run

if TYPE_CHECKING:
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab


def compiled(lab: Lab, folder: Path, *words: str) -> Path:
    """``slurmkit compile > 'my job.sbatch'``."""
    script = folder / "my job.sbatch"
    script.write_text(slurmkit(lab, folder, "compile", *ONE, *words).stdout)
    return script


def sbatch(lab: Lab, script: Path, *words: str) -> str:
    return lab.run(["sbatch", "--parsable", *words, str(script)]).stdout.strip()


def test_the_printed_script_submitted_by_hand_is_the_same_job(lab: Lab, tmp_path: Path) -> None:
    """A person pipes ``slurmkit compile`` into a file and sbatch: the same ranks run the same words, and it is found."""
    words = ("resources=two_nodes", "resources.gres=gpu:2")
    job = sbatch(lab, compiled(lab, tmp_path, command("bash", "-c", "echo rank $SLURM_PROCID"), *words))
    log = tmp_path / f"experiment-{job}.log"
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) == 4, 30, "four ranks to print")
    assert sorted(log.read_text().splitlines()) == [f"rank {rank}" for rank in range(4)]
    run = tmp_path / "runs" / f"experiment-{job}"
    wait_until(lambda: any(life.exit == 0 for life in Run(run).lives()), 30, "the record of its end")
    for word in ("last", job, run.name, str(run)):
        assert wait_ended(lab, tmp_path, word) == ["COMPLETED"]
        assert slurmkit(lab, tmp_path, "logs", word).stdout == log.read_text()


def test_a_script_submitted_from_inside_a_job_runs(lab: Lab, tmp_path: Path) -> None:
    """By hand from a job that has memory per CPU: its variables do not contradict what the script asks."""
    script = compiled(lab, tmp_path, command("echo", "ran"))
    env = {"SLURM_MEM_PER_CPU": "50", "SLURM_CPU_BIND": "quiet,mask_cpu:0x1", "SLURM_GPUS_PER_NODE": "9"}
    job = call(lab, tmp_path, "sbatch", "--parsable", str(script), **env).stdout.strip()
    log = tmp_path / f"experiment-{job}.log"
    wait_printed(log)
    assert log.read_text() == "ran\n"


def test_cancel_ends_a_job_by_hand(lab: Lab, tmp_path: Path) -> None:
    """However the person called sbatch: from stdin, with another name and another log."""
    script = compiled(lab, tmp_path, command("bash", "-c", "echo up; exec sleep 300"))
    log = tmp_path / "other.log"
    words = ("--parsable", "--job-name=other", f"--output={log}")
    job = call(lab, tmp_path, "bash", "-c", 'sbatch "$@" <"$0"', str(script), *words).stdout.strip()
    wait_printed(log)
    assert status(lab, tmp_path, job)[0]["state"] == "RUNNING"
    for verb in ("status", "logs", "cancel"):
        assert "is no array" in slurmkit(lab, tmp_path, verb, f"{job}_3", code=2).stderr
    assert "got 7" in slurmkit(lab, tmp_path, "logs", "last", "-p", "7", code=2).stderr
    assert "--output" in slurmkit(lab, tmp_path, "logs", "last", code=2).stderr
    assert f"cancelled job {job}" in slurmkit(lab, tmp_path, "cancel", "last").stderr
    assert wait_ended(lab, tmp_path) == ["CANCELLED"]


def test_a_sweep_by_hand(lab: Lab, tmp_path: Path) -> None:
    """Tasks that run, have ended or still wait are all shown, each under its own number."""
    body = command("bash", "-c", 'echo "$@"; [ "$1" = trainer.seed=1 ] || exec sleep 300', "me")
    words = ("submit", "-m", "--dry-run", *ONE, body, "trainer.seed=1,2,3", "resources.array_parallelism=1")
    script = tmp_path / "sweep.sbatch"
    script.write_text(slurmkit(lab, tmp_path, *words).stdout)
    job = sbatch(lab, script)
    wait_printed(tmp_path / "runs" / f"experiment-{job}" / "points" / "0" / "1" / "log")
    expected = {f"{job}_0": "COMPLETED", f"{job}_1": "RUNNING", f"{job}_2": "PENDING"}
    wait_until(
        lambda: {point["job"]: point["state"] for point in status(lab, tmp_path)} == expected,
        60,
        f"{expected}",
    )
    assert slurmkit(lab, tmp_path, "logs", f"{job}_1").stdout == "trainer.seed=2\n"
    for verb in (("status",), ("logs",), ("logs", "--follow"), ("cancel",)):
        assert "no point 9" in slurmkit(lab, tmp_path, *verb, f"{job}_9", code=2).stderr
    assert "not started" in slurmkit(lab, tmp_path, "logs", f"{job}_2", code=2).stderr
    slurmkit(lab, tmp_path, "cancel", f"{job}_1")
    slurmkit(lab, tmp_path, "cancel", "last")
    wait_idle(lab)
    assert [point["state"] for point in status(lab, tmp_path)] == ["COMPLETED", "CANCELLED", "CANCELLED"]


def test_the_script_of_a_run_once_more(lab: Lab, tmp_path: Path) -> None:
    """`sbatch RUN/job.sbatch` after a failure: status and cancel mean the new job, from before it has begun."""
    body = command("bash", "-c", "test -e ready && echo up && exec sleep 300")
    submit(lab, tmp_path, *ONE, body)
    assert wait_ended(lab, tmp_path) == ["FAILED"]
    (tmp_path / "ready").touch()
    (run,) = (tmp_path / "runs").glob("experiment-*")
    job = sbatch(lab, run / "job.sbatch", "--hold", f"--chdir={tmp_path}")
    for word in ("last", job):
        (point,) = status(lab, tmp_path, word)
        assert (point["job"], point["state"]) == (job, "PENDING")
    lab.run(["scontrol", "release", job])
    wait_printed(log_of(run), "up\n")
    assert status(lab, tmp_path)[0]["state"] == "RUNNING"
    assert f"cancelled job {job}" in slurmkit(lab, tmp_path, "cancel", "last").stderr
    assert wait_ended(lab, tmp_path) == ["CANCELLED"]


def test_a_job_of_somebody_else_is_not_ours(lab: Lab, tmp_path: Path) -> None:
    """A job id that was issued again, on this cluster or another: the folder of the same name is not that job's."""
    submit(lab, tmp_path, *ONE, command("bash", "-c", "exec sleep 300"))
    job = job_of(tmp_path)
    for part in ("points/0/0", "lives"):
        (tmp_path / "old" / f"experiment-{job}" / part).mkdir(parents=True)
    there = ("--runs-dir", "old")
    assert "LOST" in slurmkit(lab, tmp_path, "status", job, *there).stdout
    assert "nothing to cancel" in slurmkit(lab, tmp_path, "cancel", job, *there).stderr
    assert status(lab, tmp_path)[0]["state"] in {"RUNNING", "PENDING"}
