"""Run folders, as ``slurmkit submit`` makes them and as a script that was submitted by hand does."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from slurmkit.launch.ledger import Attempt, Run, create_run, new_run_path, write_manifest
from slurmkit.runtime.records import append_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def _make(runs: Path, name: str = "exp", points: Sequence[Sequence[str]] | None = None) -> Run:
    path = new_run_path(runs, name)
    create_run(path)
    write_manifest(path, {"version": 1, "name": name}, "#!/bin/bash\n", points)
    return Run(path)


def _by_hand(runs: Path, name: str = "exp-12", points: Sequence[int] = ()) -> Path:
    for part in ("points/0/0", "lives"):
        (runs / name / part).mkdir(parents=True)
    for point in points:
        place = runs / name / "points" / str(point // 1000) / str(point)
        place.mkdir(parents=True, exist_ok=True)
        (place / "log").touch()
        life = {"cluster": "lab", "job": name.rpartition("-")[2], "task": point, "restart": 0, "time": 1}
        append_lines(runs / name / "lives" / "n1.jsonl", json.dumps(life) + "\n")
    os.utime(runs / name / "points", (2, 2))
    return runs / name


@pytest.fixture
def make() -> Callable[..., Run]:
    """Makes a run: takes the folder of runs, its name, and the overrides of each point of a sweep."""
    return _make


@pytest.fixture
def by_hand() -> Callable[..., Path]:
    """Makes the folder of a run by hand: takes the folder of runs, its name, and the tasks that have a log."""
    return _by_hand


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A sweep of three points, submitted as job 12."""
    path = tmp_path / "runs" / "exp"
    (tmp_path / "runs").mkdir()
    create_run(path)
    write_manifest(path, {"version": 1}, "", [["a=1"], ["a=2"], ["a=3"]])
    found = Run(path)
    found.add_attempt(Attempt("lab", "12", 0.0, (0, 1, 2)))
    return found
