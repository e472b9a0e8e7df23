"""The command line as a person calls it, against the lab."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polling import wait_until

if TYPE_CHECKING:
    from slurmkit.lab.daemons import Lab

_ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def call(lab: Lab, cwd: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, with this interpreter's folder first on PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        argv,
        cwd=cwd,
        env={**lab.env, "PATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def slurmkit(lab: Lab, cwd: Path, *words: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    """``slurmkit WORDS`` in a folder; its exit code is part of every promise."""
    done = call(lab, cwd, "slurmkit", *words, **env)
    assert done.returncode == code, (
        f"slurmkit {' '.join(words)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    assert "Traceback" not in done.stderr
    return done


def status(lab: Lab, cwd: Path, run: str = "last") -> list[dict[str, Any]]:
    """The points of a run, as ``slurmkit status --json`` tells them."""
    points: list[dict[str, Any]] = json.loads(slurmkit(lab, cwd, "status", run, "--json").stdout)["points"]
    return points


def wait_ended(lab: Lab, cwd: Path, run: str = "last", timeout: float = 60) -> list[str]:
    """Wait until all points of a run have ended; returns their states."""

    def ended() -> list[str] | None:
        states = [point["state"] for point in status(lab, cwd, run)]
        return states if states and set(states) <= _ENDED else None

    return wait_until(ended, timeout, f"run {run} in {cwd} to end")
