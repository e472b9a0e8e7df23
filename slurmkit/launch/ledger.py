"""The run folder: the files of one submission, and nothing that is not in them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ClusterShell.RangeSet import RangeSet

from slurmkit.compiler.plan import folder_name, point_lines
from slurmkit.errors import ConfigError, RunNotFoundError, SlurmkitError
from slurmkit.launch.lives import JOB, LIVES, Life, has_fields, read_lives
from slurmkit.runtime.jobenv import point_folder
from slurmkit.runtime.records import append_lines, mapping_from_json, read_json_lines, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Attempt", "PointStatus", "Run", "default_runs_dir", "is_run", "new_run_path"]

#: What a script that was submitted by hand calls its folder: name and job id. A run of ours without its
#: manifest, which was killed while it was made, can end in digits too.
_BY_HAND = re.compile(r"(?!.*-\d{8}-\d{6}-[0-9a-f]{4}$).+-([0-9]{1,10})")
#: The fields that a record has at least. Lines that have not are passed over, as torn ones are.
_ENDED = {"point": int, "job": str, "state": str, "reason": str, "nodes": str, "restarts": int, "source": str}


@dataclass(frozen=True)
class Attempt:
    """One submission of a run."""

    cluster: str
    job_id: str
    submitted_at: float
    """Seconds since the epoch, for people: what tells a job whose id was issued again from ours is its script."""
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
    """Who says so: ``squeue``, ``sacct``, ``slurmkit cancel`` or the run's own records of its ``lives``."""

    def as_json(self) -> dict[str, Any]:
        """The status as plain values."""
        return asdict(self)


class Run:
    """A run folder, opened. ``Run(path)`` works on any machine that sees the folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        if not is_run(self.path):
            raise RunNotFoundError(
                f"{self.path} is no run folder: it has no run.json",
                "list the runs with: ls runs/ (a submission that was killed while it made its folder leaves one to remove)",
            )

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def word(self) -> str:
        """What names this run on a command line in this folder: its id where runs are looked for, else its path."""
        return self.id if self.path.parent == default_runs_dir().absolute() else shlex.quote(str(self.path))

    @property
    def manifest(self) -> dict[str, Any]:
        """``run.json``."""
        try:
            return mapping_from_json((self.path / "run.json").read_text())
        except (OSError, ValueError) as error:
            raise SlurmkitError(
                f"{self.path / 'run.json'} cannot be read: {getattr(error, 'strerror', None) or error}",
                "see that you may read it; restore it, or submit again",
            ) from error

    def again(self, points: Iterable[int]) -> str:
        """The command that submits points of this run once more, with the script that it has; empty where it has none."""
        script = self.path / "job.sbatch"
        if not script.is_file():
            return ""
        words = ["sbatch", f"--chdir={self.manifest.get('cwd', '.')}"]
        if self.is_sweep:
            tasks = RangeSet(",".join(map(str, points)))
            words.append(f"--array={tasks}")
        return shlex.join([*words, str(script)])

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
        if self.by_hand and point == 0 and not own.exists():
            places = [folder / f"{self.id}.log" for folder in (*self.path.parents, Path.cwd())]
            return next((place for place in places if place.is_file()), own)
        return own

    def started(self) -> list[int]:
        """The points that have a folder: nothing else says which points a run by hand has."""
        return sorted(int(path.name) for path in (self.path / "points").glob("*/*") if path.name.isdecimal())

    @property
    def is_sweep(self) -> bool:
        """Whether its points are tasks of an array. One by hand shows it: a single run has its log elsewhere."""
        if self.by_hand:
            return any((self.point_dir(point) / "log").exists() for point in {0, *self.started()})
        return bool(self.points())

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
            return _attempt_in(mapping_from_json(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SlurmkitError(
                f"{path} is no record of a submission: {getattr(error, 'strerror', None) or repr(error)}",
                "see that you may read it; restore it, or remove it",
            ) from error

    def ended(self) -> dict[str, PointStatus]:
        """The final states that Slurm has told, by job or task id: ``ended.jsonl``, the last line counts."""
        lines = read_json_lines(self.path / "ended.jsonl")
        return {
            line["job"]: PointStatus(**{key: line[key] for key in _ENDED})
            for line in lines
            if has_fields(line, _ENDED)
        }

    def keep_ended(self, ended: Mapping[str, PointStatus]) -> None:
        """Append final states that are not kept yet; a folder of somebody else's stays as it is, root or not."""
        if self.path.stat().st_uid != os.geteuid():
            return
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

    def lives(self) -> list[Life]:
        """What the batch scripts wrote of every life of every point."""
        return read_lives(self.path)


def _attempt_in(record: Mapping[str, Any]) -> Attempt:
    """What ``add_attempt`` has written.

    Raises:
        KeyError, TypeError, ValueError: for anything else.
    """
    points = record["points"]
    job = JOB.fullmatch(record["job_id"])
    if job is None or job[2] or not all(type(point) is int for point in points or ()):
        raise ValueError(f"job_id {record['job_id']!r}, points {points!r:.40}")
    return Attempt(
        cluster=str(record["cluster"]),
        job_id=record["job_id"],
        submitted_at=record["submitted_at"],
        points=None if points is None else tuple(points),
        differences=tuple(record["differences"]),
    )


def default_runs_dir() -> Path:
    """Where runs are looked for, and made, when nobody says where: ``SLURMKIT_RUNS_DIR``, else ``runs``."""
    return Path(os.environ.get("SLURMKIT_RUNS_DIR") or "runs")


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
        (path / LIVES).mkdir()
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
            by_hand and all((folder / part).is_dir() for part in ("points", LIVES))
        )
    return False
