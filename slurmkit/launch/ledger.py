"""The run folder: the files of one submission, and nothing that is not in them."""

from __future__ import annotations

import contextlib
import json
import os
import re
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

__all__ = ["Attempt", "PointStatus", "Run", "find_point", "find_run", "is_run", "new_run_path"]

#: What a script that was submitted by hand calls its folder: name and job id. A run of ours without its
#: manifest, which was killed while it was made, can end in digits too.
_BY_HAND = re.compile(r"(?!.*-\d{8}-\d{6}-[0-9a-f]{4}$).+-(\d+)")


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
        if not is_run(self.path):
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
                f"{self.path / 'run.json'} cannot be read: {getattr(error, 'strerror', None) or error}",
                "see that you may read it; restore it, or submit again",
            ) from error
        return manifest

    @property
    def by_hand(self) -> str | None:
        """The job id of a run whose script was given to sbatch by hand: its folder is called after it."""
        if (self.path / "run.json").is_file():
            return None
        match = _BY_HAND.fullmatch(self.id)
        return match[1] if match else None

    def point_dir(self, point: int) -> Path:
        """The folder of one point; a single run is point 0."""
        return point_folder(self.path, point)

    def log(self, point: int) -> Path:
        """What one point has printed, all lives of it.

        A single run that was submitted by hand has it in the submission folder, above the folder of runs or here.
        """
        own = self.point_dir(point) / "log"
        if self.by_hand and not own.exists():
            places = [folder / f"{self.id}.log" for folder in (*self.path.parents, Path.cwd())]
            return next((place for place in places if place.is_file()), own)
        return own

    def started(self) -> list[int]:
        """The points that have a folder: nothing else says which points a run by hand has."""
        return sorted(int(path.name) for path in (self.path / "points").glob("*/*") if path.name.isdecimal())

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
                f"{path} is no record of a submission: {getattr(error, 'strerror', None) or repr(error)}",
                "see that you may read it; restore it, or remove it",
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
        known = {name: (status.state, status.restarts) for name, status in self.ended().items()}
        lines = [
            json.dumps(status.as_json()) + "\n"
            for name, status in ended.items()
            if known.get(name) != (status.state, status.restarts)
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


def is_run(folder: Path) -> bool:
    """Whether a folder is one of a run: it has a manifest, or a script submitted by hand made it."""
    with contextlib.suppress(OSError):  # people who share a folder of runs may not look into all of them
        by_hand = _BY_HAND.fullmatch(folder.absolute().name) is not None
        return (folder / "run.json").is_file() or (
            by_hand and all((folder / part).is_dir() for part in ("points", "exits"))
        )
    return False


def find_run(word: str, runs_dir: Path) -> Run:
    """The run that a person means.

    Args:
        word: a run folder, a run id, a Slurm job id, or ``last``.
        runs_dir: where run ids and job ids are looked for.

    Raises:
        RunNotFoundError: naming the runs that there are.
    """
    return find_point(word, runs_dir)[0]


def find_point(word: str, runs_dir: Path) -> tuple[Run, int | None]:
    """The run that a person means, and the point of it where the word names one.

    Args:
        word: as in ``find_run``, or the id of an array task: ``12_3``.
        runs_dir: as in ``find_run``.

    Raises:
        RunNotFoundError: naming the runs that there are, or the tasks of the array.
    """
    if is_run(Path(word)):
        return Run(word), None
    runs = _runs(runs_dir)
    if word == "last" and runs:
        return runs[-1], None
    job, _, task = word.partition("_")
    for run in reversed(runs):
        if run.id == word:
            return run, None
        if job.isdecimal() and (not task or task.isdecimal()):
            if run.by_hand == job:
                return run, int(task) if task else None
            for attempt in reversed(run.attempts()):
                if attempt.job_id == job:
                    return run, _point_of(attempt, task, run)
    raise _unknown(word, runs_dir, runs)


def _runs(runs_dir: Path) -> list[Run]:
    """All runs there, oldest first."""

    def made_at(path: Path) -> float:
        with contextlib.suppress(OSError):
            return (path / "run.json").stat().st_mtime
        with contextlib.suppress(OSError):
            return (path / "points").stat().st_mtime  # made by its script, and never changed again
        return 0.0

    return [Run(path) for path in sorted(filter(is_run, runs_dir.glob("*")), key=made_at)]


def _point_of(attempt: Attempt, task: str, run: Run) -> int | None:
    if not task:
        return None
    tasks = () if attempt.points is None else attempt.points
    if int(task) >= len(tasks):
        has = f"has the tasks 0 to {len(tasks) - 1}" if tasks else "is no array"
        raise RunNotFoundError(
            f"no task {task} of job {attempt.job_id}, which {has}", f"see them with: slurmkit status {run.id}"
        )
    return tasks[int(task)]


def _unknown(word: str, runs_dir: Path, runs: Sequence[Run]) -> RunNotFoundError:
    names = ", ".join(run.id for run in runs[-5:]) or "none"
    said = f"no run {word!r} in {runs_dir.absolute()}; the newest there: {names}"
    if os.sep in word:
        said = f"{word} is no run folder: there is no run.json in it that you may read"
    elif not runs_dir.is_dir():
        said = f"no run {word!r}: there is no folder {runs_dir.absolute()}"
    return RunNotFoundError(
        said,
        "give a run folder, a run id, a Slurm job id or last; --runs-dir names another folder of runs"
        + (
            "; a job that was submitted by hand has its folder once it starts"
            if word.partition("_")[0].isdecimal()
            else ""
        ),
    )
