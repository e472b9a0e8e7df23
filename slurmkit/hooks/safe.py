"""Whether a folder may hold what root runs at every job: nobody else may be able to change it."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
import subprocess
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from slurmkit.errors import MissingProgramError, SlurmkitError, UsageError
from slurmkit.units import fits_conf

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BASH",
    "RUN",
    "WRITTEN",
    "Fault",
    "check_bash",
    "check_folder",
    "faults",
    "foreign_hands",
    "kept_out",
    "plain",
    "told",
]

BASH = "/bin/bash"
#: What another could do to a folder of hooks, and to one of records.
RUN = "could replace what slurmd runs at every job"
WRITTEN = "could lead elsewhere what slurmd writes at every job"

_OLDEST_BASH = (4, 2)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FREE = "free some space there, and do it again"
_HINTS = {
    errno.EACCES: "do it as root",
    errno.EPERM: "do it as root, and see what protects the file with: lsattr",
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EROFS: "mount it for writing, or do it on the machine that may write there",
}


def plain(path: str) -> str:
    """An absolute path without ``//``, ``.`` and ``..``, also where it begins with two slashes."""
    return "/" + os.path.normpath(path).lstrip("/")


class Fault(NamedTuple):
    """Why a place will not do.

    Attributes:
        what: is wrong with it.
        remedy: what mends it; by which option another place is named, only the caller knows.
        named: the place to name instead, for the shell, where nothing else mends it: ``DIR`` if it is anybody's choice.
    """

    what: str
    remedy: str
    named: str = ""


def faults(folder: Path, harm: str, owner: int = 0) -> Iterator[Fault]:
    """Why another than root and the caller could replace what is put in a place; nothing where nobody could.

    Args:
        folder: an absolute path; it need not exist yet.
        harm: what another could do there: ``RUN`` or ``WRITTEN``.
        owner: the uid of one more who may own it.
    """
    if not fits_conf(str(folder)):
        yield Fault(
            f"slurm.conf cannot hold the path {str(folder)!r} as it is",
            "use an absolute path of letters, digits and any of / . _ + @ -",
            named="DIR",
        )
    real = os.path.realpath(folder)
    if real != plain(str(folder)):
        yield Fault(
            f"{folder} leads over a symbolic link to {real}",
            f"name the place itself, which no link can move: {quote(real)}",
            named=quote(real),
        )
    for place in (Path(real), *Path(real).parents):
        if os.path.lexists(place):
            # In a sticky folder, such as /tmp, nobody can move what belongs to another.
            sticky = bool(place.lstat().st_mode & stat.S_ISVTX) and str(place) != real
            hands = foreign_hands(place.lstat(), writable=not sticky, owner=owner)
            if not place.is_dir():
                yield Fault(f"{place} is no folder", "name another place", named="DIR")
            elif hands:
                who, remedy = hands
                yield Fault(f"{place} {who}, who {harm}", f"{remedy} {quote(str(place))}")


def check_folder(folder: Path, option: str, harm: str, owner: int = 0) -> None:
    """Refuse a place that has one of the ``faults``.

    Args:
        folder: an absolute path; it need not exist yet.
        option: that named it, for the error.
        harm: what another could do there: ``RUN`` or ``WRITTEN``.
        owner: the uid of one more who may own it.

    Raises:
        UsageError: if Slurm could not read the path, or it is a link or no folder.
        SlurmkitError: if somebody else owns it or a folder above it, or may write there.
    """
    for what, remedy, named in faults(folder, harm, owner):
        if named:
            raise UsageError(f"{option}: {what}", f"for {option}, {remedy}")
        raise SlurmkitError(f"{option}: {what}", f"{remedy}, or name another place with {option}")


def foreign_hands(found: os.stat_result, *, writable: bool = True, owner: int = 0) -> tuple[str, str] | None:
    """Who else can change a file or a folder, and the command that ends it; None where nobody can.

    Args:
        found: what ``lstat`` says of it.
        writable: whether the bits for group and others count.
        owner: the uid of one who may, besides root and the caller.
    """
    if found.st_uid not in {0, os.geteuid(), owner}:
        return f"belongs to {_user(found.st_uid)}", _chown(owner)
    if writable and found.st_mode & _OTHERS_WRITE:
        return (
            f"(mode {stat.S_IMODE(found.st_mode):04o}) may be written by its group or by others",
            "chmod go-w",
        )
    return None


def _user(uid: int) -> str:
    """The name of a user, as far as this machine knows it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def kept_out(folder: Path, state: Path, uid: int) -> Iterator[tuple[str, str]]:
    """Why SlurmdUser cannot run the hooks of a folder, or cannot write records, each with what mends it.

    Args:
        folder: of the hooks; whatever is not there is passed over.
        state: of the records, at the top; the hooks make one folder a node in it.
        uid: of SlurmdUser.
    """
    if uid == 0:
        return
    name = _user(uid)
    for place in dict.fromkeys((folder, *folder.parents, state, *state.parents)):
        if place.exists() and not _may(place, uid, stat.S_IXUSR):
            whose = "u" if place.stat().st_uid == uid else "o"
            remedy = f"chmod {whose}+x {quote(str(place))}"
            yield f"{name}, who is SlurmdUser, cannot look into {place}", remedy
    nodes = [place for place in sorted(state.glob("*")) if place.is_dir() and not place.is_symlink()]
    within = [*state.glob("*"), *(node / "jobs.jsonl" for node in nodes)]
    for place in filter(Path.is_symlink, within):  # SlurmdUser made it: root shall give nothing away over it
        yield (
            f"{place} is a symbolic link, and the records would go where it leads",
            f"rm {quote(str(place))}",
        )
    for place in (state, *nodes, *(node / "jobs.jsonl" for node in nodes)):
        if place.exists() and not place.is_symlink() and not _may(place, uid, stat.S_IWUSR):
            remedy = "chmod u+w" if place.stat().st_uid == uid else _chown(uid)
            what = f"{name}, who is SlurmdUser, cannot write records to {place}"
            yield what, f"{remedy} {quote(str(place))}"


def _may(place: Path, uid: int, bit: int) -> bool:
    """Whether a user has a permission, which is told by its bit for the owner; his groups count."""
    found = place.stat()
    try:
        groups = os.getgrouplist(pwd.getpwuid(uid).pw_name, pwd.getpwuid(uid).pw_gid)
    except KeyError:
        groups = []
    shift = 0 if found.st_uid == uid else 3 if found.st_gid in groups else 6
    return bool(found.st_mode & (bit >> shift))


def _chown(uid: int) -> str:
    """The command that gives a place to a user, without its path: that may have become a link by then."""
    return f"chown -h {_user(uid).removeprefix('uid ')}"


def check_bash() -> None:
    """Refuse a machine whose /bin/bash the hooks cannot use.

    Raises:
        MissingProgramError: if it is missing, cannot be run, or is older than 4.2.
    """
    wanted = "bash 4.2 or later is needed at /bin/bash"
    argv = [BASH, "-c", 'echo "${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]}"']
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={}, timeout=10)
        words = done.stdout.split()
        version = (int(words[0]), int(words[1]))
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise MissingProgramError(
            f"the hooks cannot be run here: {wanted} ({error})", "install bash"
        ) from error
    if version < _OLDEST_BASH:
        raise MissingProgramError(
            f"the hooks cannot be run here: {wanted}, and this one is {version[0]}.{version[1]}",
            "install a newer bash",
        )


@contextlib.contextmanager
def told(outcome: str, *, elsewhere: str = "") -> Iterator[None]:
    """What the system refuses, as one line that says what has become of the files, and a hint.

    Args:
        outcome: what is so after a refusal.
        elsewhere: how to name a place where nobody has to be root, if the verb has a way.

    Raises:
        SlurmkitError: in the place of any OSError.
    """
    try:
        yield
    except OSError as error:
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        hint = _HINTS.get(error.errno or 0, "")
        if elsewhere and error.errno == errno.EACCES:
            hint += f", or {elsewhere}"
        raise SlurmkitError(f"{place}{error.strerror or error}; {outcome}", hint) from error
