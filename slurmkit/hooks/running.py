"""Whether slurmd runs our hooks, in whatever way the site has them called: by name, by a pattern, by a script."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slurmkit.hooks.beside import SITE, our_name, theirs_of
from slurmkit.hooks.files import HOOKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmkit.hooks.advice import Site

__all__ = ["Lack", "Use", "running"]

_MOST_OF_A_SCRIPT = 1 << 18
_MOST_OF_A_LINE = 120
#: A whole path: what is glued to a variable, or to anything else, is none.
_PATH = re.compile(rb"""(?:^|(?<=[\s=:;&|(<>`])|(?<=[\s=:;&|(<>`]["'])|(?<=^["']))/[\w./+@-]*""")
_COMMENT = re.compile(rb"(?:^|\s)#")
#: Where a command ends, and the next one begins.
_END = re.compile(rb"[;&|(){}`!]")
#: What may stand before a command without making an argument of it.
_BEFORE = re.compile(
    rb"\s*(?:(?:(?:/\S*/)?(?:exec|command|time|nice|nohup|env|timeout|(?:ba|da|k|z)?sh)"
    rb"|if|elif|while|until|then|else|do|source|\.|-\S+|\d+[smhd]?|\w+=\S*)\s+)*"
)


class Lack(NamedTuple):
    """What slurm.conf has slurmd run, and what is not on this machine.

    Attributes:
        what: it is, and what comes of it.
        told: whether install says how to make it.
    """

    what: str
    told: bool


class Use(NamedTuple):
    """How the site uses one of our hooks.

    Attributes:
        runs: whether slurmd runs it; None where something mentions it, and only a person can say.
        where: what that rests on, such as ``/etc/slurm/prolog.sh:3: /etc/slurm/slurmkit/prolog``; empty for no.
        others: the paths and patterns of slurm.conf that are not just this hook.
        lacks: what this machine has not of these.
    """

    runs: bool | None
    where: str
    others: tuple[str, ...]
    lacks: tuple[Lack, ...] = ()


class _Hook(NamedTuple):
    path: str
    folder: str
    tail: re.Pattern[bytes]  # the end of its path, whatever is before


def running(site: Site, folder: Path) -> dict[str, Use]:
    """How slurm.conf has each hook run: by name, by a pattern, or by a script of the site that calls it.

    Args:
        site: its settings.
        folder: where the hooks are, on this machine; also over a link.
    """
    return {hook: _use(hook, site.hooks[hook], os.path.realpath(folder)) for hook in HOOKS}


def _hook(path: str) -> _Hook:
    folder, name = os.path.split(path)
    tail = re.compile(re.escape(os.fsencode(f"{Path(folder).name}/{name}")) + rb"(?![\w./+@-])")
    return _Hook(path, folder, tail)


def _use(name: str, named: tuple[str, ...], folder: str) -> Use:
    hook = _hook(f"{folder}/{name}")
    found = [use for path in named for use in _uses(path, hook)]
    runs = [where for sure, where in found if sure]
    others = tuple(path for path in named if not _is(path, hook.path))
    where = next(iter(runs or [where for _, where in found]), "")
    lacks = tuple(lack for path in others for lack in _lacks(name, path))
    return Use(bool(runs) or (None if found else False), where, others, lacks)


def _lacks(name: str, named: str) -> Iterator[Lack]:
    """What is missing here of what slurm.conf names: at all, or of the site's hook in a folder made for it and ours."""
    found = glob.glob(named)  # noqa: PTH207 - as glob(3)
    theirs = theirs_of(name, named)
    setting = f"slurm.conf has {name.capitalize()}={named}"
    drains = f'slurmd drains this node at its next job, with the reason "{name.capitalize()} error"'
    if not found:
        yield Lack(f"{setting}, which matches no file here: {drains}", bool(theirs))
    elif theirs:
        site = Path(named).with_name(SITE)
        if {os.path.basename(path) for path in found} == {our_name(name)}:  # noqa: PTH119
            yield Lack(
                f"{setting}, and {site} is not there: {theirs} does not run on this machine", told=True
            )
        elif not Path(theirs).exists() and any(
            sure for sure, _ in _calls(site, _hook(os.path.realpath(theirs)))
        ):
            yield Lack(f"{site} runs {theirs}, which is not there: {drains}", told=False)


def _uses(named: str, hook: _Hook) -> Iterator[tuple[bool, str]]:
    """Each use by what slurm.conf names: whether it is a sure one, and where it is."""
    setting = f"slurm.conf: {Path(hook.path).name.capitalize()}={named}"
    if _is(named, hook.path):  # also where the file is gone
        yield True, setting
        return
    for path in glob.glob(named):  # noqa: PTH207 - as glob(3)
        if _is(path, hook.path):
            yield True, setting
        else:
            yield from _calls(Path(path), hook)


def _is(path: str, hook: str) -> bool:
    """Whether a path is the hook, over whatever links; the hook may be a link itself."""
    real = os.path.realpath
    return hook in {real(path), os.path.join(real(os.path.dirname(path)), os.path.basename(path))}  # noqa: PTH118, PTH119, PTH120


def _calls(script: Path, hook: _Hook) -> Iterator[tuple[bool, str]]:
    """Each line of a script of the site that has to do with the hook."""
    try:
        if not script.is_file():  # a pipe would have us wait
            return
        with script.open("rb") as file:
            lines = file.read(_MOST_OF_A_SCRIPT).split(b"\n")
    except OSError as error:
        yield False, f"{script} cannot be read: {error.strerror}"
        return
    for number, line in enumerate(lines, 1):
        # An argument on a line of its own is no command.
        before = b"continued " if number > 1 and lines[number - 2].endswith(b"\\") else b""
        sure = _called(before + _uncommented(line), hook)
        if sure is not None:
            text = line.decode(errors="replace").strip()[:_MOST_OF_A_LINE]
            yield sure, f"{script}:{number}: {''.join(filter(str.isprintable, text))}"


def _uncommented(line: bytes) -> bytes:
    """A line up to its comment. What may be in a string, as far as quotes tell, is none."""
    starts = (match.start() for match in _COMMENT.finditer(line))
    return line[: next((start for start in starts if _is_plain(line[:start])), len(line))]


def _is_plain(before: bytes) -> bool:
    return not (before.count(b'"') % 2 or before.count(b"'") % 2)


def _called(line: bytes, hook: _Hook) -> bool | None:
    """Whether a line calls the hook; False where it only mentions it, None where it does not even that."""
    answers: set[bool] = set()
    for match in _PATH.finditer(line):
        path = os.fsdecode(match[0])
        if _is(path, hook.path):
            answers.add(_is_command(line[: match.start()]))
        elif os.path.realpath(path) == hook.folder:
            answers.add(False)
    if hook.tail.search(_PATH.sub(b" ", line)):
        answers.add(False)
    return max(answers, default=None)


def _is_command(before: bytes) -> bool:
    """Whether a word after this text is a command, and no argument, no value and no part of a string."""
    if before.endswith((b'"', b"'")):
        before = before[:-1]
    return _is_plain(before) and bool(_BEFORE.fullmatch(_END.split(before)[-1]))
