"""How the hooks of a folder are: their files, slurm.conf, and what they last wrote."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from slurmkit.hooks import files, safe
from slurmkit.hooks.advice import advise, swept
from slurmkit.hooks.last import last_records
from slurmkit.hooks.running import running
from slurmkit.hooks.settings import DEFAULT_FOLDER, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmkit.hooks.advice import Site
    from slurmkit.hooks.last import Record
    from slurmkit.hooks.running import Use

__all__ = ["Status", "Trouble", "check"]

_RECONFIGURE = "slurm.conf, and run scontrol reconfigure"


class Trouble(NamedTuple):
    """What is not as it should be, and what mends it: the command ``Status.install``, or what a person has to do."""

    what: str
    remedy: str


class Status(NamedTuple):
    """What was found.

    Attributes:
        folder: where the hooks are, without links.
        state_dir: where they write.
        files: each of their files.
        uses: of ``prolog`` and ``epilog``, how slurmd has it run; None where Slurm could not be asked.
        lines: what slurm.conf lacks; None where Slurm could not be asked.
        records: the last one of each node whose records are on this machine.
        troubles: what is not as it should be.
        notes: what is to be known besides.
    """

    folder: Path
    state_dir: Path
    files: tuple[files.Item, ...]
    uses: dict[str, Use] | None
    lines: tuple[str, ...] | None
    records: tuple[Record, ...]
    troubles: tuple[Trouble, ...]
    notes: tuple[str, ...]

    @property
    def install(self) -> str:
        """The command, whole, that brings this folder up to date."""
        return _install(self.folder)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for version 1 of the JSON; ``runs`` is null where only a person can say."""
        uses = self.uses
        return {
            "folder": str(self.folder),
            "state_dir": str(self.state_dir),
            "files": [item._asdict() for item in self.files],
            "runs": uses and {hook: use.runs for hook, use in uses.items()},
            "runs_by": uses and {hook: use.where for hook, use in uses.items()},
            "slurm_conf_lacks": self.lines,
            "records": [record._asdict() for record in self.records],
            "troubles": [trouble._asdict() for trouble in self.troubles],
            "notes": list(self.notes),
        }


def _install(folder: Path) -> str:
    command = "slurmkit hooks install"
    return command if str(folder) == DEFAULT_FOLDER else f"{command} --dir {quote(str(folder))}"


def check(folder: Path, site: Site | None) -> Status:
    """Look at everything; nothing is changed, and no hook is run.

    Args:
        folder: where the hooks are, an absolute path; over a link, it is the place that it leads to.
        site: what Slurm says of its settings; None where it could not be asked.

    Raises:
        SlurmkitError: if a file cannot be read.
    """
    with safe.told("it cannot be said how the hooks are"):
        return _check(Path(os.path.realpath(folder)), site)


def _check(folder: Path, site: Site | None) -> Status:
    items = tuple(files.inspect(folder))
    settings = read_settings(files.text_of(folder))
    state = Path(settings.state_dir)
    records = tuple(last_records(state))
    troubles = [
        Trouble(f"{folder / item.name} {item.why}", _mend(item, _install(folder)))
        for item in items
        if item.why
    ]
    troubles += [
        Trouble(
            f"{folder / files.SETTINGS}: {line}",
            f"write there what is accepted, or delete the line in {folder / files.SETTINGS}",
        )
        for line in settings.unread
    ]
    uid = site.slurmd_uid if site else 0
    install = _install(folder)
    troubles += _unsafe(folder, "the folder of the hooks", safe.RUN, 0, "slurmkit hooks install --dir")
    troubles += _unsafe(state, "the folder of the records", safe.WRITTEN, uid, f"{install} --state-dir")
    if not site:
        return Status(folder, state, items, None, None, records, tuple(troubles), ())
    uses = running(site, folder)
    lines = advise(site, folder, uses).lines
    troubles += [Trouble(*why) for why in safe.kept_out(folder, state, uid)]
    troubles += _of_slurm(site, folder, uses, lines)
    silent = not records and any(use.runs for use in uses.values())
    notes = (f"they run, and no record is in {state} here: no job yet, or no slurmd",) if silent else ()
    return Status(folder, state, items, uses, lines, records, tuple(troubles), notes)


def _mend(item: files.Item, install: str) -> str:
    return {
        "edited": f"keep a copy of what is yours in it, and replace it with: {install} --force",
        "foreign": f"move it away, and then: {install}",
    }.get(item.state, install)


def _of_slurm(site: Site, folder: Path, uses: dict[str, Use], lines: tuple[str, ...]) -> Iterator[Trouble]:
    """What slurmctld does not know, or knows to our harm."""
    for hook, use in uses.items():
        line = f"{hook.capitalize()}={folder / hook}"
        told = f"do what {_install(folder)} says"
        for lack in use.lacks:
            there = f"put there what the other nodes have, or take it out of {_RECONFIGURE}"
            yield Trouble(lack.what, told if lack.told else there)
        if use.runs is None:
            yield Trouble(
                f"whether slurmd runs {folder / hook} cannot be said: {use.where}",
                f"call it there by its whole path, as a command of its own, or set {line} in {_RECONFIGURE}",
            )
        elif not use.runs and not any(lack.told for lack in use.lacks):
            beside = f"{told}, to have it run beside {', '.join(use.others)}"
            what = f"slurmctld knows no {hook.capitalize()} that runs {folder / hook}"
            yield Trouble(what, beside if use.others else f"set {line} in {_RECONFIGURE}")
    for line in lines:
        if not line.startswith(("Prolog=", "Epilog=")):
            yield Trouble(f"slurmctld does not know {line}", f"set it in {_RECONFIGURE}")
    sweeping = swept(site, folder)
    if sweeping:
        setting = sweeping.partition("=")[0]
        yield Trouble(
            f"{sweeping} runs files that are no hooks, and drains nodes",
            f"set {setting}={folder / setting.lower()} in its place in {_RECONFIGURE}",
        )


def _unsafe(folder: Path, what: str, harm: str, owner: int, rename: str) -> Iterator[Trouble]:
    """Why others could change what the hooks are or write; nothing where they cannot, or there is no folder yet.

    Args:
        folder: that is looked at.
        what: it is.
        harm: as ``safe.faults`` takes it.
        owner: as ``safe.faults`` takes it.
        rename: the command that names another place, up to its name.
    """
    if os.path.lexists(folder):
        for fault in safe.faults(folder, harm, owner):
            remedy = f"{fault.remedy}, with: {rename} {fault.named}" if fault.named else fault.remedy
            yield Trouble(f"{what}: {fault.what}", remedy)
