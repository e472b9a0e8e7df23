"""What the batch scripts of a run have written of its lives: that each began, and how it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmkit.runtime.records import read_json_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["JOB", "LIVES", "Life", "has_fields", "newest_lives", "read_lives"]

#: The folder in a run folder; one file a node.
LIVES = "lives"
#: The id of a job, or of one task of an array; Slurm's have 32 bits.
JOB = re.compile(r"(\d{1,10})(?:_(\d{1,10}))?", re.ASCII)
_FIELDS = {"cluster": str, "job": str, "task": int, "restart": int, "time": int}


@dataclass(frozen=True)
class Life:
    """One life of one task: from a start of its batch script to the end of it, or of its node."""

    cluster: str
    job: str
    """The id of the job, or of the whole array."""
    point: int
    restart: int
    """How often Slurm had started it before."""
    began: float
    """Seconds since the epoch, by the node's clock."""
    exit: int | None = None
    """The exit code of the script; ``None`` while it runs, and for ever if it was killed."""
    terminated: bool = False
    """Whether SIGTERM came before the end."""


def read_lives(folder: Path) -> list[Life]:
    """Every life that is written down, in no order. Torn lines, and what is no record, are passed over.

    Args:
        folder: the run folder.
    """
    records: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for path in sorted((folder / LIVES).glob("*.jsonl")):
        for record in read_json_lines(path):
            if _is_life(record):
                life = record["cluster"], record["job"], record["task"], record["restart"]
                # The line of the end adds to that of the start, in whichever order they are read.
                known = records.setdefault(life, record)
                known["began"] = min(record["time"], known.get("began", record["time"]))
                if record.get("exit") is not None:
                    known |= {"exit": record["exit"], "term": record.get("term")}
    return [
        Life(*life, record["began"], record.get("exit"), bool(record.get("term")))
        for life, record in records.items()
    ]


def _is_life(record: Mapping[str, Any]) -> bool:
    whole = has_fields(record, _FIELDS) and "_" not in record["job"]
    return whole and isinstance(record.get("exit"), int | None)


def newest_lives(lives: Iterable[Life]) -> dict[tuple[str, int], Life]:
    """The newest life of each job and point.

    Slurm counts the restarts. A node that it gave up may come back, and end a life that was superseded long ago.
    """
    newest: dict[tuple[str, int], Life] = {}
    for life in lives:
        place = life.job, life.point
        if place not in newest or life.restart > newest[place].restart:
            newest[place] = life
    return newest


def has_fields(record: Mapping[str, Any], types: Mapping[str, type]) -> bool:
    """Whether a line is a record of a job with these fields: a folder that people share can hold anything."""
    return all(isinstance(record.get(key), kind) for key, kind in types.items()) and bool(
        JOB.fullmatch(record["job"])
    )
