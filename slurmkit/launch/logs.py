"""What a run has printed: copied, and followed until its job has ended."""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import TYPE_CHECKING, BinaryIO

from slurmkit.errors import RunNotFoundError, SlurmRefusedError, SlurmUnavailableError
from slurmkit.launch.watch import is_live, kept_status, run_status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import PointStatus, Run

__all__ = ["follow_log", "print_log"]

_PAUSE = 0.5
#: Seconds of silence until Slurm is asked whether the job has ended; they double with each question.
_SHORT, _LONG = 2.0, 16.0
_AWAY = (SlurmUnavailableError, SlurmRefusedError)


def print_log(run: Run, point: int, client: SlurmClient, out: BinaryIO) -> None:
    """Copy the log of one point to a stream.

    Args:
        run: the run.
        point: which point of it; a single run is point 0.
        client: asked which points there are, where the folder does not tell.
        out: receives the log, byte by byte.

    Raises:
        RunNotFoundError: for a point that the run has not, and for one without a log, with the reason.
    """
    if not run.log(point).exists():
        said, _ = _missing(run, point, client)
        raise RunNotFoundError(said, f"see why with: slurmkit status {run.word}")
    _copy(run.log(point), 0, out)


def follow_log(
    run: Run,
    point: int,
    client: SlurmClient,
    out: BinaryIO,
    say: Callable[[str], None],
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Copy a log as it grows, until its job has ended and nothing is left to copy.

    Args:
        run: the run.
        point: which point of it; one that has not started is waited for.
        client: asked whether the job has ended, when the log has been silent for a while.
        out: receives the log, byte by byte.
        say: hears that the job is waited for, and at last how it ended.
        pause: waits; called with seconds.

    Raises:
        RunNotFoundError: for a point that the run has not, or that nobody has submitted.
        ConfigError: if the run was submitted to another cluster than the one that is asked.
    """
    if not run.log(point).exists():
        said, ended = _missing(run, point, client)
        say(said if ended else f"{said}; waiting for it")
    place, quiet, patience, over = 0, 0.0, _SHORT, False
    while True:
        fresh = _copy(run.log(point), place, out)
        if fresh:
            place, quiet, patience = place + fresh, 0.0, _SHORT
        elif over:
            return
        elif quiet >= patience:
            over, quiet, patience = _is_over(run, point, client, say), 0.0, min(2 * patience, _LONG)
        else:
            pause(_PAUSE)
            quiet += _PAUSE


def _missing(run: Run, point: int, client: SlurmClient) -> tuple[str, bool]:
    """Why a point that the run has, or may have, has no log, and whether its job is known to have ended.

    Raises:
        RunNotFoundError: for a point that the run has not, and where the log is in a place that is not known.
    """
    single = not run.is_sweep
    if not (run.by_hand and not single) and point not in range(size := len(run.points()) or 1):
        has = "one point alone, 0" if size == 1 else f"the points 0 to {size - 1}"
        raise RunNotFoundError(
            f"--point: got {point}; {run.id} has {has}", f"see it with: slurmkit status {run.word}"
        )
    if run.by_hand and single:
        raise RunNotFoundError(
            f"{run.id} was submitted by hand, and its log {run.id}.log is neither here nor above {run.path.parent}",
            f"call this from the submission folder, or see where --output of the script leads: scontrol show job {run.by_hand}",
        )
    statuses: list[PointStatus] = []
    with contextlib.suppress(*_AWAY):
        statuses = run_status(run, client, point)
    for status in statuses:
        if not is_live(status):
            return f"{run.id} has no log of point {point}: {_end_without_log(status)}", True
    return f"{run.id} has no log of point {point} yet: its job has not started", False


def _end_without_log(status: PointStatus) -> str:
    began = status.source == "lives" or status.state == "COMPLETED"
    how = "has ended, and what it printed is not there" if began else "has ended without having begun"
    node = f" (on {status.nodes})" if status.nodes else ""
    return f"its job {status.job} {how}: {status.state} {status.reason}".rstrip() + node


def _copy(path: Path, place: int, out: BinaryIO) -> int:
    """Copy what a log has from a place on; a file that was opened long ago may not grow on NFS."""
    try:
        with path.open("rb") as log:
            log.seek(place)
            shutil.copyfileobj(log, out)
            out.flush()
            return log.tell() - place
    except FileNotFoundError:
        return 0


def _is_over(run: Run, point: int, client: SlurmClient, say: Callable[[str], None]) -> bool:
    """Whether Slurm, where it can be asked, knows the job to have ended; says how."""
    if not run.path.exists():
        say(f"{run.path} is gone")
        return True
    try:
        statuses = run_status(run, client, point)
    except _AWAY:
        # Slurm is, the log is not. What it once said of the end is enough; a record of a life may not be the last.
        statuses = [status for status in kept_status(run, point) if status.source not in {"lives", "none"}]
        if not statuses:
            return False
    if any(map(is_live, statuses)):
        return False
    for status in statuses:
        say(f"{status.job}: {status.state} {status.reason}".rstrip())
    return True
