"""Run hooks once as slurmd would, where nobody sees it: before any job depends on them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from shlex import quote
from typing import TYPE_CHECKING

from slurmkit.errors import SlurmkitError
from slurmkit.hooks.files import HOOKS
from slurmkit.paths import data_dir
from slurmkit.runtime.records import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["try_hooks"]

_NODE = "trial"
_JOB = 1
#: Bytes; more than a record has.
_ROOM = 4096
#: Seconds. A hook takes milliseconds; this is what slurmd is advised to wait.
_TIMEOUT = 8


def try_hooks(folder: Path, state: Path) -> dict[str, float]:
    """Run each hook of a folder once: no PATH, nothing on stdin, an empty environment but for the job.

    Args:
        folder: with the hooks, their library, and settings that name ``state``.
        state: where their records go.

    Returns:
        The milliseconds that each took.

    Raises:
        SlurmkitError: if one did not exit 0, said something, or left no record.
        OSError: if there is no room for a record: the hooks would keep silent about it.
    """
    room = state / "room"
    room.mkdir()
    write_atomic(room / "record", b" " * _ROOM)
    shutil.rmtree(room)
    return {name: _try(folder / name, state) for name in HOOKS}


def _try(hook: Path, state: Path) -> float:
    begin = time.perf_counter()
    env = {"SLURM_JOB_ID": str(_JOB), "SLURMD_NODENAME": _NODE}
    try:
        done = subprocess.run(
            [str(hook)],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT,
            cwd="/",
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(hook, f"it did not end within {_TIMEOUT} s") from error
    except PermissionError as error:
        raise SlurmkitError(
            f"no program can be run in {hook.parent.parent.parent}, as on a file system that is mounted noexec;"
            " nothing was changed",
            "name a folder elsewhere with --dir",
        ) from error
    took = (time.perf_counter() - begin) * 1000
    said = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode or said:
        raise _failed(hook, f"it exited {done.returncode}", said)
    if _last_event(state / _NODE / "jobs.jsonl") != ("start" if hook.name == "prolog" else "end"):
        raise _failed(hook, "it exited 0 and left no record")
    return took


def _last_event(file: Path) -> object:
    """What the last line says; None where there is no such line."""
    try:
        return json.loads(file.read_bytes().splitlines()[-1])["event"]
    except (OSError, IndexError, ValueError, KeyError):
        return None


def _failed(hook: Path, how: str, said: str = "") -> SlurmkitError:
    ours = quote(str(data_dir("prolog_epilog") / hook.name))
    return SlurmkitError(
        f"{hook.name} failed when it was tried: {how}; nothing was changed",
        f"see what it does with: env -i SLURM_JOB_ID={_JOB} SLURMD_NODENAME={_NODE} /bin/bash -x {ours}",
        said,
    )
