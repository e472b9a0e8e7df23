"""The files of the hooks: what the package ships, what a folder has, and how the two differ."""

from __future__ import annotations

import difflib
import hashlib
import stat
from typing import TYPE_CHECKING, NamedTuple

from slurmkit.hooks.safe import foreign_hands
from slurmkit.paths import data_dir
from slurmkit.runtime.records import read_json

if TYPE_CHECKING:
    import os
    from pathlib import Path

__all__ = [
    "HOOKS",
    "MANIFEST",
    "SETTINGS",
    "Item",
    "difference",
    "digest",
    "inspect",
    "known",
    "shipped",
    "text_of",
]

#: What slurm.conf names.
HOOKS = ("prolog", "epilog")
SETTINGS = "slurmkit-hooks.conf"
#: Which content we put there: tells an older version of ours from what somebody edited.
MANIFEST = ".slurmkit-hooks.json"

#: In the order in which they are put in place: a hook never finds its library missing.
_MODES = {"record.bash": 0o644, "prolog": 0o755, "epilog": 0o755}
_MOST_LINES = 30


class Item(NamedTuple):
    """One file of a folder.

    Attributes:
        name: of the file.
        state: ``ok``, ``missing``, ``old`` (an earlier version of ours), ``unsafe`` (ours, with a wrong mode or
            owner), ``edited`` (not what we put there), ``foreign`` (no file at all, but a link or a folder), or
            ``default`` (no settings, and none are needed).
        why: what is wrong, in words; empty for ``ok`` and ``default``.
    """

    name: str
    state: str
    why: str = ""


def shipped() -> dict[str, tuple[bytes, int]]:
    """The content and the mode of each file of this version, in the order to put them in place.

    Raises:
        SlurmkitError: if the installation is damaged.
    """
    source = data_dir("prolog_epilog")
    return {name: ((source / name).read_bytes(), mode) for name, mode in _MODES.items()}


def digest(content: bytes) -> str:
    """The SHA-256 of a content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def known(folder: Path) -> dict[str, str]:
    """The digest of each file that an install of any version put in a folder; empty where none did."""
    found = (read_json(folder / MANIFEST) or {}).get("sha256")
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def text_of(folder: Path, name: str = SETTINGS) -> str:
    """A file of the folder as text; empty where it is none. A byte that is no UTF-8 stays what it is."""
    path = folder / name
    return path.read_bytes().decode(errors="surrogateescape") if path.is_file() else ""


def inspect(folder: Path) -> list[Item]:
    """Say of each file how it is: those that we ship, then the settings, which need not be there.

    Args:
        folder: where they are installed; it need not exist.

    Raises:
        OSError: if one cannot be read.
    """
    before = known(folder)
    items = [_item(folder / name, before, content, mode) for name, (content, mode) in shipped().items()]
    settings = _item(folder / SETTINGS, before, None, 0o644)
    return [*items, Item(SETTINGS, "default") if settings.state == "missing" else settings]


def _item(path: Path, before: dict[str, str], content: bytes | None, mode: int) -> Item:
    """Compare a file with its content, where there is one that it must have."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return Item(path.name, "missing", "is not there")
    if not stat.S_ISREG(found.st_mode):
        kind = (
            "a symbolic link" if stat.S_ISLNK(found.st_mode) else "a folder" if path.is_dir() else "no file"
        )
        return Item(path.name, "foreign", f"is {kind}")
    here = digest(path.read_bytes())
    if content is not None and here != digest(content):
        if here == before.get(path.name):
            return Item(path.name, "old", "is of another version of slurmkit")
        return Item(path.name, "edited", "is not what slurmkit put there")
    fault = _fault(found, mode)
    return Item(path.name, "unsafe" if fault else "ok", fault)


def _fault(found: os.stat_result, mode: int) -> str:
    """What is wrong with the owner or the mode of a file; nothing where all is well."""
    hands = foreign_hands(found)
    if hands:
        return hands[0]
    if mode & ~found.st_mode:
        return f"has mode {stat.S_IMODE(found.st_mode):04o}, and {mode:04o} is needed"
    return ""


def difference(folder: Path, name: str) -> str:
    """How a file differs from ours, as a unified diff: thirty lines of it at most."""
    ours = shipped()[name][0].decode().splitlines()
    theirs = text_of(folder, name).encode(errors="replace").decode().splitlines()
    lines = list(difflib.unified_diff(theirs, ours, str(folder / name), f"slurmkit's {name}", "", "", 1, ""))
    more = [f"... and {len(lines) - _MOST_LINES} lines more"] if len(lines) > _MOST_LINES else []
    return "\n".join([*lines[:_MOST_LINES], *more])
