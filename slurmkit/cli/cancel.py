"""``slurmkit cancel``: end a run for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmkit.cli.options import run_argument
from slurmkit.cli.output import note

if TYPE_CHECKING:
    from pathlib import Path


@click.command("cancel")
@run_argument
def cancel_command(run: str, runs_dir: Path) -> int:
    """End a run, or one point of it (`12_3`), for good; ranks that save do so first.

    RUN is a run folder, a run id, a Slurm job id, or `last`.
    """
    from slurmkit import open_client  # noqa: PLC0415 - only once the words are sound
    from slurmkit.launch.search import find_point  # noqa: PLC0415
    from slurmkit.launch.watch import cancel_run  # noqa: PLC0415

    client = open_client()
    found, point = find_point(run, runs_dir, client)
    ended = cancel_run(found, client, point)
    of = "" if point is None else f" of point {point}"
    note(
        f"{found.id}: cancelled job {', '.join(ended)}"
        if ended
        else f"{found.id}: nothing to cancel, no job{of} is there any more"
    )
    return 0
