"""The copy of the project that a job runs from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from slurmkit.errors import ConfigError
from slurmkit.launch.snapshot import copy_project, find_project


def git(folder: Path, *argv: str) -> None:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *identity, "-C", folder, *argv], check=True, capture_output=True)


def names(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink()
    }


def test_git_says_what_belongs_to_a_project(tmp_path: Path) -> None:
    """Tracked and new files are copied with their modes; ignored and deleted ones, runs and git's own are not."""
    project = tmp_path / "project"
    (project / "runs" / "old").mkdir(parents=True)
    git(tmp_path, "init", "-q", "project")
    (project / ".gitignore").write_text("data.bin\n")
    for name in ("app.py", "new file.txt", "data.bin", "runs/old/log", "runs/old/run.json"):
        (project / name).write_text(name)
    (project / "tool.sh").write_text("#!/bin/sh\n")
    (project / "tool.sh").chmod(0o755)
    (project / "gone.py").write_text("")
    git(project, "add", "app.py", "gone.py")
    git(project, "commit", "-qm", "first")
    (project / "app.py").write_text("changed")
    (project / "gone.py").unlink()
    found = find_project(project)
    assert found.commit
    assert "+changed" in found.diff
    copy_project(found, tmp_path / "code", 100)
    assert names(tmp_path / "code") == {".gitignore", "app.py", "new file.txt", "tool.sh"}
    assert (tmp_path / "code" / "app.py").read_text() == "changed"
    assert (tmp_path / "code" / "tool.sh").stat().st_mode & 0o111


def test_without_git_code_is_what_looks_like_it(tmp_path: Path) -> None:
    """In a plain folder Python and config files are copied; data, hidden folders and environments are not."""
    project = tmp_path / "project"
    for name in ("app.py", "conf/main.yaml", "weights.bin", ".cache/x.py", "env3/pyvenv.cfg", "env3/lib.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("")
    copy_project(find_project(project), tmp_path / "code", 100)
    assert names(tmp_path / "code") == {"app.py", "conf/main.yaml"}


def test_a_folder_of_data_is_refused(tmp_path: Path) -> None:
    """A project larger than the limit is not copied for minutes: the error says how to leave it out."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "big.py").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="1 MiB") as caught:
        copy_project(find_project(project), tmp_path / "code", 1)
    assert "snapshot.enabled=false" in caught.value.hint


def test_links_lead_where_they_led(tmp_path: Path) -> None:
    """A link inside the project stays one; a link that leaves it leads to the same place from the copy."""
    (tmp_path / "shared.py").write_text("shared")
    project = tmp_path / "project"
    project.mkdir()
    (project / "real.py").write_text("real")
    (project / "inside.py").symlink_to("real.py")
    (project / "outside.py").symlink_to("../shared.py")
    (tmp_path / "deep").mkdir()
    copy_project(find_project(project), tmp_path / "deep" / "code", 100)
    copied = tmp_path / "deep" / "code"
    assert (copied / "inside.py").readlink() == Path("real.py")
    assert (copied / "outside.py").read_text() == "shared"


def test_submodules_belong_to_the_project(tmp_path: Path) -> None:
    """The files of a submodule are copied as the project's own are."""
    for name in ("library", "project"):
        git(tmp_path, "init", "-q", name)
    (tmp_path / "library" / "part.py").write_text("part")
    git(tmp_path / "library", "add", ".")
    git(tmp_path / "library", "commit", "-qm", "first")
    git(
        tmp_path / "project",
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(tmp_path / "library"),
        "lib",
    )
    git(tmp_path / "project", "commit", "-qm", "first")
    copy_project(find_project(tmp_path / "project"), tmp_path / "code", 100)
    assert "lib/part.py" in names(tmp_path / "code")


@pytest.mark.parametrize("in_git", [True, False])
def test_runs_are_never_copied(tmp_path: Path, in_git: bool) -> None:
    """Whatever the folder of runs is called, a snapshot holds no older snapshot."""
    project = tmp_path / "project"
    (project / "out" / "old" / "code").mkdir(parents=True)
    (project / "out" / "old" / "run.json").write_text("{}")
    (project / "out" / "old" / "code" / "app.py").write_text("old")
    for part in ("points/0/0", "lives"):  # submitted by hand
        (project / "runs" / "exp-12" / part).mkdir(parents=True)
    (project / "runs" / "exp-12" / "points" / "0" / "0" / "kept.py").write_text("old")
    (project / "app.py").write_text("new")
    if in_git:
        git(tmp_path, "init", "-q", "project")
        git(project, "add", "app.py")
        git(project, "commit", "-qm", "first")
    copy_project(find_project(project), tmp_path / "code", 100)
    assert names(tmp_path / "code") == {"app.py"}


@pytest.mark.parametrize("in_git", [True, False])
def test_a_run_that_is_being_made_is_no_part_of_a_project(tmp_path: Path, in_git: bool) -> None:
    """Two submissions at once, and what a killed one left, have no manifest: nothing in the folder of runs is copied."""
    project = tmp_path / "project"
    target = project / "my runs" / "new" / "code"
    for folder in (target.parent, project / "my runs" / "other", project / "elsewhere" / "killed"):
        for part in ("points", "lives"):
            (folder / part).mkdir(parents=True)
        if folder != target.parent:
            (folder / "code").mkdir()
    (project / "my runs" / "other" / "code" / "app.py").write_text("copied just now")
    (project / "my runs" / "half" / "code").mkdir(parents=True)
    (project / "my runs" / "half" / "code" / "app.py").write_text("its first folders were removed")
    (project / "elsewhere" / "killed" / "code" / "app.py").write_text("left")
    (project / "app.py").write_text("new")
    if in_git:
        git(tmp_path, "init", "-q", "project")  # without a commit
    copy_project(find_project(project), target, 100)
    assert names(target) == {"app.py"}
    (tmp_path / "link").symlink_to(project / "my runs")
    again = tmp_path / "link" / "again" / "code"
    again.parent.mkdir()
    copy_project(find_project(project), again, 100)
    assert names(again) == {"app.py"}, "the same folder of runs by another path"


def test_a_folder_of_runs_around_the_project_hides_nothing(tmp_path: Path) -> None:
    """``runs_dir=.`` and a runs_dir above: the project is still copied, and runs are not."""
    (tmp_path / "app.py").write_text("new")
    for name in ("one", "two"):
        (tmp_path / name / "points").mkdir(parents=True)
        (tmp_path / name / "lives").mkdir()
        copy_project(find_project(tmp_path), tmp_path / name / "code", 100)
        assert names(tmp_path / name / "code") == {"app.py"}
