"""What slurm.conf still lacks on this site: a pure decision on values of ``scontrol show config``."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slurmkit.hooks.beside import (
    in_folder_of_both,
    in_folder_of_theirs,
    is_pattern,
    pattern_of_both,
    theirs_of,
)
from slurmkit.hooks.files import HOOKS, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmkit.hooks.running import Use

__all__ = ["Advice", "Site", "advise", "read_site", "swept"]

#: From this release on every Prolog line counts; before, only the last one.
_SEVERAL_SINCE = (24, 5)
#: Flags of the Prolog that bring Alloc with them.
_ALLOC = frozenset({"alloc", "contain", "deferbatch", "forcerequeueonfail", "nohold", "runinjob", "x11"})
_TIMEOUT_OF_BOTH = "PrologEpilogTimeout"
_UNSET_TIMEOUT = 65534  # Slurm's way to write none at all
_MESSAGE_TIMEOUT = 10
_TIMEOUT = 8


class Site(NamedTuple):
    """What a cluster's settings say of Prolog and Epilog.

    Attributes:
        hooks: the paths and patterns that slurm.conf names, by ``prolog`` and ``epilog``.
        flags: PrologFlags.
        untimed: those of ``prolog`` and ``epilog`` that nothing ends, however long they take.
        message_timeout: seconds.
        release: of Slurm, such as ``(22, 5, 8)``.
        slurmd_uid: of SlurmdUser, as whom the hooks run and write.
    """

    hooks: Mapping[str, tuple[str, ...]]
    flags: tuple[str, ...]
    untimed: tuple[str, ...]
    message_timeout: int
    release: tuple[int, ...]
    slurmd_uid: int


class Advice(NamedTuple):
    """What to tell the admin.

    Attributes:
        lines: for slurm.conf, each complete; empty where it needs none.
        notes: what is to be done besides, each of one or more lines.
    """

    lines: tuple[str, ...]
    notes: tuple[str, ...]


def read_site(options: Mapping[str, str], release: tuple[int, ...]) -> Site:
    """Read the settings.

    Args:
        options: ``scontrol show config``, key by key; values that are unset are ``(null)`` or absent.
        release: of Slurm.
    """
    known = {key: value for key, value in options.items() if value not in {"(null)", "N/A", ""}}
    base = Path(known.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    hooks = {}
    for hook in HOOKS:
        key = hook.capitalize()  # from 24.05 on it is written Prolog[0], Prolog[1] and so on
        named = [value for name, value in known.items() if name == key or name.startswith(f"{key}[")]
        hooks[hook] = tuple(str(base / path) for path in named)
    seconds = known.get("MessageTimeout", "").split(" ")[0]
    user = re.search(r"\((\d+)\)$", known.get("SlurmdUser", ""))  # as in slurm(64030)
    ends = {key for key, value in known.items() if value.isdecimal() and int(value) < _UNSET_TIMEOUT}
    return Site(
        hooks=hooks,
        flags=tuple(filter(None, known.get("PrologFlags", "").split(","))),
        untimed=tuple(hook for hook in HOOKS if not ends & {_TIMEOUT_OF_BOTH, _timeout_of((hook,))}),
        message_timeout=int(seconds) if seconds.isdecimal() else _MESSAGE_TIMEOUT,
        release=release,
        slurmd_uid=int(user[1]) if user else 0,
    )


def _timeout_of(hooks: Sequence[str]) -> str:
    """The setting that ends these; the one for a single hook is there from 25.05 on."""
    return _TIMEOUT_OF_BOTH if len(hooks) > 1 else f"{hooks[0].capitalize()}Timeout"


def swept(site: Site, folder: Path) -> str:
    """The pattern of slurm.conf that would run files of ours which are no hook, and so drain nodes; or nothing.

    Links on the way to either are followed on this machine.
    """
    places = {folder, Path(os.path.realpath(folder))}
    for hook, paths in site.hooks.items():
        others = ("record.bash", SETTINGS, *(name for name in HOOKS if name != hook))
        for pattern in filter(is_pattern, paths):
            spelled = {Path(pattern), Path(os.path.realpath(pattern))}
            if any(_matches(at / name, path) for at in places for name in others for path in spelled):
                return f"{hook.capitalize()}={pattern}"
    return ""


def _matches(path: Path, pattern: Path) -> bool:
    """Whether a pattern has a path; as in glob(3) a ``*`` ends at each slash."""
    return len(path.parts) == len(pattern.parts) and all(map(fnmatchcase, path.parts, pattern.parts))


def advise(site: Site, folder: Path, uses: Mapping[str, Use]) -> Advice:
    """Decide what is to be added to slurm.conf, and what is to be done beside it.

    Args:
        site: what it says now.
        folder: where the hooks are.
        uses: of ``prolog`` and ``epilog``, how the site has it run already.
    """
    lines: list[str] = []
    notes: list[str] = []
    for hook in HOOKS:
        use = uses[hook]
        line = f"{hook.capitalize()}={folder / hook}"
        theirs = next(filter(None, (theirs_of(hook, path) for path in use.others)), "")
        lacking = use.runs is False or any(lack.told for lack in use.lacks)
        if theirs and lacking:  # in any release: slurm.conf names it
            notes.append(_again(folder / hook, theirs))
        elif use.runs is None:
            notes.append(
                f"whether slurmd runs {folder / hook} is for you to say ({use.where}): slurm.conf needs a {line} of its"
                " own, or that script a call of its whole path, unless it runs it"
            )
        elif not use.runs and (not use.others or site.release >= _SEVERAL_SINCE):
            lines.append(line)
        elif not use.runs:
            _beside(folder / hook, use.others[-1], site, lines, notes)
    _flags(site.flags, lines, notes)
    if site.untimed:
        _timeout(site, own=any(uses[hook].others for hook in site.untimed), lines=lines, notes=notes)
    return Advice(tuple(lines), tuple(notes))


def _timeout(site: Site, *, own: bool, lines: list[str], notes: list[str]) -> None:
    """An end for hooks that have none; it would cut a longer one of the site's short."""
    seconds = max(1, min(_TIMEOUT, site.message_timeout - 2))
    timeout = f"{_timeout_of(site.untimed)}={seconds}"
    which = " or ".join(hook.capitalize() for hook in site.untimed)
    if own:
        notes.append(
            f"no {which} of this site is ever ended: set {timeout} or more, if each of yours ends within it"
        )
    else:
        lines.append(timeout)


def _beside(ours: Path, theirs: str, site: Site, lines: list[str], notes: list[str]) -> None:
    """How our hook goes beside one of the site's, in a folder that slurm.conf names as a pattern."""
    setting = ours.name.capitalize()
    if is_pattern(theirs):
        for_both = all(theirs in named for named in site.hooks.values())
        notes.append(
            f"slurm.conf has {setting}={theirs}: put ours there, on every node, beside what the other nodes have"
            f" there, with\n{in_folder_of_theirs(ours, theirs, for_both=for_both)}"
        )
        return
    pattern = pattern_of_both(ours.name, theirs)
    lines.append(f"{setting}={pattern}")
    notes.append(
        f"slurm.conf has {setting}={theirs}, and before Slurm 24.05 only one line counts: make a folder for both, on"
        f" every node and before slurm.conf names it, with\n{in_folder_of_both(ours, theirs)}\n"
        f"and replace the line of slurm.conf. {_others(pattern)}"
    )


def _again(ours: Path, theirs: str) -> str:
    """What a node lacks of a folder of both that slurm.conf names already, as one does that came later."""
    pattern = pattern_of_both(ours.name, theirs)
    return (
        f"slurm.conf has {ours.name.capitalize()}={pattern}, for {theirs} and ours: make here what is missing of it,"
        f" with\n{in_folder_of_both(ours, theirs)}\n"
        f"{theirs} itself has to be here too. {_others(pattern)}"
    )


def _others(pattern: str) -> str:
    return (
        f"If {Path(pattern).parent} has other files, they are shown, and nothing else is done: slurmd would run each of"
        " them, so look at them, and move them away first"
    )


def _flags(flags: Sequence[str], lines: list[str], notes: list[str]) -> None:
    if not {flag.lower() for flag in flags} & _ALLOC:
        lines.append(f"PrologFlags={','.join([*flags, 'Alloc'])}")
        if flags:
            notes.append("PrologFlags replaces the line that is there: a second one would win over the first")
