"""The copy of the project that a job runs from."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import ConfigError
from slurmkit.launch.snapshot import copy_project, find_project

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *argv: str) -> None:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *identity, "-C", folder, *argv], check=True, capture_output=True)


def names(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink()
    }


def test_git_says_what_belongs_to_a_project(tmp_path: Path) -> None:
    """Tracked and new files are copied with their modes; ignored ones, runs and git's own are not."""
    project = tmp_path / "project"
    (project / "runs" / "old").mkdir(parents=True)
    git(tmp_path, "init", "-q", "project")
    (project / ".gitignore").write_text("data.bin\n")
    for name in ("app.py", "new file.txt", "data.bin", "runs/old/log"):
        (project / name).write_text(name)
    (project / "tool.sh").write_text("#!/bin/sh\n")
    (project / "tool.sh").chmod(0o755)
    git(project, "add", "app.py")
    git(project, "commit", "-qm", "first")
    (project / "app.py").write_text("changed")
    found = find_project(project)
    assert found.commit
    assert "+changed" in found.diff
    copy_project(found, tmp_path / "code", project / "runs", 100)
    assert names(tmp_path / "code") == {".gitignore", "app.py", "new file.txt", "tool.sh"}
    assert (tmp_path / "code" / "app.py").read_text() == "changed"
    assert (tmp_path / "code" / "tool.sh").stat().st_mode & 0o111


def test_without_git_code_is_what_looks_like_it(tmp_path: Path) -> None:
    """In a plain folder Python and config files are copied; data, hidden folders and environments are not."""
    project = tmp_path / "project"
    for name in ("app.py", "conf/main.yaml", "weights.bin", ".cache/x.py", "env3/pyvenv.cfg", "env3/lib.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("")
    copy_project(find_project(project), tmp_path / "code", project / "runs", 100)
    assert names(tmp_path / "code") == {"app.py", "conf/main.yaml"}


def test_a_folder_of_data_is_refused(tmp_path: Path) -> None:
    """A project larger than the limit is not copied for minutes: the error says how to leave it out."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "big.py").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="1 MiB") as caught:
        copy_project(find_project(project), tmp_path / "code", project / "runs", 1)
    assert "snapshot.enabled=false" in caught.value.hint
