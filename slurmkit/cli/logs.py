"""``slurmkit logs``: what a run has printed."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from slurmkit.cli.options import run_argument
from slurmkit.cli.output import note

if TYPE_CHECKING:
    from pathlib import Path

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import Run

_PAUSE = 0.5
#: Seconds of silence until Slurm is asked whether the job has ended; they double with each question.
_SHORT, _LONG = 2.0, 16.0


@click.command("logs")
@run_argument
@click.option("-p", "--point", type=int, help="Which point of a sweep; `12_3` names one, too.  [default: 0]")
@click.option("-f", "--follow", is_flag=True, help="Go on as the run writes, until it ends.")
def logs_command(run: str, runs_dir: Path, *, point: int | None, follow: bool) -> int:
    """Print a run's log, all lives of it in one file: RUN is a run folder, a run id, a job id, or `last`."""
    from slurmkit.errors import UsageError  # noqa: PLC0415
    from slurmkit.launch.ledger import find_point  # noqa: PLC0415

    found, named = find_point(run, runs_dir)
    if point is not None and named not in {None, point}:
        raise UsageError(f"--point {point}: {run} names point {named} already", "leave one of them out")
    point = next((number for number in (named, point) if number is not None), 0)
    if not found.log(point).exists():
        _explain(found, point, follow=follow)
    if follow:
        _follow(found, point)
    else:
        _copy(found.log(point), 0)
    return 0


def _explain(run: Run, point: int, *, follow: bool) -> None:
    """Why there is no log, and what to do; with ``follow`` a job that has not started is waited for.

    Raises:
        RunNotFoundError: for a point that the run has not, and where nobody waits.
    """
    from slurmkit.errors import RunNotFoundError  # noqa: PLC0415

    points = len(run.points()) or 1
    if not run.by_hand and not 0 <= point < points:
        raise RunNotFoundError(
            f"--point: got {point}; {run.id} has the points 0 to {points - 1}",
            "see them with: slurmkit status " + run.id,
        )
    if run.by_hand and run.started() == [0] and not (run.point_dir(0) / "log").exists():  # no sweep
        raise RunNotFoundError(
            f"{run.id} was submitted by hand, and its log {run.id}.log is neither here nor above {run.path.parent}",
            f"call this from the submission folder, or see where --output of the script leads: scontrol show job {run.by_hand}",
        )
    said = f"{run.id} has no log of point {point} yet: its job has not started"
    if not follow:
        raise RunNotFoundError(said, "see why with: slurmkit status " + run.id)
    note(f"{said}; waiting for it")


def _follow(run: Run, point: int) -> None:
    """Copy a log as it grows, until its job has ended and nothing is left to copy."""
    from slurmkit import open_client  # noqa: PLC0415 - only where somebody follows

    client, place, quiet, patience, over = open_client(), 0, 0.0, _SHORT, False
    while True:
        fresh = _copy(run.log(point), place)
        if fresh:
            place, quiet, patience = place + fresh, 0.0, _SHORT
        elif over:
            return
        elif quiet >= patience:
            over, quiet, patience = _is_over(run, point, client), 0.0, min(2 * patience, _LONG)
        else:
            time.sleep(_PAUSE)
            quiet += _PAUSE


def _copy(path: Path, place: int) -> int:
    """Copy what a log has from a place on; a file that was opened long ago may not grow on NFS."""
    try:
        with path.open("rb") as log:
            log.seek(place)
            shutil.copyfileobj(log, sys.stdout.buffer)
            sys.stdout.flush()
            return log.tell() - place
    except FileNotFoundError:
        return 0


def _is_over(run: Run, point: int, client: SlurmClient) -> bool:
    """Whether Slurm, where it can be asked, knows the job to have ended; says how."""
    from slurmkit.errors import SlurmkitError  # noqa: PLC0415
    from slurmkit.launch.watch import is_live, run_status  # noqa: PLC0415

    if not run.path.exists():
        note(f"{run.path} is gone")
        return True
    try:
        statuses = [status for status in run_status(run, client) if status.point == point]
    except SlurmkitError:
        return False  # Slurm is away, the log is not
    if any(map(is_live, statuses)):
        return False
    for status in statuses:
        note(f"{status.job}: {status.state} {status.reason}".rstrip())
    return True
