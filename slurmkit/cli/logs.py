"""``slurmkit logs``: what a run has printed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from slurmkit.cli.options import run_argument
from slurmkit.cli.output import note

if TYPE_CHECKING:
    from pathlib import Path


@click.command("logs")
@run_argument
@click.option("-p", "--point", type=int, help="Which point of a sweep; `12_3` names one, too.  [default: 0]")
@click.option("-f", "--follow", is_flag=True, help="Go on as the run writes, until it ends.")
def logs_command(run: str, runs_dir: Path, *, point: int | None, follow: bool) -> int:
    """Print a run's log, all lives of it in one file: RUN is a run folder, a run id, a job id, or `last`."""
    from slurmkit import open_client  # noqa: PLC0415 - only once the words are sound
    from slurmkit.errors import UsageError  # noqa: PLC0415
    from slurmkit.launch.logs import follow_log, print_log  # noqa: PLC0415
    from slurmkit.launch.search import find_point  # noqa: PLC0415

    client = open_client()
    found, named = find_point(run, runs_dir, client)
    if point is not None and named not in {None, point}:
        raise UsageError(f"--point {point}: {run} names point {named} already", "leave one of them out")
    point = next((number for number in (named, point) if number is not None), 0)
    if follow:
        follow_log(found, point, client, sys.stdout.buffer, note)
    else:
        print_log(found, point, client, sys.stdout.buffer)
    return 0
