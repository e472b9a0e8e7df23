"""``slurmkit hooks``: Prolog and Epilog onto a node, and off it again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmkit.cli.group import VerbGroup
from slurmkit.cli.options import json_option
from slurmkit.cli.output import note, print_json, print_rows
from slurmkit.errors import SlurmkitError, SlurmUnavailableError
from slurmkit.hooks.settings import DEFAULT_FOLDER, DEFAULT_STATE_DIR

if TYPE_CHECKING:
    from slurmkit.hooks.advice import Site
    from slurmkit.hooks.install import Installed
    from slurmkit.hooks.status import Status


def _absolute(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    from slurmkit.hooks.safe import plain  # noqa: PLC0415 - only where a path was typed

    del ctx, option
    # Nor a variable that was empty: slurmd has no current folder of yours.
    if value is not None and not value.startswith("/"):
        raise click.BadParameter(f"{value!r} is no absolute path, such as {DEFAULT_FOLDER}")
    return value if value is None else plain(value)


_dir = click.option(
    "--dir",
    "folder",
    default=DEFAULT_FOLDER,
    show_default=True,
    callback=_absolute,
    help="Where the hooks are.",
)


@click.group("hooks", cls=VerbGroup)
def hooks_command() -> None:
    """Install, check and remove the Prolog and Epilog that note each job of a node."""


@hooks_command.command("install")
@_dir
@click.option(
    "--state-dir", callback=_absolute, help=f"Where they write.  [default: as it is, or {DEFAULT_STATE_DIR}]"
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--force", is_flag=True, help="Replace files that somebody edited.")
def install_command(folder: str, state_dir: str | None, *, dry_run: bool, force: bool) -> None:
    """Install or update them, and print what slurm.conf lacks.

    Each hook is run once before it is put in place. slurm.conf itself is never touched: what stdout has, if
    anything, are lines for it.
    """
    from slurmkit.hooks.install import install  # noqa: PLC0415 - only once the words are sound

    place = Path(folder)
    site = _ask()
    known = None if isinstance(site, SlurmkitError) else site
    done = install(place, state_dir, site=known, force=force, dry_run=dry_run)
    _tell(place, done, dry_run=dry_run)
    if isinstance(site, SlurmkitError):
        _snippet(place, site.message)
    else:
        _advise(site, place)


def _ask() -> Site | SlurmkitError:
    """What the cluster's settings say, or why they cannot be had."""
    from slurmkit import open_client  # noqa: PLC0415
    from slurmkit.hooks.advice import read_site  # noqa: PLC0415

    try:
        config = open_client().config()
    except SlurmkitError as error:
        return error
    return read_site(config.options, config.release)


def _tell(folder: Path, done: Installed, *, dry_run: bool) -> None:
    made, wrote = ("would make", "would write") if dry_run else ("made", "wrote")
    for place in done.made:
        note(f"{made} {place}")
    if done.changed:
        note(f"{wrote} {', '.join(done.changed)} in {folder}")
    else:
        note(f"{folder} is up to date")
    for hook, took in done.took.items():
        note(f"tried {hook}: exited 0 in {took:.0f} ms")
    for what, remedy in done.kept_out:
        note(f"{what}; mend it with: {remedy}")
    note(f"records: {done.state_dir}/NODE/jobs.jsonl; do the same on every node that does not share {folder}")


def _advise(site: Site, folder: Path) -> None:
    from slurmkit.hooks.advice import advise  # noqa: PLC0415
    from slurmkit.hooks.running import running  # noqa: PLC0415

    uses = running(site, folder)
    advice = advise(site, folder, uses)
    for hook, use in uses.items():
        if use.runs:
            note(f"{hook} runs by {use.where}")
    for text in advice.notes:
        note(text)
    if advice.lines:
        note(
            "slurm.conf lacks the lines below; once all nodes have the hooks: add them, and run scontrol reconfigure"
        )
        print("\n".join(advice.lines), flush=True)
    elif not advice.notes:
        note("slurm.conf has them already")


def _snippet(folder: Path, why: str) -> None:
    from slurmkit.paths import data_dir  # noqa: PLC0415

    note(f"what slurm.conf has is not known: {why}")
    note("it needs the lines below, each only as its comment says")
    text = (data_dir("prolog_epilog") / "slurm.conf.snippet").read_text(encoding="utf-8")
    print(text.replace(DEFAULT_FOLDER, str(folder)), end="", flush=True)


@hooks_command.command("uninstall")
@_dir
@click.option("--force", is_flag=True, help="Also where Slurm cannot say whether slurm.conf names them.")
def uninstall_command(folder: str, *, force: bool) -> None:
    """Remove them, once slurm.conf names them no more.

    The records stay. A Prolog that slurm.conf names and nobody finds drains every node that gets a job.
    """
    from slurmkit.hooks.install import uninstall  # noqa: PLC0415

    place = Path(folder)
    done = uninstall(place, site=_ask(), force=force)
    for name in done.kept:
        note(f"kept {place / name}: it is not what slurmkit put there")
    note(
        f"removed {', '.join(done.gone)} from {place}" if done.gone else f"nothing of slurmkit is in {place}"
    )
    if done.state_dir.is_dir():
        note(f"the records stay in {done.state_dir}")


@hooks_command.command("status")
@_dir
@json_option
def status_command(folder: str, *, as_json: bool) -> int:
    """Say whether all is as it should be, and when they last wrote.

    Looks at each file (whole, safe, of this version), at the folders, and at what slurmctld knows of them.
    Exits 1 if something is not as it should be, and 4 if Slurm cannot be asked.
    """
    from slurmkit.hooks.status import check  # noqa: PLC0415

    site = _ask()
    found = check(Path(folder), None if isinstance(site, SlurmkitError) else site)
    if as_json:
        print_json(found.as_json())
    else:
        _show(found)
    _say(found)
    if isinstance(site, SlurmkitError):
        note(f"what slurm.conf has is not known: {site.message}")
        return 1 if found.troubles else SlurmUnavailableError.exit_code
    return 1 if found.troubles else 0


def _show(found: Status) -> None:
    said = {True: "runs", False: "does not run", None: "is mentioned"}
    rows = [("file", item.name, item.state) for item in found.files]
    for hook, use in (found.uses or {}).items():
        rows.append(("slurm.conf", hook, said[use.runs] + (f" ({use.where})" if use.where else "")))
    rows += [("record", item.node, _when(item.time)) for item in found.records]
    print_rows(("OF", "NAME", "STATE"), rows)


def _say(found: Status) -> None:
    """Each trouble with its remedy; that of those which install mends once, at the end."""
    for text in found.notes:
        note(text)
    for what, remedy in found.troubles:
        note(what if remedy == found.install else f"{what}; {remedy}")
    if any(remedy == found.install for _, remedy in found.troubles):
        note(f"mend it with: {found.install}")


def _when(seconds: int | None) -> str:
    return "unread" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
