"""``slurmkit-hooks.conf``: read exactly as ``record.bash`` reads it. Pure: text in, values out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEFAULT_FOLDER", "DEFAULT_STATE_DIR", "Settings", "read_settings", "with_state_dir"]

#: Where the hooks are, and where they write, unless somebody says otherwise.
DEFAULT_FOLDER = "/etc/slurm/slurmkit"
DEFAULT_STATE_DIR = "/var/lib/slurmkit"

_STATE_DIR = "STATE_DIR"
_MAX_BYTES = re.compile(r"[1-9][0-9]{3,11}")


class Settings(NamedTuple):
    """What the hooks take from a file.

    Attributes:
        state_dir: where they write, one folder a node.
        unread: each line that they pass over, with why.
    """

    state_dir: str
    unread: tuple[str, ...]


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    """Each line, its key and its value; no blank line and no comment."""
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if line.strip() and not line.lstrip().startswith("#"):
            yield line, key, value


def _fault(key: str, value: str) -> str:
    """Why the hooks pass over a line, or the empty text."""
    if key == _STATE_DIR:
        return "" if value.startswith("/") else "STATE_DIR takes an absolute path"
    if key == "MAX_BYTES":
        return (
            "" if _MAX_BYTES.fullmatch(value) else "MAX_BYTES takes a whole number from 1000 to 999999999999"
        )
    return "accepted are STATE_DIR=... and MAX_BYTES=..., without blanks"


def read_settings(text: str) -> Settings:
    """Read the settings.

    Args:
        text: of ``slurmkit-hooks.conf``; empty where there is none.

    Returns:
        The values that count: the last one that is sound, as in the hooks.
    """
    state_dir, unread = DEFAULT_STATE_DIR, []
    for line, key, value in _pairs(text):
        fault = _fault(key, value)
        if fault:
            unread.append(f"{line!r} is not read: {fault}")
        elif key == _STATE_DIR:
            state_dir = value.removesuffix("/") or "/"
    return Settings(state_dir, tuple(unread))


def with_state_dir(text: str, state_dir: str | None) -> str:
    """The settings with another ``STATE_DIR``, and every other line as the admin wrote it.

    Args:
        text: of the file as it is.
        state_dir: the new value; None keeps what is there.

    Returns:
        The text that the file needs; the same where it says so already.
    """
    if state_dir is None or read_settings(text).state_dir == state_dir:
        return text
    kept = [line for line in text.split("\n") if line.partition("=")[0] != _STATE_DIR]
    body = "\n".join(kept).rstrip("\n")
    return "".join(f"{line}\n" for line in (body, f"{_STATE_DIR}={state_dir}") if line)
