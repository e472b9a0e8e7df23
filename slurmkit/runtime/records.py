"""Files that survive a crash: whole files by temp, fsync and rename; lines by one appending write."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "append_json",
    "append_lines",
    "from_json",
    "fsync_dir",
    "make_dirs",
    "mapping_from_json",
    "read_json",
    "read_json_lines",
    "write_atomic",
]


def fsync_dir(path: Path) -> None:
    """Make the names in a folder durable (a rename is not until its folder is synced).

    Args:
        path: the folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_dirs(path: Path) -> None:
    """Make a folder and those above it, so that all of their names outlast a power cut.

    Also where another made them a moment ago: who did cannot be told.

    Args:
        path: the folder.

    Raises:
        OSError: as the system gave it.
    """
    path.mkdir(parents=True, exist_ok=True)
    for folder in (whole := path.resolve(), *whole.parents):
        with contextlib.suppress(PermissionError):  # where we may not look, nobody made a folder for us
            fsync_dir(folder)
        if folder.is_mount():
            break


def write_atomic(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    """Write a whole file so that a reader sees the old one or the new one, and never a part.

    A temp file in the same folder, fsync, rename, fsync of the folder. On failure nothing is left
    behind and an old file stays as it was.

    Args:
        path: the file; its folder must exist.
        data: the content; text is written as UTF-8.
        mode: the permission bits of the file, less those of the umask.

    Raises:
        OSError: as the system gave it, for example ENOSPC.
    """
    content = data.encode() if isinstance(data, str) else data
    temp = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temp.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temp.unlink()
        raise
    fsync_dir(path.parent)


def append_lines(path: Path, lines: str) -> None:
    """Append text with one write, so that lines of several writers do not mix.

    A torn last line (a writer that was killed, a full disk) is ended first: it must not swallow the next.

    Args:
        path: the file; it is created if missing, its folder must exist.
        lines: whole lines, each with its newline.

    Raises:
        OSError: also where only a part could be written.
    """
    data = lines.encode()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data
        try:
            written = os.write(descriptor, data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None  # write() does not name it
        if written != len(data):
            words = f"only {written} of {len(data)} bytes could be appended"
            raise OSError(errno.ENOSPC, words, str(path))
    finally:
        os.close(descriptor)


def append_json(path: Path, record: Mapping[str, Any]) -> None:
    """Append one JSON line with one write.

    Args:
        path: the file; it is created if missing, its folder must exist.
        record: what the line says.
    """
    append_lines(path, json.dumps(record, separators=(",", ":")) + "\n")


def from_json(data: str | bytes) -> Any:
    """The value of a JSON text that anybody may have written.

    Raises:
        ValueError: for all that is none; also for one nested so deep that Python gives up.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("JSON nested too deep") from error


def mapping_from_json(data: str | bytes) -> dict[str, Any]:
    """The mapping of a JSON text that anybody may have written.

    Raises:
        ValueError: for all that is none.
    """
    value = from_json(data)
    if not isinstance(value, dict):
        raise ValueError(f"no mapping, but {value!r:.40}")  # noqa: TRY004 - the data is wrong, no caller's type
    return value


def read_json(path: Path) -> dict[str, Any] | None:
    """The mapping in a JSON file.

    Args:
        path: the file.

    Returns:
        None where there is no such file, or no mapping of JSON in it.
    """
    try:
        return mapping_from_json(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a JSON-lines file, in order.

    Lines torn by a killed writer are left out, and so is a file that does not exist yet.

    Args:
        path: the file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    records = []
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            records.append(mapping_from_json(line))
    return records
