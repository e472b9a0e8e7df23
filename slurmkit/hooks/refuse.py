"""What install and uninstall refuse, on what slurm.conf has: each of these would drain nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.errors import SlurmkitError, SlurmUnavailableError
from slurmkit.hooks.advice import swept
from slurmkit.hooks.running import running
from slurmkit.hooks.settings import DEFAULT_FOLDER

if TYPE_CHECKING:
    from slurmkit.hooks.advice import Site

__all__ = ["refuse_swept", "refuse_used"]


def refuse_swept(folder: Path, site: Site | None) -> None:
    """Refuse a folder whose every file slurmd would run; one that is not known to be so is accepted.

    Raises:
        SlurmkitError: names the pattern of slurm.conf.
    """
    pattern = swept(site, folder) if site else ""
    if site and pattern:
        # The default may be the very folder that is swept.
        such = "" if swept(site, Path(DEFAULT_FOLDER)) else f", such as --dir {DEFAULT_FOLDER}"
        raise SlurmkitError(
            f"--dir: slurm.conf has {pattern}, and every file there that is no hook would drain its node",
            f"name a folder that no pattern of slurm.conf matches{such}",
        )


def refuse_used(folder: Path, site: Site | SlurmkitError, *, force: bool) -> None:
    """Keep what slurmd runs, and what it may run: no force takes that away.

    Args:
        folder: where the hooks are, also over a link.
        site: what Slurm says of its settings, or why it could not be asked.
        force: whether to take it that nobody names them where Slurm could not be asked.

    Raises:
        SlurmUnavailableError: if Slurm could not be asked, without force.
        SlurmkitError: names each place that has them run, or mentions them.
    """
    if isinstance(site, SlurmkitError):
        if force:
            return
        raise SlurmUnavailableError(
            f"whether slurm.conf still names the hooks in {folder} is not known: {site.message}",
            "where no slurm.conf of any node names them, say so with --force",
        ) from site
    found = [use for use in running(site, folder).values() if use.where]
    if found:
        sure = any(use.runs for use in found)
        how = "Slurm still runs" if sure else "it cannot be said that Slurm runs no more"
        raise SlurmkitError(
            f"{how} the hooks in {folder} ({', '.join(use.where for use in found)}): without them it would drain every"
            " node that gets a job",
            "take them out of slurm.conf, or of the script that names them, run scontrol reconfigure, and try again",
        )
