"""The command line as a person calls it, against the lab."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from polling import wait_until

from slurmkit.cli import main
from slurmkit.cluster.client import open_client
from slurmkit.launch.ledger import Run
from slurmkit.launch.search import find_point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmkit.lab.daemons import Lab

#: One small program, for any node of the lab.
ONE = ("payload=command", "resources.time=5", "resources.mem=100M")

_ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def command(*words: str) -> str:
    """A command as Hydra's list of quoted words."""
    return "payload.command=[" + ",".join("'" + word.replace("'", "\\'") + "'" for word in words) + "]"


def folders(cwd: Path, runs_dir: str = "runs") -> list[str]:
    """What is in the folder of runs, beside the file that hides it from git."""
    return sorted(path.name for path in (cwd / runs_dir).iterdir() if path.name != ".gitignore")


def job_of(cwd: Path, run: str | Path = "last") -> str:
    """The job id of a run's newest submission."""
    return find_point(str(run), cwd / "runs", open_client())[0].attempts()[-1].job_id


def log_of(run: str | Path) -> Path:
    """The log of a single run."""
    return Run(run).point_dir(0) / "log"


def wait_printed(log: Path, text: str = "\n") -> None:
    """Wait until a job has printed something: RUNNING in the queue does not mean that its script has begun."""
    wait_until(lambda: log.exists() and text in log.read_text(), 60, f"{text!r} in {log}")


def call(lab: Lab, cwd: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, with this interpreter's folder first on PATH."""
    return subprocess.run(
        argv,
        cwd=cwd,
        env=_environment(lab, env),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _environment(lab: Lab, env: dict[str, str]) -> dict[str, str]:
    path = env.pop("PATH", os.environ["PATH"])
    return {**lab.env, **env, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{path}"}


def slurmkit(lab: Lab, cwd: Path, *words: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    """``slurmkit WORDS`` in a folder; its exit code is part of every promise.

    In this process, which has imported everything already: a process of its own costs half a second. Its
    output goes through the same streams, and what would be a traceback fails the test.
    """
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", newline=""), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["slurmkit", *words])
    with as_in(lab, cwd, **env), argv, contextlib.redirect_stderr(err):
        with contextlib.redirect_stdout(out):
            got = main.run(list(words))
            out.flush()
        stdout = out.buffer.getvalue().decode()
    assert got == code, f"slurmkit {' '.join(words)}: exit code {got}\n{stdout}\n{err.getvalue()}"
    return subprocess.CompletedProcess(words, got, stdout, err.getvalue())


@contextlib.contextmanager
def as_in(lab: Lab, cwd: Path, **env: str) -> Iterator[None]:
    """This process in a folder, turned towards a lab."""
    before = Path.cwd()
    os.chdir(cwd)
    try:
        with mock.patch.dict(os.environ, _environment(lab, env), clear=True):
            yield
    finally:
        os.chdir(before)


def submit(lab: Lab, cwd: Path, *words: str, **env: str) -> Path:
    """Submit one run; returns its folder."""
    return Path(slurmkit(lab, cwd, "submit", *words, **env).stdout.strip())


def status(lab: Lab, cwd: Path, run: str | Path = "last") -> list[dict[str, Any]]:
    """The points of a run, as ``slurmkit status --json`` tells them."""
    points: list[dict[str, Any]] = json.loads(slurmkit(lab, cwd, "status", str(run), "--json").stdout)[
        "points"
    ]
    return points


def wait_ended(lab: Lab, cwd: Path, run: str | Path = "last", timeout: float = 60) -> list[str]:
    """Wait until all points of a run have ended; returns their states."""

    def ended() -> list[str] | None:
        states = [point["state"] for point in status(lab, cwd, run)]
        return states if states and set(states) <= _ENDED else None

    return wait_until(ended, timeout, f"run {run} in {cwd} to end")


def wait_idle(lab: Lab) -> None:
    """Wait until no job of the lab waits or runs."""
    wait_until(lambda: not lab.run(["squeue", "--noheader"]).stdout, 90, "all jobs to end")


def fake(folder: Path, name: str, text: str) -> str:
    """Put a program in front of a real one; returns the PATH with which it is found first."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    program = folder / "bin" / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"
