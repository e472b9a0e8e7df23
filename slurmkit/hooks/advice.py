"""What slurm.conf still lacks on this site: a pure decision on values of ``scontrol show config``."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from slurmkit.hooks.files import HOOKS, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Advice", "Site", "advise", "is_pattern", "read_site", "swept"]

#: From this release on every Prolog line counts; before, only the last one.
_SEVERAL_SINCE = (24, 5)
#: Flags of the Prolog that bring Alloc with them.
_ALLOC = frozenset({"alloc", "contain", "deferbatch", "forcerequeueonfail", "nohold", "runinjob", "x11"})
_TIMEOUTS = ("PrologEpilogTimeout", "PrologTimeout", "EpilogTimeout")
_UNSET_TIMEOUT = 65534  # Slurm's way to write none at all
_MESSAGE_TIMEOUT = 10
_TIMEOUT = 8
_NEW_NAME = "zz-slurmkit"  # slurmd goes from z to a, and what fails ends the row: ours never does


class Site(NamedTuple):
    """What a cluster's settings say of Prolog and Epilog.

    Attributes:
        hooks: the paths and patterns that slurm.conf names, by ``prolog`` and ``epilog``.
        flags: PrologFlags.
        timed: whether hooks are ended at some time.
        message_timeout: seconds.
        release: of Slurm, such as ``(22, 5, 8)``.
    """

    hooks: Mapping[str, tuple[str, ...]]
    flags: tuple[str, ...]
    timed: bool
    message_timeout: int
    release: tuple[int, ...]


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
    return Site(
        hooks=hooks,
        flags=tuple(filter(None, known.get("PrologFlags", "").split(","))),
        timed=any(known.get(key, "").isdecimal() and int(known[key]) < _UNSET_TIMEOUT for key in _TIMEOUTS),
        message_timeout=int(seconds) if seconds.isdecimal() else _MESSAGE_TIMEOUT,
        release=release,
    )


def is_pattern(path: str) -> bool:
    """Whether slurmd takes a path as a pattern."""
    return any(character in path for character in "*?[")


def swept(site: Site, folder: Path) -> str:
    """The pattern of slurm.conf that would run files of ours which are no hook, and so drain nodes; or nothing."""
    for hook, paths in site.hooks.items():
        others = ("record.bash", SETTINGS, *(name for name in HOOKS if name != hook))
        for pattern in filter(is_pattern, paths):
            if any(_matches(folder / name, Path(pattern)) for name in others):
                return f"{hook.capitalize()}={pattern}"
    return ""


def _matches(path: Path, pattern: Path) -> bool:
    """Whether a pattern has a path; as in glob(3) a ``*`` ends at each slash."""
    return len(path.parts) == len(pattern.parts) and all(map(fnmatchcase, path.parts, pattern.parts))


def advise(site: Site, folder: Path, running: Mapping[str, bool]) -> Advice:
    """Decide what is to be added to slurm.conf, and what is to be done beside it.

    Args:
        site: what it says now.
        folder: where the hooks are.
        running: of ``prolog`` and ``epilog``, whether slurmd runs it already, in whatever way.
    """
    lines: list[str] = []
    notes: list[str] = []
    own = False
    for hook in HOOKS:
        ours = folder / hook
        theirs = [path for path in site.hooks[hook] if path != str(ours)]
        own = own or bool(theirs)
        if running[hook]:
            continue
        if not theirs or site.release >= _SEVERAL_SINCE:
            lines.append(f"{hook.capitalize()}={ours}")
        else:
            _beside(ours, theirs[-1], lines, notes)
    _flags(site.flags, lines, notes)
    if not site.timed:
        seconds = max(1, min(_TIMEOUT, site.message_timeout - 2))
        timeout = f"PrologEpilogTimeout={seconds}"
        if own:
            notes.append(
                f"no hook of this site is ever ended: set {timeout} or more, if each of yours ends within it"
            )
        else:
            lines.append(timeout)
    return Advice(tuple(lines), tuple(notes))


def _beside(ours: Path, theirs: str, lines: list[str], notes: list[str]) -> None:
    """How our hook goes beside one of the site's, in a folder that slurm.conf names as a pattern."""
    setting = ours.name.capitalize()
    always = f"{ours}\\nexit 0"  # also should it be gone one day: what exits otherwise drains the node
    if is_pattern(theirs):
        name = Path(theirs).name.replace("*", _NEW_NAME, 1).replace("*", "")
        if is_pattern(name):
            name = "A-NAME-THAT-MATCHES"
        notes.append(
            f"slurm.conf has {setting}={theirs}: put ours there, on every node, with\n"
            f"{_script(always, Path(theirs).parent / name)}"
        )
        return
    place = Path(theirs).parent / f"{ours.name}.d"
    lines.append(f"{setting}={place}/*")
    notes.append(
        f"slurm.conf has {setting}={theirs}, and before Slurm 24.05 only one line counts: make a folder for both, on every"
        f" node and before slurm.conf names it, with\n"
        f"  mkdir {place}\n"
        f"{_script(f'exec {theirs}', place / 'site')}\n"
        f"{_script(always, place / _NEW_NAME)}\n"
        f"and replace the line of slurm.conf: every file there has to be executable"
    )


def _script(lines: str, path: Path) -> str:
    """The commands that put a script into a folder: whole from its first moment on."""
    new, file = (quote(str(place)) for place in (path.parent / f".{path.name}", path))
    return f"  printf '#!/bin/sh\\n{lines}\\n' >{new} && chmod 755 {new} && mv {new} {file}"


def _flags(flags: Sequence[str], lines: list[str], notes: list[str]) -> None:
    if not {flag.lower() for flag in flags} & _ALLOC:
        lines.append(f"PrologFlags={','.join([*flags, 'Alloc'])}")
        if flags:
            notes.append("PrologFlags replaces the line that is there: a second one would win over the first")
