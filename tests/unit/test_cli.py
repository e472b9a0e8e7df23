"""The command line before Slurm is asked anything."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurmkit.cli import main

SLURMKIT = Path(sys.executable).parent / "slurmkit"


def slurmkit(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SLURMKIT, *words],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_help_lists_every_verb() -> None:
    """``slurmkit --help`` names each verb with what it does, on stdout, and is good."""
    done = slurmkit("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for verb in ("compile", "submit", "status", "logs", "cancel", "hooks", "lab"):
        assert f"\n  {verb} " in done.stdout
        assert slurmkit(verb, "--help").returncode == 0


def test_help_imports_nothing_heavy() -> None:
    """A login node answers ``--help`` without Hydra, submitit, rich or torch."""
    code = "import sys; from slurmkit.cli.main import run; run(['--help']); print([name for name in ('hydra', 'submitit', 'rich', 'torch', 'jinja2', 'ClusterShell') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compil"], "did you mean compile?"),
        (["frobnicate"], "accepted are compile, submit"),
        (["--nope"], "--nope"),
        (["status"], "RUN"),
        (["submit", "--nope"], "--nope"),
    ],
)
def test_a_wrong_word_is_exit_code_2(words: list[str], said: str) -> None:
    """A misspelt verb names the nearest one; an unknown option and a missing RUN are named."""
    done = slurmkit(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_machine_without_slurm_says_what_to_install(tmp_path: Path) -> None:
    """Without Slurm's commands every verb that needs Slurm ends with 4 and names the package; a script is compiled all the same."""
    (tmp_path / "runs" / "exp" / "attempts").mkdir(parents=True)
    (tmp_path / "runs" / "exp" / "run.json").write_text("{}")
    record = {"cluster": "c", "job_id": "1", "submitted_at": 0, "points": None, "differences": []}
    (tmp_path / "runs" / "exp" / "attempts" / "0001.json").write_text(json.dumps(record))
    for words in (
        ["submit", "experiment=digits"],
        ["status", "exp"],
        ["cancel", "exp"],
    ):
        done = slurmkit(*words, cwd=tmp_path, PATH=str(tmp_path))
        assert done.returncode == 4, words
        assert "slurm-client" in done.stderr
    shutil.rmtree(tmp_path / "runs")
    done = slurmkit("submit", "--dry-run", "experiment=digits", cwd=tmp_path, PATH=str(tmp_path))
    assert done.returncode == 0
    assert "#SBATCH --job-name=digits" in done.stdout
    compiled = slurmkit("compile", "experiment=digits", cwd=tmp_path, PATH=str(tmp_path))
    assert compiled.returncode == 0
    assert "#SBATCH --job-name=digits" in compiled.stdout
    said, hint = compiled.stderr.splitlines()
    assert said.startswith("not checked against any cluster: scontrol is not installed here, ")
    assert "module load slurm" in hint, "the usual cause on a login node"
    told = slurmkit("compile", "experiment=digits", "--json", cwd=tmp_path, PATH=str(tmp_path))
    assert json.loads(told.stdout)["checked"] is False
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    """A shell whose folder somebody removed gets a line and a hint, and no traceback."""
    (tmp_path / "gone").mkdir()
    command = (
        f"cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec {SLURMKIT} submit --dry-run experiment=digits"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "hint:" in done.stderr


def test_the_sweep_by_hand_carries_its_points(tmp_path: Path) -> None:
    """``submit -m --dry-run`` prints a script that needs no run folder: each task finds its overrides in it."""
    done = slurmkit(
        "submit",
        "-m",
        "--dry-run",
        "payload=command",
        "payload.command=[printf,'<%s>']",
        "+x='a b','$(id)'",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    fake = 'srun() { shift; "$@"; }\nSLURM_JOB_ID=7 SLURM_ARRAY_TASK_ID=1\n'
    ran = subprocess.run(
        ["bash", "-c", fake + done.stdout],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "runs" / "experiment-7" / "points" / "0" / "1" / "log").read_text() == "<+x='$(id)'>"


def test_a_closed_stream_takes_nothing_to_the_other() -> None:
    """``2>&-`` and ``>&-``: an error never lands among the data, and nothing ends in a traceback."""
    done = subprocess.run(
        ["bash", "-c", f"{SLURMKIT} compil 2>&-"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    done = subprocess.run(
        ["bash", "-c", f"{SLURMKIT} --help >&-"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_read_enough_is_no_failure(tmp_path: Path) -> None:
    """``slurmkit logs RUN | head`` ends well."""
    point = tmp_path / "runs" / "exp" / "points" / "0" / "0"
    point.mkdir(parents=True)
    (tmp_path / "runs" / "exp" / "run.json").write_text("{}")
    (point / "log").write_text("line\n" * 100_000)
    line = f"set -o pipefail; {SLURMKIT} logs exp | head -n 1"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "line\n", "")


def test_what_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    """A file that cannot be read is named, with the system's reason, and no traceback."""
    (tmp_path / "runs" / "exp" / "points" / "0" / "0" / "log").mkdir(parents=True)
    (tmp_path / "runs" / "exp" / "run.json").write_text("{}")
    done = slurmkit("logs", "exp", cwd=tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path}/runs/exp/points/0/0/log: Is a directory" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_nohup_is_kept(tmp_path: Path) -> None:
    """``nohup slurmkit …`` goes on when the terminal goes away."""
    point = tmp_path / "runs" / "exp" / "points" / "0" / "0"
    point.mkdir(parents=True)
    (tmp_path / "runs" / "exp" / "run.json").write_text("{}")
    (point / "log").write_text("before\n")
    line = f"trap '' HUP; PATH= exec {SLURMKIT} logs exp --follow"
    with subprocess.Popen(["bash", "-c", line], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "before\n"
        follower.send_signal(signal.SIGHUP)
        with (point / "log").open("a") as log:
            log.write("after\n")
        assert follower.stdout.readline() == "after\n"
        follower.send_signal(signal.SIGTERM)
    assert follower.returncode == 130


def test_nobody_listens_at_last() -> None:
    """What could not be written is given up, so that Python does not try again at its end (3.13: code 120)."""
    reading, writing = os.pipe()
    with open(writing, "w", encoding="utf-8") as stream:  # noqa: PTH123 - of a descriptor
        stream.write("lost")
        os.close(reading)
        main._flush_at_last(stream)
        stream.write("more")
        stream.flush()
