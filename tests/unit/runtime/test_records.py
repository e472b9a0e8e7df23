"""Records: whole files or the old ones, whole lines or none."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurmkit.runtime.records import (
    append_json,
    append_lines,
    make_dirs,
    read_json,
    read_json_lines,
    write_atomic,
)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """write_atomic replaces text and bytes, with the mode asked for, and leaves nothing beside it."""
    path = tmp_path / "result.json"
    write_atomic(path, "old")
    write_atomic(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o644)])
def test_the_umask_counts_for_every_file(tmp_path: Path, umask: int, mode: int) -> None:
    """Who hides new files from others hides whole files and lines alike."""
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "whole", "x")
        append_lines(tmp_path / "lines", "x\n")
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "whole": mode,
        "lines": mode,
    }


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    """A write that fails half way (here: at a size limit) keeps the old file and leaves no temp file."""
    path = tmp_path / "result.json"
    write_atomic(path, "old")
    code = f"""
import resource, pathlib
from slurmkit.runtime.records import write_atomic
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    write_atomic(pathlib.Path({str(path)!r}), b"x" * 20_000)
except OSError as error:
    print(error.strerror)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large\n"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_lines_of_many_writers_do_not_mix(tmp_path: Path) -> None:
    """Four processes append at once: every line is whole, none is lost."""
    path = tmp_path / "events.jsonl"
    code = f"""
import pathlib, sys
from slurmkit.runtime.records import append_json
for number in range(200):
    append_json(pathlib.Path({str(path)!r}), {{"who": sys.argv[1], "number": number, "fill": "x" * 300}})
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(who)]) for who in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    records = read_json_lines(path)
    assert sorted((record["who"], record["number"]) for record in records) == sorted(
        (str(who), number) for who in range(4) for number in range(200)
    )


def test_a_torn_last_line_is_left_out_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    """A writer killed in the middle of a line costs that line, and never the one that comes after."""
    path = tmp_path / "events.jsonl"
    append_json(path, {"number": 1})
    with path.open("a") as file:
        file.write('{"number": 2, "te')
    assert read_json_lines(path) == [{"number": 1}]
    append_json(path, {"number": 3})
    assert read_json_lines(path) == [{"number": 1}, {"number": 3}]


def test_what_is_no_record_is_passed_over(tmp_path: Path) -> None:
    """A folder that people share can hold anything: text, torn lines, numbers and lists without end."""
    path = tmp_path / "x.jsonl"
    junk = ["", "x", "1", "null", "[]", DEEP, '{"a": ' + "9" * 5000 + "}", "\x00"]
    path.write_text("\n".join([*junk, '{"a": 1}', ""]))
    assert read_json_lines(path) == [{"a": 1}]


def test_floats_come_back_exactly(tmp_path: Path) -> None:
    """A loss that is written is the loss that is read."""
    path = tmp_path / "metrics.jsonl"
    values = [0.1 + 0.2, 1 / 3, 5e-324, 1.7976931348623157e308]
    for value in values:
        append_json(path, {"loss": value})
    assert [record["loss"] for record in read_json_lines(path)] == values


#: More than Python's parser follows.
DEEP = "[" * 200000


@pytest.mark.parametrize("content", [None, "", "[1]", '{"a": ', DEEP])
def test_no_mapping_is_none(tmp_path: Path, content: str | None) -> None:
    """A file that is missing, torn or no mapping is None, and never an exception in a reader."""
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    assert read_json(path) is None
    path.write_text(json.dumps({"a": 1}))
    assert read_json(path) == {"a": 1}


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


def test_every_name_of_a_path_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut none of the folders is missing, whoever made them; a link leads to where they are."""
    done: list[Path] = []

    def synced(descriptor: int) -> None:
        done.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", synced)
    real = tmp_path / "far" / "real"
    real.mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    for _ in range(2):
        done.clear()
        make_dirs(tmp_path / "link" / "a" / "b")
        assert done[:5] == [real / "a" / "b", real / "a", real, real.parent, tmp_path]
        assert done[-1].is_mount()


def test_a_folder_above_that_may_not_be_read_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``/home`` may be closed to those who live there."""
    opened = os.open

    def refused(path: Path, flags: int, mode: int = 0o777) -> int:
        if path == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", refused)
    make_dirs(tmp_path / "mine")
    assert (tmp_path / "mine").is_dir()


def test_an_append_that_fails_names_its_file() -> None:
    """The kernel's ``write`` does not say which file was full; a person wants to know."""
    with pytest.raises(OSError, match="/dev/full") as caught:
        append_lines(Path("/dev/full"), "x\n")
    assert caught.value.filename == "/dev/full"
