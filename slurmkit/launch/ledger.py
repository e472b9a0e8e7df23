"""The run folder: the files of one submission, and nothing that is not in them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmkit.compiler.plan import folder_name, point_lines
from slurmkit.errors import ConfigError, RunNotFoundError, SlurmkitError
from slurmkit.runtime.jobenv import point_folder
from slurmkit.runtime.records import append_lines, read_json_lines, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Attempt", "PointStatus", "Run", "find_run", "new_run_path"]


@dataclass(frozen=True)
class Attempt:
    """One submission of a run."""

    cluster: str
    job_id: str
    submitted_at: float
    """Seconds since the epoch. Slurm may issue a job id twice in a cluster's life: id and time name a job."""
    points: tuple[int, ...] | None
    """The points that the job array holds, by array index; ``None`` for a single run."""
    differences: tuple[Mapping[str, str], ...] = ()
    """What Slurm took otherwise than it was asked: option, asked, got."""

    @property
    def tasks(self) -> tuple[int, ...]:
        """The points of this submission; a single run is point 0."""
        return (0,) if self.points is None else self.points


@dataclass(frozen=True)
class PointStatus:
    """One point of a run; a single run is point 0."""

    point: int
    job: str
    """The id that names exactly this job or array task, such as ``12_3``."""
    state: str
    reason: str
    nodes: str
    restarts: int
    source: str
    """Who says so: ``squeue``, ``sacct``, ``slurmkit cancel`` or the run's own ``exits`` records."""

    def as_json(self) -> dict[str, Any]:
        """The status as plain values."""
        return asdict(self)


class Run:
    """A run folder, opened. ``Run(path)`` works on any machine that sees the folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        if not (self.path / "run.json").is_file():
            raise RunNotFoundError(
                f"{self.path} is no run folder: it has no run.json", "list the runs with: ls runs/"
            )

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def manifest(self) -> dict[str, Any]:
        """``run.json``."""
        try:
            manifest: dict[str, Any] = json.loads((self.path / "run.json").read_text())
        except (OSError, ValueError) as error:
            raise SlurmkitError(
                f"{self.path / 'run.json'} cannot be read: {error}", "restore the file, or submit again"
            ) from error
        return manifest

    def point_dir(self, point: int) -> Path:
        """The folder of one point; a single run is point 0."""
        return point_folder(self.path, point)

    def points(self) -> list[dict[str, Any]]:
        """``points.jsonl``: index and overrides of each point; empty for a single run."""
        path = self.path / "points.jsonl"
        return read_json_lines(path) if path.exists() else []

    def attempts(self) -> list[Attempt]:
        """The submissions, oldest first."""
        return [self._attempt(path) for path in sorted((self.path / "attempts").glob("[0-9]*.json"))]

    @staticmethod
    def _attempt(path: Path) -> Attempt:
        try:
            record = json.loads(path.read_text())
            points = record["points"]
            return Attempt(
                cluster=record["cluster"],
                job_id=record["job_id"],
                submitted_at=record["submitted_at"],
                points=None if points is None else tuple(points),
                differences=tuple(record["differences"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SlurmkitError(
                f"{path} is no record of a submission: {error!r}", "restore the file, or remove it"
            ) from error

    def ended(self) -> dict[str, PointStatus]:
        """The final states that Slurm has told, by job or task id: ``ended.jsonl``, the last line counts."""
        known = {field.name for field in fields(PointStatus)}
        found = [
            PointStatus(**record)
            for record in read_json_lines(self.path / "ended.jsonl")
            if record.keys() == known
        ]
        return {status.job: status for status in found}

    def keep_ended(self, ended: Mapping[str, PointStatus]) -> None:
        """Append final states that are not kept yet; a folder of somebody else's stays as it is."""
        known = self.ended()
        lines = [
            json.dumps(status.as_json()) + "\n" for name, status in ended.items() if known.get(name) != status
        ]
        if lines:
            with contextlib.suppress(OSError):
                append_lines(self.path / "ended.jsonl", "".join(lines))

    def add_attempt(self, attempt: Attempt) -> Path:
        """Write the next ``attempts/NNNN.json``; two login nodes at once get two numbers."""
        folder = self.path / "attempts"
        folder.mkdir(exist_ok=True)
        text = json.dumps(asdict(attempt), indent=1) + "\n"
        staged = folder / f".{secrets.token_hex(8)}"
        write_atomic(staged, text)
        try:
            number = 1 + len(list(folder.glob("[0-9]*.json")))
            while True:
                path = folder / f"{number:04}.json"
                try:
                    os.link(staged, path)  # fails if it exists, and shows the file only when it is whole
                except FileExistsError:
                    number += 1
                else:
                    return path
        finally:
            staged.unlink()

    def exits(self) -> dict[int, dict[str, Any]]:
        """The newest exit record of each point, as the batch scripts wrote them."""
        newest: dict[int, dict[str, Any]] = {}
        for path in sorted((self.path / "exits").glob("*.jsonl")):
            for record in read_json_lines(path):
                known = newest.get(record["task"])
                if known is None or (record["time"], record["restart"]) >= (known["time"], known["restart"]):
                    newest[record["task"]] = record
        return newest


def new_run_path(runs_dir: Path, name: str) -> Path:
    """The path of a run folder that does not exist yet: ``<name>-<YYYYmmdd-HHMMSS>-<4 hex>``."""
    return (
        runs_dir.absolute() / f"{folder_name(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    )


def create_run(path: Path) -> None:
    """Make a run folder, readable for its owner alone.

    Raises:
        ConfigError: if the folder of all runs is missing or may not be written.
    """
    runs_dir = path.parent
    try:
        if not runs_dir.parent.is_dir():
            raise FileNotFoundError(f"{runs_dir.parent} does not exist")
        if not runs_dir.is_dir():
            runs_dir.mkdir(exist_ok=True)
            write_atomic(runs_dir / ".gitignore", "*\n")  # runs are no part of the project around them
        path.mkdir(mode=0o700)
        (path / "points" / "0" / "0").mkdir(parents=True)
        (path / "exits").mkdir()
    except OSError as error:
        raise ConfigError(
            f"runs_dir: no run folder can be made in {runs_dir}: {error.strerror or error}",
            "set runs_dir=FOLDER to one that exists, that you may write, and that every node sees",
        ) from error


def write_manifest(
    path: Path, manifest: Mapping[str, Any], script: str, points: Sequence[Sequence[str]] | None
) -> None:
    """Write ``job.sbatch``, ``points.jsonl`` and, last, ``run.json``, which makes the folder a run."""
    write_atomic(path / "job.sbatch", script)
    if points is not None:
        write_atomic(path / "points.jsonl", "".join(f"{line}\n" for line in point_lines(points)))
    write_atomic(path / "run.json", json.dumps(manifest, indent=1, default=str) + "\n")


def find_run(word: str, runs_dir: Path) -> Run:
    """The run that a person means.

    Args:
        word: a run folder, a run id, a Slurm job id, or ``last``.
        runs_dir: where run ids and job ids are looked for.

    Raises:
        RunNotFoundError: naming the runs that there are.
    """
    if (Path(word) / "run.json").is_file():
        return Run(word)
    runs = sorted(runs_dir.glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    if word == "last" and runs:
        return Run(runs[-1].parent)
    named = [path.parent for path in runs if path.parent.name == word]
    if named:
        return Run(named[0])
    if word.partition("_")[0].isdecimal():
        for path in reversed(runs):
            run = Run(path.parent)
            if any(attempt.job_id == word.partition("_")[0] for attempt in run.attempts()):
                return run
    names = ", ".join(path.parent.name for path in runs[-5:]) or "none"
    raise RunNotFoundError(
        f"no run {word!r} in {runs_dir.absolute()}; the newest there: {names}",
        "give a run folder, a run id, a Slurm job id or last; --runs-dir names another folder of runs",
    )
