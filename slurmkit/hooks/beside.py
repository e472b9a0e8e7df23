"""Our hook beside one of the site's, before Slurm 24.05: slurm.conf names a pattern, and both are in its folder.

Pure: the commands are for a shell, and for every node, whatever it has of them already.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote

__all__ = [
    "SITE",
    "in_folder_of_both",
    "in_folder_of_theirs",
    "is_pattern",
    "our_name",
    "pattern_of_both",
    "theirs_of",
]

#: What runs the site's hook in a folder of both.
SITE = "site"


def is_pattern(path: str) -> bool:
    """Whether slurmd takes a path as a pattern."""
    return any(character in path for character in "*?[")


def our_name(hook: str) -> str:
    """Ours in such a folder: slurmd goes from z to a, and what fails ends the row. Ours never does."""
    return f"zz-slurmkit-{hook}"


def _ending(hook: str) -> str:
    return f".slurmkit-{hook}.d"


def pattern_of_both(hook: str, theirs: str) -> str:
    """What slurm.conf shall name: a folder that only we name so, since a folder of the site may hold anything.

    It has the name of the site's hook in it, so that slurm.conf tells each node of a later day which one that is.
    """
    return f"{theirs}{_ending(hook)}/*"


def theirs_of(hook: str, named: str) -> str:
    """The site's hook for which a folder of both was made; empty if what slurm.conf names is no such folder."""
    folder, _, name = named.rpartition("/")
    return folder.removesuffix(_ending(hook)) if name == "*" and folder.endswith(_ending(hook)) else ""


def in_folder_of_both(ours: Path, theirs: str) -> str:
    """The commands that make the folder and both scripts; where it has another file they show it, and stop.

    Args:
        ours: the hook.
        theirs: the one of the site.
    """
    folder = Path(pattern_of_both(ours.name, theirs)).parent
    site, new = folder / SITE, our_name(ours.name)
    return (
        f"  mkdir -p -m 755 {_typed(folder)} &&\n"
        f"  ! ls {_typed(folder)} | grep -vxe {SITE} -e {new} &&\n"
        # What somebody made of it stays.
        f"  if [ ! -e {_typed(site)} ]; then {_script(site, f'exec {_typed(theirs)}')}; fi &&\n"
        f"  {_script(folder / new, *_call(ours))}"
    )


def in_folder_of_theirs(ours: Path, pattern: str, *, for_both: bool) -> str:
    """The commands that put ours into a folder of the site, also where that is not there yet.

    Args:
        ours: the hook.
        pattern: of slurm.conf.
        for_both: whether Prolog and Epilog name it: each hook runs all of it, and passes over what is for the other.
    """
    other = "epilog" if ours.name == "prolog" else "prolog"
    unless = f'[ "$SLURM_SCRIPT_CONTEXT" = {other}_slurmd ] || ' if for_both else ""
    folder = Path(pattern).parent
    # Whoever pastes a pattern as the name of a folder shall not get one of that name.
    made = "" if is_pattern(str(folder)) else f"  mkdir -p -m 755 {_typed(folder)} &&\n"
    return f"{made}  {_script(folder / _matching(Path(pattern).name, ours.name), *_call(ours, unless))}"


def _matching(pattern: str, hook: str) -> str:
    """A name for ours that a pattern has."""
    name = re.sub(r"\[[^]]*(.)\]", r"\1", pattern).replace("?", "z")
    name = name.replace("*", our_name(hook), 1).replace("*", "")
    return name if fnmatchcase(name, pattern) else f"A-NAME-THAT-MATCHES-FOR-{hook.upper()}"


def _call(ours: Path, unless: str = "") -> tuple[str, str]:
    """The lines of a script: it exits 0 also should ours be gone one day, since all else drains the node."""
    return f"{unless}{_typed(ours)}", "exit 0"


def _script(file: Path, *lines: str) -> str:
    """The commands that write a script: whole from its first moment on."""
    new = _typed(file.parent / f".{file.name}")
    text = " ".join(map(quote, ("#!/bin/sh", *lines)))
    return f"printf '%s\\n' {text} >{new} && chmod 755 {new} && mv {new} {_typed(file)}"


def _typed(path: Path | str) -> str:
    return quote(str(path))
