"""How the hooks of a folder are: their files, slurm.conf, and what they last wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slurmkit.errors import SlurmkitError
from slurmkit.hooks import files, safe
from slurmkit.hooks.advice import advise, swept
from slurmkit.hooks.running import last_records, running
from slurmkit.hooks.settings import read_settings

if TYPE_CHECKING:
    from slurmkit.hooks.advice import Site
    from slurmkit.hooks.running import Record

__all__ = ["Status", "check"]


class Status(NamedTuple):
    """What was found.

    Attributes:
        folder: where the hooks are.
        state_dir: where they write.
        files: each of their files.
        runs: of ``prolog`` and ``epilog``, whether slurmd runs it; None where Slurm could not be asked.
        lines: what slurm.conf lacks; None where Slurm could not be asked.
        records: the last one of each node whose records are on this machine.
        troubles: what is not as it should be, a line each.
    """

    folder: Path
    state_dir: Path
    files: tuple[files.Item, ...]
    runs: dict[str, bool] | None
    lines: tuple[str, ...] | None
    records: tuple[Record, ...]
    troubles: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values, for version 1 of the JSON."""
        return {
            "folder": str(self.folder),
            "state_dir": str(self.state_dir),
            "files": [item._asdict() for item in self.files],
            "runs": self.runs,
            "slurm_conf_lacks": self.lines,
            "records": [record._asdict() for record in self.records],
            "troubles": list(self.troubles),
        }


def check(folder: Path, site: Site | None) -> Status:
    """Look at everything; nothing is changed, and no hook is run.

    Args:
        folder: where the hooks are, an absolute path.
        site: what Slurm says of its settings; None where it could not be asked.

    Raises:
        SlurmkitError: if a file cannot be read.
    """
    with safe.told("it cannot be said how the hooks are"):
        return _check(folder, site)


def _check(folder: Path, site: Site | None) -> Status:
    items = tuple(files.inspect(folder))
    settings = read_settings(files.text_of(folder))
    state = Path(settings.state_dir)
    troubles = [f"{folder / item.name} {item.why}" for item in items if item.why]
    troubles += [f"{folder / files.SETTINGS}: {line}" for line in settings.unread]
    troubles += _unsafe(folder, "the folder of the hooks") + _unsafe(state, "the folder of the records")
    runs: dict[str, bool] | None = None
    lines: tuple[str, ...] | None = None
    if site:
        runs = running(site, folder)
        lines = advise(site, folder, runs).lines
        sweeping = swept(site, folder)
        troubles += [
            f"slurmctld knows no {hook.capitalize()} that runs {folder / hook}"
            for hook in runs
            if not runs[hook]
        ]
        troubles += [
            f"slurmctld does not know {line}" for line in lines if not line.startswith(("Prolog=", "Epilog="))
        ]
        troubles += [f"{sweeping} runs files that are no hooks, and drains nodes"] if sweeping else []
    return Status(folder, state, items, runs, lines, tuple(last_records(state)), tuple(troubles))


def _unsafe(folder: Path, what: str) -> list[str]:
    """Why others could change what the hooks are or write; nothing where they cannot, or there is no folder yet."""
    try:
        if os.path.lexists(folder):
            safe.check_folder(folder, what)
    except SlurmkitError as error:
        return [error.message]
    return []
