"""Free ports and names, held against other labs that start at the same moment."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from typing import TYPE_CHECKING

from slurmkit.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["claim", "free_ports"]

_FIRST_PORT = 20000  # below the ports that Linux hands out by itself
_LAST_PORT = 32000
_PORT_BLOCK = 128


@contextlib.contextmanager
def claim(what: str) -> Iterator[bool]:
    """Hold something against other processes for as long as the block runs, however it ends.

    An abstract socket is the lock: it needs no file, and the kernel lets go of it with its process.

    Args:
        what: is held.

    Yields:
        Whether we got it.
    """
    name = hashlib.sha256(what.encode()).hexdigest()[:32]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        try:
            lock.bind(f"\0slurmkit-lab-{name}")
        except OSError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def free_ports(count: int) -> Iterator[int]:
    """Find consecutive free ports, and keep other labs off them while the block runs.

    Args:
        count: how many are needed.

    Yields:
        The first of them.

    Raises:
        LabError: if no block of them is free.
    """
    blocks = range(_FIRST_PORT, _LAST_PORT, _PORT_BLOCK)
    begin = os.getpid() % len(blocks)
    for first in [*blocks[begin:], *blocks[:begin]]:
        with claim(f"ports {first}") as ours:
            if ours and all(_is_free(port) for port in range(first, first + count)):
                yield first
                return
    raise LabError(
        f"no {count} consecutive TCP ports are free between {_FIRST_PORT} and {_LAST_PORT}",
        "end labs that are not needed: slurmkit lab down --name NAME",
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Slurm does: TIME_WAIT is no obstacle
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
