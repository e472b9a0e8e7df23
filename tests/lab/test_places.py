"""Where the cluster or the folder is not what it should be: one line, the right exit code, and nothing half-done."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import (
    ONE,
    as_in,
    call,
    command,
    folders,
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

from slurmkit import load_experiment
from slurmkit import submit as submit_experiment

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

#: Every verb that asks Slurm something.
ASKING = (
    ("compile", *ONE, command("true")),
    ("submit", *ONE, command("true")),
    ("status", "last"),
    ("cancel", "last"),
)


def all_jobs(lab: Lab) -> set[str]:
    return set(lab.run(["squeue", "--noheader", "--states=all", "--format=%A"]).stdout.split())


def test_a_run_of_another_cluster_is_left_alone(
    lab: Lab, start_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """A job id means something only on its cluster: status and cancel name the other one, and end nobody's job.

    And a controller that is down is one line and a hint, for every verb, and nothing is half-written.
    """
    submit(lab, tmp_path, *ONE, command("true"))
    assert wait_ended(lab, tmp_path) == ["COMPLETED"]
    other = start_lab(nodes=1, leaf=1)
    for verb in ("status", "cancel"):
        done = slurmkit(other, tmp_path, verb, "last", code=2)
        assert repr(other.name) in done.stderr
        assert "SLURM_CONF" in done.stderr
    runs, job = folders(tmp_path), job_of(tmp_path)
    end_slurmctld(other)
    for words in ASKING:
        done = slurmkit(other, tmp_path, *words, code=4)
        assert "slurmctld cannot be reached" in done.stderr
        assert "hint:" in done.stderr
        known = [["0", job, "COMPLETED"]] if words[0] == "status" else []
        assert [line.split("\t")[:3] for line in done.stdout.splitlines()] == known
    assert folders(tmp_path) == runs
    printed = slurmkit(other, tmp_path, "submit", "--dry-run", *ONE, command("true")).stdout
    assert "#SBATCH --job-name=experiment" in printed, "--dry-run asks Slurm nothing"


def end_slurmctld(lab: Lab) -> None:
    pid = lab.pids["slurmctld"]
    os.kill(pid, 9)
    wait_until(
        lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2],
        10,
        "slurmctld to be gone",
    )


def test_a_slurm_conf_that_is_not_there_is_exit_code_4(lab: Lab, tmp_path: Path) -> None:
    """A wrong SLURM_CONF is named with its path."""
    done = slurmkit(lab, tmp_path, "compile", *ONE, command("true"), code=4, SLURM_CONF="/nowhere/slurm.conf")
    assert "/nowhere/slurm.conf" in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("runs_dir", ["/nowhere/runs", "/proc/runs"])
def test_a_shared_folder_that_is_not_there_is_exit_code_2(lab: Lab, tmp_path: Path, runs_dir: str) -> None:
    """A missing shared folder and an unwritable run folder are named, and no job is submitted."""
    before = all_jobs(lab)
    done = slurmkit(lab, tmp_path, "submit", *ONE, command("true"), f"runs_dir={runs_dir}", code=2)
    assert runs_dir in done.stderr
    assert all_jobs(lab) <= before, "Slurm may forget a job meanwhile"


def test_a_full_disk_leaves_no_run(lab: Lab, tmp_path: Path) -> None:
    """A disk that fills up while the run folder is written: one line, nothing left of the run, no job."""
    before = all_jobs(lab)
    (tmp_path / "big.py").write_bytes(b"#" * 200_000)
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); from slurmkit.cli.main import main; main(sys.argv[1:])"
    done = call(lab, tmp_path, "python", "-c", limit, "submit", *ONE, command("true"))
    assert done.returncode == 1
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert not folders(tmp_path)
    assert all_jobs(lab) <= before, "Slurm may forget a job meanwhile"


def test_odd_folders_of_runs(lab: Lab, tmp_path: Path) -> None:
    """Blanks, quotes and percent signs in the path of a run: the job writes there, and it is found from elsewhere."""
    names = ["my runs", "it's", 'say "hi"', "ünï→", "100%j", "$(touch PWNED)"]
    with as_in(lab, tmp_path):
        printing = load_experiment([*ONE, command("echo", "here")])
        runs = {name: submit_experiment(replace(printing, runs_dir=name)) for name in names}
    wait_idle(lab)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name, run in runs.items():
        assert run.path.parent == tmp_path / name
        there = ("--runs-dir", f"../{name}")
        assert "COMPLETED" in slurmkit(lab, elsewhere, "status", "last", *there).stdout, name
        assert slurmkit(lab, elsewhere, "logs", "last", *there).stdout == "here\n"
    assert not list(tmp_path.rglob("PWNED"))


def test_a_run_folder_that_goes_away(lab: Lab, tmp_path: Path) -> None:
    """Its folder removed while a job runs: status and cancel say that there is no such run, and what there is."""
    run = submit(lab, tmp_path, *ONE, command("bash", "-c", "echo up; exec sleep 300"))
    wait_printed(log_of(run))
    job = job_of(tmp_path)
    shutil.rmtree(run)
    for verb in ("status", "cancel", "logs"):
        assert f"no run '{job}'" in slurmkit(lab, tmp_path, verb, job, code=2).stderr
    lab.run(["scancel", job])


def test_a_run_folder_that_may_only_be_read(lab: Lab, tmp_path: Path) -> None:
    """A colleague who may read a run sees how it is: nothing has to be written for that, not even a lost record."""
    run = submit(lab, tmp_path, *ONE, command("true"))
    assert wait_ended(lab, tmp_path) == ["COMPLETED"]
    shutil.rmtree(run / "attempts")
    (run / "attempts").write_text("")  # root may write everywhere, but not below a file
    (run / "ended.jsonl").unlink()
    (run / "ended.jsonl").symlink_to("/nowhere/ended.jsonl")
    assert status(lab, tmp_path)[0]["state"] == "COMPLETED"
