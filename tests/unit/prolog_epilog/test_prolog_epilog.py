"""Prolog and Epilog: whatever is wrong with a node, they exit 0; whatever a value is, the line is JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from slurmkit.paths import data_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JOB = {
    "SLURM_CLUSTER_NAME": "prod",
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_PARTITION": "low",
    "SLURM_JOB_GPUS": "0,1",
    "SLURMD_NODENAME": "n1",
}


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    folder = tmp_path / "hooks"
    shutil.copytree(data_dir("prolog_epilog"), folder)
    (folder / "slurmkit-hooks.conf").write_text(f"# a comment\nSTATE_DIR={tmp_path}/state\n")
    return folder


def run(hooks: Path, event: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run it as slurmd does: without PATH, and with stdin closed."""
    environ = {key.encode(): os.fsencode(value) for key, value in {**JOB, **env}.items()}
    return subprocess.run([str(hooks / event)], env=environ, capture_output=True, check=False, timeout=20)


def lines(hooks: Path, node: str = "n1") -> list[dict[str, object]]:
    text = (hooks.parent / "state" / node / "jobs.jsonl").read_text(encoding="ascii")
    return [json.loads(line) for line in text.splitlines()]


def test_a_job_leaves_a_start_and_an_end(hooks: Path) -> None:
    """Both lines say which job, of whom, where and when; the end says how."""
    codes = {"SLURM_JOB_EXIT_CODE2": "3:9", "SLURM_JOB_DERIVED_EC": "1024", "SLURM_RESTART_COUNT": "2"}
    for done in (run(hooks, "prolog"), run(hooks, "epilog", **codes)):
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    start, end = lines(hooks)
    assert isinstance(start.pop("time"), int)
    same = {
        "version": 1,
        "cluster": "prod",
        "job": 4711,
        "uid": 1000,
        "partition": "low",
        "node": "n1",
        "gpus": "0,1",
    }
    assert start == {**same, "event": "start", "restart": 0}
    end.pop("time")
    assert end == {**same, "event": "end", "restart": 2, "exit_code": 3, "signal": 9, "highest_exit_code": 4}


@pytest.mark.parametrize(
    "value",
    [
        'a"b',
        "back\\slash",
        "new\nline",
        "tab\t",
        "$(touch /tmp/x)`id`",
        "%s%n",
        "*",
        "'",
        "\x7f",
        "[a-z]",
        "\x01",
        "a" * 5000,
    ],
)
def test_any_value_is_json(hooks: Path, value: str) -> None:
    """A value that tries to end the string, or the script, is one string in one line."""
    assert run(hooks, "prolog", SLURM_CLUSTER_NAME=value, SLURM_JOB_UID=value).returncode == 0
    (line,) = lines(hooks)
    assert line["cluster"] == value[:200]
    assert line["uid"] is None


def test_bytes_beyond_ascii_are_kept_by_their_number(hooks: Path) -> None:
    """No encoding is assumed: each byte can be had back."""
    run(hooks, "prolog", SLURM_CLUSTER_NAME="é\udcff")
    (line,) = lines(hooks)
    assert str(line["cluster"]).encode("latin-1") == b"\xc3\xa9\xff"


@pytest.mark.parametrize("number", ["", "x", "-1", "1 2", "007", "1;id", "9" * 40])
def test_what_is_no_number_is_null(hooks: Path, number: str) -> None:
    """A reader never finds a word where a number belongs."""
    run(hooks, "prolog", SLURM_JOB_ID=number)
    assert lines(hooks)[0]["job"] is None


def break_no_folder(hooks: Path) -> None:
    (hooks / "slurmkit-hooks.conf").write_text("STATE_DIR=/proc/nowhere\n")


def break_full_disk(hooks: Path) -> None:
    (hooks.parent / "state" / "n1").mkdir(parents=True)
    (hooks.parent / "state" / "n1" / "jobs.jsonl").symlink_to("/dev/full")


def break_pipe(hooks: Path) -> None:
    (hooks.parent / "state" / "n1").mkdir(parents=True)
    os.mkfifo(hooks.parent / "state" / "n1" / "jobs.jsonl")


def break_library(hooks: Path) -> None:
    (hooks / "record.bash").write_text("if then fi ((\n")


def break_no_library(hooks: Path) -> None:
    (hooks / "record.bash").unlink()


def break_config(hooks: Path) -> None:
    (hooks / "slurmkit-hooks.conf").write_bytes(
        b"\x00\xff=\nSTATE_DIR\nMAX_BYTES=0\nSTATE_DIR=$(exit 1)\nexit 3"
    )


def break_state_is_a_file(hooks: Path) -> None:
    (hooks.parent / "state").touch()


@pytest.mark.parametrize(
    "damage",
    [
        break_no_folder,
        break_full_disk,
        break_pipe,
        break_library,
        break_no_library,
        break_config,
        break_state_is_a_file,
    ],
)
@pytest.mark.parametrize("event", ["prolog", "epilog"])
def test_they_fail_open(hooks: Path, event: str, damage: object) -> None:
    """Slurm drains a node whose Prolog fails: no damage makes it fail, hang or speak."""
    damage(hooks)  # type: ignore[operator]
    done = run(hooks, event)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_settings_are_read_and_never_executed(hooks: Path, tmp_path: Path) -> None:
    """A line of shell in the settings does nothing."""
    with (hooks / "slurmkit-hooks.conf").open("a") as settings:
        settings.write(f"MAX_BYTES=$(touch {tmp_path}/pwned)\ntouch {tmp_path}/pwned\n")
    run(hooks, "prolog")
    assert not (tmp_path / "pwned").exists()
    assert len(lines(hooks)) == 1


@pytest.mark.parametrize("node", ["../evil", "a/b", ".."])
def test_a_node_name_is_no_path(hooks: Path, node: str) -> None:
    """Nothing is written outside the folder of the state."""
    before = sorted(hooks.parent.rglob("*"))
    assert run(hooks, "prolog", SLURMD_NODENAME=node).returncode == 0
    assert sorted(hooks.parent.rglob("*")) == before


def test_the_file_is_bounded(hooks: Path) -> None:
    """At MAX_BYTES it becomes jobs.jsonl.1; the two together never grow on, and each line is whole."""
    with (hooks / "slurmkit-hooks.conf").open("a") as settings:
        settings.write("MAX_BYTES=1000\n")
    for number in range(30):
        run(hooks, "prolog", SLURM_JOB_ID=str(number))
    folder = hooks.parent / "state" / "n1"
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert sizes.keys() == {"jobs.jsonl", "jobs.jsonl.1"}
    assert all(size <= 1200 for size in sizes.values())
    texts = [(folder / name).read_text() for name in ("jobs.jsonl.1", "jobs.jsonl")]
    kept = [json.loads(line)["job"] for text in texts for line in text.splitlines()]
    assert kept == list(range(30 - len(kept), 30))


def test_a_file_that_cannot_be_renamed_stops_growing(hooks: Path) -> None:
    """Should rotation fail, the kernel stops the file 1 MiB after MAX_BYTES, and the job still starts."""
    with (hooks / "slurmkit-hooks.conf").open("a") as settings:
        settings.write("MAX_BYTES=1024\n")
    folder = hooks.parent / "state" / "n1"
    (folder / "jobs.jsonl.1" / "in-the-way").mkdir(parents=True)
    full = folder / "jobs.jsonl"
    full.write_bytes(b"\n" * (1024 + 1024 * 1024))
    (folder / "jobs.jsonl.1" / "jobs.jsonl").mkdir()
    assert run(hooks, "prolog").returncode == 0
    assert full.stat().st_size == 1024 + 1024 * 1024


def test_the_healthy_path_starts_no_process(hooks: Path, missing: Callable[[str], None]) -> None:
    """Once the folder is there, a hook is one process, one write to its file, and no network."""
    if not shutil.which("strace"):
        missing("strace is not installed")
    run(hooks, "prolog")
    trace = hooks.parent / "trace"
    argv = ["strace", "-f", "-o", str(trace), "-e", "trace=process,write,connect", str(hooks / "epilog")]
    subprocess.run(argv, env={**JOB, "PATH": os.environ["PATH"]}, check=True, capture_output=True, timeout=30)
    calls = trace.read_text().splitlines()
    assert sum("execve(" in call for call in calls) == 1
    assert not [call for call in calls if re.search(r"\b(clone3?|v?fork)\(|AF_INET", call)]
    assert sum("write(" in call for call in calls) == 1


def test_shellcheck_finds_nothing(missing: Callable[[str], None]) -> None:
    """The scripts are clean by shellcheck's rules."""
    if not shutil.which("shellcheck"):
        missing("shellcheck is not installed")
    files = [str(data_dir("prolog_epilog") / name) for name in ("prolog", "epilog", "record.bash")]
    done = subprocess.run(["shellcheck", "-x", *files], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_they_are_executable() -> None:
    """Slurm drains a node whose Prolog it cannot execute."""
    for name in ("prolog", "epilog"):
        assert os.access(data_dir("prolog_epilog") / name, os.X_OK)
