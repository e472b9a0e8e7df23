"""``slurmkit submit``: one run, or a sweep."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmkit.cli.options import compose_options
from slurmkit.cli.output import note, print_script

if TYPE_CHECKING:
    from slurmkit.launch.ledger import Run


@click.command("submit")
@compose_options
@click.option(
    "-m", "--multirun", is_flag=True, help="Sweep over the overrides with several values: one job array."
)
@click.option("--dry-run", is_flag=True, help="Print the script without asking Slurm anything.")
@click.option(
    "--wait", is_flag=True, help="Wait for the end; the exit code says whether all of it completed."
)
@click.option("--force", is_flag=True, help="Submit even what preflight calls impossible.")
def submit_command(
    overrides: tuple[str, ...],
    config_name: str,
    config_dir: Path | None,
    *,
    multirun: bool,
    dry_run: bool,
    wait: bool,
    force: bool,
) -> int:
    """Submit an experiment. Prints the run folder; the job id goes to stderr.

    \b
      slurmkit submit experiment=gpt_ddp
      slurmkit submit -m experiment=digits optim.lr=1e-3,3e-3
    """  # noqa: D301 - \b is click's mark
    from slurmkit import compile_job, load_experiment, submit  # noqa: PLC0415 - Hydra costs 0.2 s, --help none
    from slurmkit.compiler.plan import Place  # noqa: PLC0415
    from slurmkit.config.load import check_points  # noqa: PLC0415
    from slurmkit.config.overrides import split_overrides  # noqa: PLC0415

    if multirun:
        fixed, points = split_overrides(overrides)
        experiment = check_points(points, fixed, config_name, config_dir)
    else:
        experiment, points = load_experiment(overrides, config_name, config_dir), None
    if dry_run:
        place = Place(cwd=str(Path.cwd()))
        print_script(compile_job(experiment, None, place, points=points).script)
        return 0
    run = submit(experiment, points, force=force, say=note)
    with contextlib.suppress(BrokenPipeError):  # whoever waits may want the exit code alone
        print(run.path, flush=True)
    return _wait(run) if wait else 0


def _wait(run: Run) -> int:
    import time  # noqa: PLC0415

    from slurmkit import open_client  # noqa: PLC0415
    from slurmkit.launch.watch import summary, wait_for  # noqa: PLC0415

    try:
        statuses = wait_for(run, open_client(), time.sleep, say=note)
    except KeyboardInterrupt:
        note(f"the job goes on; end it with: slurmkit cancel {run.word}")
        raise
    note(", ".join(f"{count} {state}" for state, count in summary(statuses).items()))
    return 0 if all(status.state == "COMPLETED" for status in statuses) else 1
