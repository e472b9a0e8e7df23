"""The overrides of one point, as the batch script reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "points.jsonl"
    overrides = [["a=1"], [], ["s=`id`\nx", "b='c d'"]]
    path.write_text(
        "".join(
            json.dumps({"index": index, "overrides": words}) + "\n" for index, words in enumerate(overrides)
        )
    )
    return path


def read(path: Path, index: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmkit.runtime.points", str(path), index]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("index", "out"), [("0", "0\0a=1\0"), ("1", "1\0"), ("2", "2\0s=`id`\nx\0b='c d'\0")]
)
def test_each_point_has_its_own_words(points: Path, index: str, out: str) -> None:
    """The index comes first, then each word as it was written; a point without overrides is a point."""
    assert read(points, index).stdout == out


@pytest.mark.parametrize("index", ["3", "-1", "x"])
def test_a_point_that_is_not_there_is_said(points: Path, index: str) -> None:
    """A missing point prints nothing on stdout, a line on stderr, and fails."""
    done = read(points, index)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "line",
    ["1", "[]", "{", '{"index": 0}', '{"index": 0, "overrides": 3}', '{"index": 0, "overrides": null}'],
)
def test_a_line_that_is_no_point_is_one_line_of_an_error(tmp_path: Path, line: str) -> None:
    """Whatever somebody wrote into the file: the task fails with its reason, and no traceback."""
    (tmp_path / "points.jsonl").write_text(f"{line}\n")
    done = read(tmp_path / "points.jsonl", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("slurmkit: ")
    assert done.stderr.count("\n") == 1
