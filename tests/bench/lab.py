"""How long a lab takes to come, and to go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurmkit.lab.daemons import Lab

from .figures import Figure, Section

if TYPE_CHECKING:
    from pathlib import Path

RUNS, RUNS_ACCOUNTING = 5, 3
_TEXT = (
    "`Lab.up` of 8 nodes until all of them are idle, and `Lab.down` until no process and no file is left; the two kinds of "
    "lab in turns. With accounting means slurmdbd on a new MariaDB, until `sacct` answers."
)


def measure(folder: Path, runs: int | None) -> Section:
    """Labs that come and go."""
    seen: dict[tuple[str, bool], list[float]] = {
        (what, accounting): [] for accounting in (False, True) for what in ("up", "down")
    }
    for turn in range(runs or RUNS):
        for accounting in (False, True):
            if accounting and turn >= (runs or RUNS_ACCOUNTING):
                continue
            begin = time.perf_counter()
            lab = Lab.up(f"start{turn}", accounting=accounting, folder=folder / "labs")
            up = time.perf_counter()
            lab.down()
            seen["up", accounting].append(up - begin)
            seen["down", accounting].append(time.perf_counter() - up)
    return Section(
        "Start of a lab",
        _TEXT,
        tuple(
            Figure(f"{what}, {'with' if accounting else 'without'} accounting", tuple(values))
            for (what, accounting), values in seen.items()
        ),
    )
