"""``slurmkit lab``: a real Slurm on this machine, to try things on."""

from __future__ import annotations

import click

from slurmkit.cli.group import VerbGroup
from slurmkit.cli.options import json_option
from slurmkit.cli.output import note, print_json

_name = click.option("--name", default="lab", show_default=True, help="Which lab.")


@click.group("lab", cls=VerbGroup)
def lab_command() -> None:
    """Start, ask and end a real, emulated Slurm on this machine, as root or as an ordinary user."""


@lab_command.command("up")
@_name
@click.option("-N", "--nodes", type=int, help="Nodes: n1 and up.  [default: 8]")
@click.option("--gpus", type=int, help="Fake gpu:a100 of each node.  [default: 4]")
@click.option("--leaf", type=int, help="Nodes under one leaf switch.  [default: 4]")
@click.option(
    "--accounting", is_flag=True, default=None, help="With slurmdbd on a private MariaDB: sacct works."
)
@click.option(
    "--user-signal", is_flag=True, default=None, help="A preempted job gets the signal of its --signal."
)
def up_command(
    *,
    name: str,
    nodes: int | None,
    gpus: int | None,
    leaf: int | None,
    accounting: bool | None,
    user_signal: bool | None,
) -> None:
    """Start a lab and print the line that turns a shell towards it.

    A lab that runs already is taken as it is.

    \b
    eval "$(slurmkit lab up)"
    sinfo
    """  # noqa: D301 - \b is click's mark
    from slurmkit.lab.daemons import Lab  # noqa: PLC0415 - only once the words are sound

    lab = Lab.up(
        name,
        nodes=nodes,
        gpus=gpus,
        leaf=leaf,
        accounting=accounting,
        user_signal=user_signal,
        note=note,
    )
    print(lab.export_line)


@lab_command.command("down")
@_name
def down_command(name: str) -> None:
    """End a lab: all of its daemons, jobs and files."""
    from slurmkit.lab.daemons import Lab  # noqa: PLC0415

    Lab.end(name, note=note)


@lab_command.command("status")
@_name
@json_option
def status_command(name: str, *, as_json: bool) -> None:
    """Say whether each daemon lives, and count nodes and jobs.

    Exits 1 if a daemon is dead or slurmctld does not answer, and shows its last words.
    """
    from slurmkit.lab.daemons import Lab  # noqa: PLC0415

    status = Lab.open(name).status()
    if as_json:
        print_json(status.as_json())
    else:
        print(status, flush=True)
    if status.trouble:
        raise status.trouble


@lab_command.command("shell", context_settings={"allow_interspersed_args": False})
@_name
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell_command(name: str, command: tuple[str, ...]) -> None:
    """Open a shell in which Slurm's commands talk to the lab, or run one COMMAND there.

    The exit code is the command's.

    \b
    slurmkit lab shell -- sbatch job.sbatch
    """  # noqa: D301
    from slurmkit.lab.daemons import Lab  # noqa: PLC0415
    from slurmkit.lab.shell import enter  # noqa: PLC0415

    enter(Lab.open(name), command)
