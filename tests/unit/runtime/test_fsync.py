"""The order that makes a file durable: content first, then its name, then the folder of the name."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from slurmkit.runtime.records import append_lines, write_atomic


def test_content_then_name_then_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename ahead of the content's fsync could leave an empty file under a good name after a power cut."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        info = os.fstat(descriptor)
        done.append("folder" if stat.S_ISDIR(info.st_mode) else f"content of {info.st_size}")
        fsync(descriptor)

    def renamed(path: Path, target: Any) -> Path:
        done.append("name")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write_atomic(tmp_path / "x", b"123")
    assert done == ["content of 3", "name", "folder"]


def test_an_append_that_fails_names_its_file() -> None:
    """The kernel's ``write`` does not say which file was full; a person wants to know."""
    with pytest.raises(OSError, match="/dev/full") as caught:
        append_lines(Path("/dev/full"), "x\n")
    assert caught.value.filename == "/dev/full"
