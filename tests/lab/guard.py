"""End the labs of a folder, and remove it, once the process that made it is gone: ``kill -9`` runs no fixture.

Run as a script it is that watcher; it imports nothing of the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from slurmkit.errors import SlurmkitError
from slurmkit.lab.daemons import Lab
from slurmkit.lab.processes import started

_POLL = 0.2
_PATIENCE = 60


def guard(folder: Path) -> None:
    """Let all labs in a folder, and the folder, end with this process, however it ends.

    The watcher is in a session of its own and nobody's child: what kills our group or our children spares it.
    """
    owner = os.getpid()
    argv = [sys.executable, __file__, str(owner), str(started(owner)), str(folder)]
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(
        ["setsid", "--fork", *argv],
        check=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # whoever reads our output shall not wait for the watcher
    )


def _watch(owner: int, since: int, folder: Path) -> None:
    while started(owner) == since:
        if not folder.exists():
            return
        time.sleep(_POLL)
    end_labs(folder)


def end_labs(folder: Path) -> None:
    """End all labs in a folder, and remove it."""
    deadline = time.monotonic() + _PATIENCE
    while not all([_end(record.parent) for record in list(folder.rglob("lab.json"))]):  # noqa: C419 - end each
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    shutil.rmtree(folder, ignore_errors=True)


def _end(root: Path) -> bool:
    """Whether a lab is gone; an ``up`` that has outlived its caller holds it until it is up."""
    try:
        return Lab.end(root.name, root.parent)
    except SlurmkitError:
        return False


if __name__ == "__main__":
    _watch(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
