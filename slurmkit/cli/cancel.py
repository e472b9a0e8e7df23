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
    """End a run for good; its ranks save first. RUN is a run folder, a run id, a Slurm job id, or `last`."""
    from slurmkit import open_client  # noqa: PLC0415 - only once the words are sound
    from slurmkit.launch.ledger import find_run  # noqa: PLC0415
    from slurmkit.launch.watch import cancel_run  # noqa: PLC0415

    found = find_run(run, runs_dir)
    ended = cancel_run(found, open_client())
    note(
        f"{found.id}: cancelled job {', '.join(ended)}"
        if ended
        else f"{found.id}: nothing to cancel, no job of it is there any more"
    )
    return 0
