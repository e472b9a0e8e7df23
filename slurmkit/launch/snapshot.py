"""The copy of the project that a job runs from."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.errors import ConfigError
from slurmkit.launch.ledger import is_run
from slurmkit.launch.lives import LIVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Project", "copy_project", "find_project"]

#: Without git to say what belongs to a project, these are taken for code.
_CODE = frozenset({".py", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini", ".sh"})
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "env", "multirun", "outputs"})
_GIT_TIMEOUT = 30.0


@dataclass(frozen=True)
class Project:
    """What surrounds the submission folder: a git checkout, or the folder itself."""

    root: Path
    commit: str | None = None
    diff: str = ""
    """What differs from the commit, as ``git diff HEAD`` says it."""

    @property
    def in_git(self) -> bool:
        """Whether git says which files belong to the project."""
        return self.commit is not None


def _git(root: Path, *argv: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", root, *argv], capture_output=True, timeout=_GIT_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def find_project(cwd: Path) -> Project:
    """The project around a folder."""
    top = _git(cwd, "rev-parse", "--show-toplevel")
    if not top or not top.strip():
        return Project(cwd)
    root = Path(top.strip())
    commit = _git(root, "rev-parse", "HEAD")
    return Project(root, (commit or "").strip(), (_git(root, "diff", "HEAD") or "") if commit else "")


def _files(project: Project, runs_dir: Path) -> Iterator[Path]:
    """The project's files: what git tracks (submodules too) or would track, else whatever looks like code."""
    tracked = (
        _git(project.root, "ls-files", "-z", "--cached", "--recurse-submodules") if project.in_git else None
    )
    new = _git(project.root, "ls-files", "-z", "--others", "--exclude-standard") if project.in_git else None
    runs: dict[Path, bool] = {}

    def left_out(folder: Path) -> bool:
        """Whether a folder lies in a run: a snapshot of snapshots would double with every submission."""
        if folder not in runs:
            inside = folder != project.root and (
                left_out(folder.parent) or (folder.exists() and folder.samefile(runs_dir))
            )
            runs[folder] = inside or _is_of_a_run(folder)
        return runs[folder]

    if tracked is None or new is None:
        found: Iterator[Path] = _walk(project.root, left_out)
    else:
        found = (project.root / name for name in dict.fromkeys((tracked + new).split("\0")) if name)
    for path in found:
        if not left_out(path.parent) and (path.is_symlink() or path.is_file()):
            yield path


def _is_of_a_run(folder: Path) -> bool:
    """Whether it is a run's, also while that is made, or where a submission was killed before it had a manifest."""
    return is_run(folder) or all((folder / part).is_dir() for part in ("points", LIVES))


def _walk(root: Path, left_out: Callable[[Path], bool]) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if not (_is_no_code(here / name) or left_out(here / name))]
        yield from (here / name for name in files if Path(name).suffix in _CODE and not name.startswith("."))


def _is_no_code(folder: Path) -> bool:
    own = folder.name.startswith(".") or folder.name in _SKIPPED
    return own or (folder / "pyvenv.cfg").exists()


def copy_project(project: Project, target: Path, max_mb: int) -> int:
    """Copy the project's files.

    A link that leaves the project is made absolute, so that it still leads where it led.

    Args:
        project: from ``find_project``.
        target: the folder to make, ``code/`` of a run. Nothing in the folder of runs around it is copied.
        max_mb: the most to copy, in MiB.

    Returns:
        How many files were copied.

    Raises:
        ConfigError: if the project is larger than that.
    """
    target.mkdir()
    room, count = max_mb * 1024 * 1024, 0
    # All of them are known before the first is copied: what others submit meanwhile never counts.
    for path in list(_files(project, target.parent.parent)):
        if not os.path.lexists(path):  # an editor's file, gone since
            continue
        room -= path.lstat().st_size
        if room < 0:
            raise ConfigError(
                f"snapshot: the project in {project.root} has more than {max_mb} MiB of files",
                "let .gitignore name the data, set snapshot.max_mb=1000, or run from the folder as it is with snapshot.enabled=false",
            )
        copy = target / path.relative_to(project.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() and not path.resolve().is_relative_to(project.root.resolve()):
            copy.symlink_to(path.resolve())
        else:
            shutil.copy2(path, copy, follow_symlinks=False)
        count += 1
    return count
