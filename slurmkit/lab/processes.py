"""Processes of a lab: start them so that they outlive us, find them again, end every one of them.

A daemon carries its lab's folder in its environment. What is found by that mark, or descends from it,
or is a job that was started under the lab's slurm.conf, belongs to the lab; nothing else is ever signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["MARK", "end_all", "lab_processes", "spawn", "started", "tail"]

#: The variable that marks a daemon of a lab; its value is the lab's folder.
MARK = "SLURMKIT_LAB_DAEMON"

_PROC = Path("/proc")
_GONE = b"ZX"  # a zombie is dead, whoever has yet to reap it
_POLL = 0.02
_END_TIMEOUT = 20.0


def spawn(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, output: Path) -> int:
    """Start a daemon in a session of its own, so that neither our end nor Ctrl-C reaches it.

    Args:
        argv: the command; its first word is an absolute path.
        env: its whole environment.
        cwd: where it runs.
        output: the file that gets its stdout and stderr.

    Returns:
        Its process id.
    """
    return os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", 'cd "$0" && exec "$@"', str(cwd), *argv],
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    )


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid, an identity.

    Returns:
        None if there is no such process, or if it has ended and nobody has reaped it.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # where it is a child of ours, it would stay a zombie
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in _GONE else None


def _stat(pid: int) -> list[bytes]:
    """Read the fields of /proc/PID/stat after the command's name; none if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return []
    return text.rpartition(b")")[2].split()


def lab_processes(root: Path, conf: Path) -> set[int]:
    """Find every live process of a lab.

    Args:
        root: the lab's folder, as in :data:`MARK`.
        conf: its slurm.conf, as in ``SLURM_CONF`` of its jobs.

    Returns:
        Process ids: daemons, steps and jobs, and what descends from them. Never this process or who called
        it, so that a lab can be ended from within, even from within a job of it; its step goes.
    """
    mark = f"{MARK}={root}".encode()
    job = f"SLURM_CONF={conf}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        fields = _stat(pid)
        if not fields or fields[0] in _GONE:
            continue
        parents[pid] = int(fields[1])
        variables = _environ(pid)
        is_job = job in variables and any(variable.startswith(b"SLURM_JOB_ID=") for variable in variables)
        if mark in variables or is_job or _is_step_in(root, pid):
            found.add(pid)
    for pid in parents:
        line = _ancestors(pid, parents)
        if found.intersection(line):
            found.update(line[: 1 + max(line.index(member) for member in found.intersection(line))])
    callers = {pid for pid in _ancestors(os.getpid(), parents) if not _is_step(pid)}
    return found - callers


def _environ(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _is_step(pid: int) -> bool:
    try:
        return (_PROC / str(pid) / "comm").read_text().strip() == "slurmstepd"
    except OSError:
        return False


def _is_step_in(root: Path, pid: int) -> bool:
    """Whether a process is a step daemon of the lab: from 24.11 on its title has overwritten its environment.

    Its working folder is then the one that its slurmd was started in, which is the lab's. That alone would
    not do: a person may well stand in that folder to read the logs.
    """
    try:
        return _is_step(pid) and (_PROC / str(pid) / "cwd").readlink() == root
    except OSError:
        return False


def _ancestors(pid: int, parents: Mapping[int, int]) -> list[int]:
    """List a process and its ancestors, nearest first."""
    line = []
    while pid in parents and pid not in line:
        line.append(pid)
        pid = parents[pid]
    return line


def end_all(root: Path, conf: Path, known: Iterable[int] = ()) -> int:
    """End every process of a lab. It is thrown away, so nothing is asked to finish first.

    Args:
        root: the lab's folder.
        conf: its slurm.conf.
        known: daemons of it that are certainly alive, whether their environment can be read or not.

    Returns:
        How many there were.

    Raises:
        LabError: if one is still there after 20 s.
    """
    stopped = set(known)
    _signal(stopped, signal.SIGSTOP)
    # Stopped first, so that none starts another between being listed and being killed.
    while new := lab_processes(root, conf) - stopped:
        _signal(new, signal.SIGSTOP)
        stopped |= new
    _signal(stopped, signal.SIGKILL)
    deadline = time.monotonic() + _END_TIMEOUT
    while left := {pid for pid in stopped if started(pid) is not None} | lab_processes(root, conf):
        if time.monotonic() > deadline:
            raise LabError(
                f"processes of the lab in {root} did not end: {', '.join(map(str, sorted(left)))}",
                "see them with ps -fp PID; one in state D waits for a file system or a device",
            )
        time.sleep(_POLL)
    return len(stopped)


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def tail(path: str | Path, lines: int = 15) -> str:
    """The last lines of a log, or a remark that it has none."""
    try:
        text = Path(path).read_text(errors="replace").rstrip()
    except OSError:
        text = ""
    return "\n".join(text.splitlines()[-lines:]) if text else f"({path} is empty)"
