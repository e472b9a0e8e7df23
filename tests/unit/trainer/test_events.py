"""Events and metrics: a line a step, and of several lives the newest counts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.runtime.records import read_json_lines
from trainer.events import EventLog, MetricLog, chain, loss_curve

if TYPE_CHECKING:
    import pytest


def life(folder: Path, name: str, steps: range, value: float) -> MetricLog:
    log = MetricLog(folder, {"restart": 0, "life": name})
    for step in steps:
        log.add(step=step, loss=value)
    log.flush()
    return log


def test_the_newest_life_of_a_step_counts(tmp_path: Path) -> None:
    """After a crash steps are done again: each step appears once, as the newest life did it."""
    life(tmp_path, "a", range(1, 8), 0.1)
    life(tmp_path, "b", range(5, 7), 0.2)
    assert loss_curve(tmp_path) == [(1, 0.1), (2, 0.1), (3, 0.1), (4, 0.1), (5, 0.2), (6, 0.2)]


def test_a_superseded_life_is_not_listened_to(tmp_path: Path) -> None:
    """A life that goes on writing after another took over changes nothing."""
    old = life(tmp_path, "a", range(1, 4), 0.1)
    life(tmp_path, "b", range(3, 5), 0.2)
    old.add(step=4, loss=9.0)
    old.flush()
    assert loss_curve(tmp_path) == [(1, 0.1), (2, 0.1), (3, 0.2), (4, 0.2)]


def test_a_flush_that_fails_loses_nothing(tmp_path: Path) -> None:
    """Lines that could not be written are written at the next flush: the curve has no hole."""
    log = MetricLog(tmp_path / "later", {"restart": 0, "life": "a"})
    log.add(step=1, loss=0.5)
    try:
        log.flush()
    except OSError:
        (tmp_path / "later").mkdir()
    log.flush()
    log.flush()
    assert loss_curve(tmp_path / "later") == [(1, 0.5)]


def test_a_sync_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is noted, and the name of the file: a step that is committed is never done again."""
    done: list[tuple[str, int]] = []

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        done.append((path.name, path.read_text().count("\n") if path.is_file() else 0))

    monkeypatch.setattr(os, "fsync", synced)
    log = MetricLog(tmp_path, {"restart": 0, "life": "a"})
    log.sync()
    assert done == [], "there is nothing yet"
    for step in (1, 2):
        log.add(step=step, loss=0.1)
    log.sync()
    assert done == [("metrics.jsonl", 2), (tmp_path.name, 0)]


def test_an_event_that_cannot_be_written_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk is reported as what it is, by whoever needs the disk; telling of it must not fail first."""
    EventLog(tmp_path / "none", {}).emit("error", message="x")
    assert "note: " in capsys.readouterr().err


def test_only_the_active_rank_writes(tmp_path: Path) -> None:
    """The other ranks have the same objects, and leave no file."""
    EventLog(tmp_path, {}, active=False).emit("start")
    quiet = MetricLog(tmp_path, {}, active=False)
    quiet.add(step=1, loss=0.1)
    quiet.flush()
    assert list(tmp_path.iterdir()) == []
    EventLog(tmp_path, {"job": "12"}).emit("start", ranks=4)
    (event,) = read_json_lines(tmp_path / "events.jsonl")
    assert (event["event"], event["job"], event["ranks"]) == ("start", "12", 4)


def test_the_digest_depends_on_every_step() -> None:
    """Two runs with one other sample anywhere have another digest at the end."""
    assert chain(chain("", 1, 5), 2, 6) != chain(chain("", 1, 6), 2, 5)
    assert chain(chain("", 1, 5), 2, 6) == chain(chain("", 1, 5), 2, 6)
