"""Whether slurmd runs our hooks, in whatever way the site has them called; and when they last did."""

from __future__ import annotations

import glob
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slurmkit.hooks.files import HOOKS

if TYPE_CHECKING:
    from slurmkit.hooks.advice import Site

__all__ = ["Record", "last_records", "running"]

_MOST_OF_A_SCRIPT = 1 << 18
_TAIL = 8192


class Record(NamedTuple):
    """The last thing that the hooks wrote of a node; ``time`` in seconds since the epoch, None where unread."""

    node: str
    time: int | None
    event: str
    job: int | None


def running(site: Site, folder: Path) -> dict[str, bool]:
    """Whether slurm.conf has each hook run: by name, by a pattern, or by a script of the site that calls it.

    Args:
        site: its settings.
        folder: where the hooks are, on this machine.
    """
    return {hook: any(_runs(path, folder / hook) for path in site.hooks[hook]) for hook in HOOKS}


def _runs(named: str, hook: Path) -> bool:
    if named == str(hook):
        return True
    return any(os.path.realpath(path) == str(hook) or _calls(Path(path), hook) for path in glob.glob(named))  # noqa: PTH207 - as glob(3)


def _calls(script: Path, hook: Path) -> bool:
    """Whether a line of a script, which is no comment, has the path of the hook, or that of its folder."""
    try:
        if not script.is_file():  # a pipe would have us wait
            return False
        with script.open("rb") as file:
            text = file.read(_MOST_OF_A_SCRIPT)
    except OSError:
        return False
    folder, name = re.escape(os.fsencode(hook.parent)), re.escape(os.fsencode(hook.name))
    return bool(re.search(rb"(?m)^[^#\n]*" + folder + rb"(?:/|/" + name + rb")?(?![\w./+@-])", text))


def last_records(state_dir: Path) -> list[Record]:
    """The last record of each node whose records are here; only the end of each file is read.

    Args:
        state_dir: where the hooks write. It need not exist.
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
        found = json.loads(line)
        return Record(node, int(found["time"]), str(found["event"]), found["job"])
    except (ValueError, KeyError, TypeError):
        return None
