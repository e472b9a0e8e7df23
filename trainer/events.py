"""What a run says while it runs: ``events.jsonl`` (few, what happened) and ``metrics.jsonl`` (a line a step).

Every line names the life that wrote it. After a crash the steps past the last checkpoint are done again,
so a step can have lines of several lives: readers take the newest life.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from slurmkit.runtime.records import append_json, append_lines, fsync_dir, read_json_lines
from trainer.say import say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slurmkit.runtime.jobenv import JobEnv

__all__ = [
    "EVENTS",
    "METRICS",
    "RESULT",
    "SAMPLES",
    "EventLog",
    "MetricLog",
    "chain",
    "log_samples",
    "loss_curve",
    "metrics",
]

EVENTS = "events.jsonl"
METRICS = "metrics.jsonl"
RESULT = "result.json"
SAMPLES = "samples-{rank}.jsonl"
_FLUSH_SECONDS = 0.5


def chain(digest: str, step: int, order: int) -> str:
    """The running digest of the sample order, one step further.

    Args:
        digest: up to the step before; empty at the start.
        step: the step.
        order: its checksum over (place, sample id), agreed by all ranks.
    """
    return hashlib.sha256(f"{digest}/{step}/{order}".encode()).hexdigest()[:32]


class EventLog:
    """Appends events. A disk that is full must not turn a report of trouble into another trouble.

    Args:
        folder: the point's folder.
        life: what names this life; part of every line.
        active: false on the ranks that only look on.
    """

    def __init__(self, folder: Path, life: Mapping[str, Any], *, active: bool = True) -> None:
        self.path = folder / EVENTS
        self.life = dict(life)
        self.active = active

    def emit(self, event: str, **facts: Any) -> None:
        """Append one event.

        Args:
            event: start, resume, skip, signal, checkpoint, requeue, stop, finish or error.
            facts: what there is to say about it.
        """
        if not self.active:
            return
        try:
            append_json(self.path, {"event": event, "time": time.time(), **self.life, **facts})
        except OSError as error:
            say(f"note: {self.path}: {error}", sys.stderr)


class MetricLog:
    """Appends a line a step, many lines in one write. The loss curve has no hole once it is flushed.

    Args:
        folder: the point's folder.
        life: what names this life; part of every line.
        active: false on the ranks that only look on.
    """

    def __init__(self, folder: Path, life: Mapping[str, Any], *, active: bool = True) -> None:
        self.path = folder / METRICS
        self.life = dict(life)
        self.active = active
        self._lines: list[str] = []
        self._flushed = time.monotonic()

    def add(self, **facts: Any) -> None:
        """Note one step.

        Args:
            facts: step, loss and the like.
        """
        if not self.active:
            return
        self._lines.append(json.dumps({**facts, **self.life}, separators=(",", ":")) + "\n")
        now = time.monotonic()
        if now - self._flushed > _FLUSH_SECONDS:
            self._flushed = now
            with contextlib.suppress(OSError):  # kept, and tried again
                self.flush()

    def flush(self) -> None:
        """Write what is noted.

        Raises:
            OSError: as the system gave it; nothing is lost, it is tried again at the next call.
        """
        if self._lines:
            append_lines(self.path, "".join(self._lines))
            self._lines.clear()

    def sync(self) -> None:
        """Write what is noted, and make it outlast a power cut: a committed step is never done again.

        Raises:
            OSError: as the system gave it; nothing is lost, it is tried again at the next call.
        """
        self.flush()
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            fsync_dir(self.path.parent)


def metrics(point_dir: Path) -> list[dict[str, Any]]:
    """One line a step, of the newest life that did it.

    Args:
        point_dir: the point's folder.
    """
    lives: list[tuple[Any, ...]] = []
    steps: dict[int, dict[str, Any]] = {}
    for line in read_json_lines(point_dir / METRICS):
        life = (line.get("restart"), line.get("life"))
        if life not in lives:
            lives.append(life)
            # A new life starts over from its first step: what older ones did past that is undone.
            steps = {step: value for step, value in steps.items() if step < line["step"]}
        if life == lives[-1]:  # a superseded life that still writes is not listened to
            steps[line["step"]] = line
    return [steps[step] for step in sorted(steps)]


def loss_curve(point_dir: Path) -> list[tuple[int, float]]:
    """(step, loss) of every step that counts; the loss is exact.

    Args:
        point_dir: the point's folder.
    """
    return [(line["step"], line["loss"]) for line in metrics(point_dir)]


def log_samples(env: JobEnv, life: Mapping[str, Any], step: int, fed: Mapping[int, list[int]]) -> None:
    """Append the samples that a rank was fed in a step, to a file of its own.

    Args:
        env: this rank.
        life: what names this life; part of every line.
        step: the optimizer step.
        fed: the samples of each forward pass, by the place of the first one in the sequence of the run.

    Raises:
        OSError: as the system gave it, with the path.
    """
    path = env.point_dir / SAMPLES.format(rank=env.rank)
    lines = [{"step": step, "place": place, "ids": ids, **life} for place, ids in fed.items()]
    append_lines(path, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
