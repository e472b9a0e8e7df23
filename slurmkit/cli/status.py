"""``slurmkit status``: what has become of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmkit.cli.options import json_option, run_argument
from slurmkit.cli.output import note, print_json, print_rows

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("POINT", "JOB", "STATE", "NODES", "RESTARTS", "REASON")
_MOST_ROWS = 50


@click.command("status")
@run_argument
@json_option
def status_command(run: str, runs_dir: Path, *, as_json: bool) -> int:
    """Show what has become of a run: RUN is a run folder, a run id, a Slurm job id, or `last`.

    Works with and without accounting, and from any login node that sees the run folder.
    """
    from slurmkit import open_client  # noqa: PLC0415 - only once the words are sound
    from slurmkit.launch.ledger import find_run  # noqa: PLC0415
    from slurmkit.launch.watch import run_status, summary  # noqa: PLC0415

    found = find_run(run, runs_dir)
    statuses = run_status(found, open_client())
    counts = summary(statuses)
    if as_json:
        print_json(
            {
                "run": found.id,
                "path": found.path,
                "summary": counts,
                "points": [item.as_json() for item in statuses],
            }
        )
        return 0
    note(
        f"{found.id}: "
        + (", ".join(f"{count} {state}" for state, count in counts.items()) or "never submitted")
    )
    shown = statuses[:_MOST_ROWS]
    print_rows(
        _COLUMNS,
        [(item.point, item.job, item.state, item.nodes, item.restarts, item.reason) for item in shown],
    )
    if len(shown) < len(statuses):
        note(f"... and {len(statuses) - len(shown)} points more: --json shows all")
    return 0
