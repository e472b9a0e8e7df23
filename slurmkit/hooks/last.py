"""When the hooks last wrote: the last record of each node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from slurmkit.runtime.records import from_json

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Record", "last_records"]

_TAIL = 8192
#: Seconds since the epoch: up to the year 9999, which every calendar can write.
_TIMES = range(253_402_300_800)


class Record(NamedTuple):
    """The last thing that the hooks wrote of a node; ``time`` in seconds since the epoch, None where unread."""

    node: str
    time: int | None
    event: str
    job: int | None


def last_records(state_dir: Path) -> list[Record]:
    """The last record of each node whose records are here; only the end of each file is read.

    Args:
        state_dir: where the hooks write. It need not exist.

    Raises:
        OSError: if one cannot be read.
    """
    folders = sorted(state_dir.iterdir()) if state_dir.is_dir() else []
    return [_last(folder) for folder in folders if (folder / "jobs.jsonl").is_file()]


def _last(folder: Path) -> Record:
    with (folder / "jobs.jsonl").open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        lines = file.read().splitlines()
    records = (_record(folder.name, line) for line in reversed(lines))
    return next(filter(None, records), Record(folder.name, None, "", None))


def _record(node: str, line: bytes) -> Record | None:
    """A line of the hooks; None where it is torn, or not theirs."""
    try:
        found = from_json(line)
        time, event, job = found["time"], found["event"], found["job"]
    except (ValueError, KeyError, TypeError):
        return None
    # Of these very types: true is an int to Python, and 1e999 a number to JSON.
    sound = type(time) is int and time in _TIMES and type(event) is str and type(job) in {int, type(None)}
    return Record(node, time, event, job) if sound else None
