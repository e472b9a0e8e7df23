"""The copy of the project that a job runs from."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def _files(project: Project, skip: Path) -> Iterator[Path]:
    """The project's files: what git tracks or would track, else whatever looks like code."""
    listed = (
        _git(project.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        if project.in_git
        else None
    )
    if listed is not None:
        found: Iterator[Path] = (project.root / name for name in listed.split("\0") if name)
    else:
        found = _walk(project.root)
    for path in found:
        if skip not in path.parents and (path.is_symlink() or path.is_file()):
            yield path


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith(".")
            and not (Path(folder) / name / "pyvenv.cfg").exists()
        ]
        yield from (
            Path(folder) / name for name in files if Path(name).suffix in _CODE and not name.startswith(".")
        )


def copy_project(project: Project, target: Path, runs_dir: Path, max_mb: int) -> int:
    """Copy the project's files.

    Args:
        project: from ``find_project``.
        target: the folder to make, ``code/`` of a run.
        runs_dir: the folder of all runs, which is never copied.
        max_mb: the most to copy, in MiB.

    Returns:
        How many files were copied.

    Raises:
        ConfigError: if the project is larger than that.
    """
    target.mkdir()
    room, count = max_mb * 1024 * 1024, 0
    for path in _files(project, runs_dir.absolute()):
        room -= path.lstat().st_size
        if room < 0:
            raise ConfigError(
                f"snapshot: the project in {project.root} has more than {max_mb} MiB of files",
                "let .gitignore name the data, set snapshot.max_mb=1000, or run from the folder as it is with snapshot.enabled=false",
            )
        copy = target / path.relative_to(project.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy, follow_symlinks=False)
        count += 1
    return count
