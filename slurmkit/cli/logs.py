"""``slurmkit logs``: what a run has printed."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from slurmkit.cli.options import run_argument

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = 1 << 16


@click.command("logs")
@run_argument
@click.option("-p", "--point", type=int, default=0, show_default=True, help="Which point of a sweep.")
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C, as the run writes.")
def logs_command(run: str, runs_dir: Path, *, point: int, follow: bool) -> int:
    """Print a run's log, all lives of it in one file: RUN is a run folder, a run id, a job id, or `last`."""
    from slurmkit.errors import RunNotFoundError  # noqa: PLC0415
    from slurmkit.launch.ledger import find_run  # noqa: PLC0415

    found = find_run(run, runs_dir)
    path = found.point_dir(point) / "log"
    if not path.exists() and not follow:
        points = len(found.points()) or 1
        if not 0 <= point < points:
            raise RunNotFoundError(
                f"--point: got {point}; {found.id} has the points 0 to {points - 1}",
                "see them with: slurmkit status " + found.id,
            )
        raise RunNotFoundError(
            f"{found.id} has no log of point {point} yet: its job has not started",
            "see why with: slurmkit status " + found.id,
        )
    _copy(path, follow=follow)
    return 0


def _copy(path: Path, *, follow: bool) -> None:
    while follow and not path.exists():
        time.sleep(0.5)
    with path.open("rb") as log:
        while True:
            block = log.read(_BLOCK)
            if block:
                sys.stdout.buffer.write(block)
                sys.stdout.flush()
            elif not follow:
                return
            else:
                time.sleep(0.5)
