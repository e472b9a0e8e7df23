"""How the ranks of a step find rank 0: a port that the kernel chose, published as a file.

A port computed from the job id can belong to somebody else. Here rank 0 binds port 0 and keeps the
socket open (so nobody else can have that port), then publishes addresses, port and identity in the run
folder. The others poll for the file, and believe it only when the server itself repeats the nonce: a
file of an earlier life, or a dead port that another job got since, is read again until the deadline.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import secrets
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from slurmkit.errors import RendezvousError, StoppedError
from slurmkit.runtime.records import read_json, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmkit.runtime.jobenv import JobEnv

__all__ = [
    "Meeting",
    "addresses",
    "meeting_file",
    "new_meeting",
    "publish",
    "search",
    "withdraw",
    "withdraw_older",
]

T = TypeVar("T")
_PROBE_SECONDS = 3.0
_POLL_SECONDS = (0.02, 0.5)
_IDENTITY = ("cluster", "job", "step", "restart", "world_size")


@dataclass(frozen=True)
class Meeting:
    """Where rank 0 listens, and for whom."""

    addresses: tuple[str, ...]
    port: int
    boot_id: str
    nonce: str
    cluster: str
    job: str
    step: str
    restart: int
    world_size: int


def meeting_file(env: JobEnv) -> Path:
    """The file of this step of this life; no two steps share one.

    Args:
        env: any rank of the step.
    """
    return env.run_dir / "rendezvous" / f"{'-'.join(_words(env))}.json"


def _words(env: JobEnv) -> list[str]:
    words = [env.cluster or "local", env.own_id or "0", env.step_id or "0", str(env.restart), str(env.point)]
    return [re.sub(r"[^\w.]", "_", word) for word in words]


def new_meeting(env: JobEnv, port: int) -> Meeting:
    """What rank 0 publishes about the port that it holds open.

    Args:
        env: rank 0.
        port: the port, already listening.
    """
    return Meeting(
        addresses(env.node),
        port,
        _boot_id(),
        secrets.token_hex(16),
        env.cluster,
        env.own_id,
        env.step_id,
        env.restart,
        env.world_size,
    )


def addresses(node: str) -> tuple[str, ...]:
    """Names and numbers under which other nodes may reach this one, best first.

    Slurm's node name comes first where it resolves (sites give it the fast network), then the
    host name, then the address that the routing table would use. Loopback comes last, and only
    ranks on this machine try it: Debian's /etc/hosts maps the host name to 127.0.1.1.

    Args:
        node: Slurm's name of this node.
    """
    names = [node, socket.gethostname(), socket.getfqdn()]
    numbers = []
    for name in names:
        with contextlib.suppress(OSError):
            numbers += [str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # a documentation address: nothing is sent
        numbers.append(str(probe.getsockname()[0]))
    outward = [number for number in numbers if not _is_loopback(number)]
    return tuple(dict.fromkeys([*outward, "127.0.0.1"]))


def publish(path: Path, meeting: Meeting) -> None:
    """Write the file that the other ranks poll for.

    Args:
        path: from :func:`meeting_file`.
        meeting: from :func:`new_meeting`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(asdict(meeting)), mode=0o600)


def withdraw(path: Path, meeting: Meeting) -> None:
    """Remove our own file, once everybody is there; never the file of somebody else.

    Args:
        path: from :func:`meeting_file`.
        meeting: what was published.
    """
    found = read_json(path)
    if found is not None and found.get("nonce") == meeting.nonce:
        path.unlink(missing_ok=True)


def withdraw_older(env: JobEnv) -> None:
    """Remove what earlier lives of this job left that were killed before they could; for rank 0.

    Args:
        env: rank 0.
    """
    cluster, job, _, restart, point = _words(env)
    for path in list(meeting_file(env).parent.glob("*.json")):
        words = path.stem.split("-")
        if len(words) != len(_words(env)) or (words[0], words[1], words[4]) != (cluster, job, point):
            continue
        if words[3].isdigit() and int(words[3]) < int(restart):
            path.unlink(missing_ok=True)


def _never() -> bool:
    return False


def search(
    env: JobEnv,
    seconds: float,
    join: Callable[[str, Meeting], T | None],
    stopping: Callable[[], bool] = _never,
) -> T:
    """Find rank 0 and join it, reading the file again whenever it turns out to be stale.

    Args:
        env: a rank other than 0.
        seconds: how long to try.
        join: connects to ``(address, meeting)`` and returns a handle, or None where the server is not
            the one that the meeting names.
        stopping: whether a signal came.

    Raises:
        StoppedError: once ``stopping`` says so.
        RendezvousError: at the deadline; the message says what was seen last.
    """
    path = meeting_file(env)
    expected = (env.cluster, env.own_id, env.step_id, env.restart, env.world_size)
    deadline = time.monotonic() + seconds
    seen = "no file of rank 0"
    pause = _POLL_SECONDS[0]
    while True:
        meeting = _read(path)
        if meeting is not None:
            if tuple(getattr(meeting, key) for key in _IDENTITY) != expected:
                seen = f"a file of job {meeting.job}, restart {meeting.restart}"
            else:
                for address in _reachable(meeting):
                    handle = join(address, meeting)
                    if handle is not None:
                        return handle
                seen = f"a file that names {', '.join(meeting.addresses)}, port {meeting.port}, and no answer"
        if stopping():
            raise StoppedError("a signal came before rank 0 was found")
        if path.parent.exists() and not path.parent.is_dir():
            raise RendezvousError(
                f"{path.parent} is not a folder", hint="remove it, or take another run folder"
            )
        if time.monotonic() > deadline:
            raise RendezvousError(
                f"rank 0 was not found within {seconds:.0f} s: {path}: {seen}",
                hint="look at the log of rank 0; raise trainer.rendezvous_seconds if the nodes start slowly",
            )
        time.sleep(pause)
        pause = min(pause * 1.5, _POLL_SECONDS[1])


def _read(path: Path) -> Meeting | None:
    # Listing the folder makes an NFS client ask the server; a bare open believes its cache for 30 s.
    try:
        if path not in list(path.parent.iterdir()):
            return None
    except OSError:
        return None
    found = read_json(path)
    if found is None:
        return None
    try:
        meeting = Meeting(**found)
    except TypeError:
        return None
    return Meeting(**{**asdict(meeting), "addresses": tuple(meeting.addresses)})


def _reachable(meeting: Meeting) -> list[str]:
    same_machine = meeting.boot_id == _boot_id()
    candidates = [address for address in meeting.addresses if same_machine or not _is_loopback(address)]
    if same_machine:  # loopback first: always there, never filtered
        candidates.sort(key=lambda address: not _is_loopback(address))
    good = []
    for address in candidates:
        with contextlib.suppress(OSError):
            socket.create_connection((address, meeting.port), timeout=_PROBE_SECONDS).close()
            good.append(address)
    return good


def _is_loopback(number: str) -> bool:
    try:
        return ipaddress.ip_address(number.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()
