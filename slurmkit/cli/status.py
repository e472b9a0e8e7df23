"""``slurmkit status``: what has become of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmkit.cli.options import json_option, run_argument
from slurmkit.cli.output import note, print_json, print_rows
from slurmkit.errors import SlurmUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from slurmkit.launch.ledger import PointStatus, Run

_COLUMNS = ("POINT", "JOB", "STATE", "NODES", "RESTARTS", "REASON")
_MOST_ROWS = 50


@click.command("status")
@run_argument
@json_option
def status_command(run: str, runs_dir: Path, *, as_json: bool) -> int:
    """Show what has become of a run, or of one point of it: `12_3`.

    RUN is a run folder, a run id, a Slurm job id, or `last`. Works with and without accounting, and from any
    login node that sees the run folder. On a terminal the columns have a header; elsewhere each line is one
    point, with tabs between point, job, state, nodes, restarts and reason. Programs read --json.
    """
    from slurmkit import open_client  # noqa: PLC0415 - only once the words are sound
    from slurmkit.launch.search import find_point  # noqa: PLC0415
    from slurmkit.launch.watch import kept_status, run_status, summary  # noqa: PLC0415

    client = open_client()
    found, point = find_point(run, runs_dir, client)
    away = None
    try:
        statuses = run_status(found, client, point)
    except SlurmUnavailableError as error:
        statuses, away = kept_status(found, point), error
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
    else:
        _show(found, statuses, counts)
    if away is not None:
        raise away  # last: what the folder knows is shown, and it is an error all the same
    return 0


def _show(run: Run, statuses: Sequence[PointStatus], counts: Mapping[str, int]) -> None:
    note(
        f"{run.id}: "
        + (
            ", ".join(f"{count} {state}" for state, count in counts.items())
            or "no submission is recorded, and Slurm knows no job of it"
        )
    )
    shown = statuses[:_MOST_ROWS]
    print_rows(
        _COLUMNS,
        [(item.point, item.job, item.state, item.nodes, item.restarts, item.reason) for item in shown],
    )
    if len(shown) < len(statuses):
        note(f"... and {len(statuses) - len(shown)} points more: --json shows all")
    lost = [item.point for item in statuses if item.state == "LOST"]
    again = run.again(lost) if lost else ""
    if again:
        note(f"what is LOST can be submitted again with: {again}")
