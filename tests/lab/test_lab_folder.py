"""Where labs live, against the real Slurm of this machine: folders that are odd, foreign, full or forbidden."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from labs import AS_SOMEBODY, CLI, call, environ, traces

from slurmkit.errors import ConfigError
from slurmkit.lab.daemons import Lab

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.lab


def test_a_folder_that_is_no_lab_is_never_removed(lab_folder: Path) -> None:
    """`down` and `up` refuse a folder with other people's files, and touch nothing in it."""
    folder = lab_folder / "thesis"
    folder.mkdir()
    (folder / "chapter1.tex").touch()
    try:
        for verb in ("down", "up"):
            done = call(lab_folder, verb, "--name", folder.name)
            assert done.returncode == 1
            assert "is no lab: it holds chapter1.tex" in done.stderr
        assert (folder / "chapter1.tex").exists()
    finally:
        shutil.rmtree(folder)


def test_a_deep_folder_works(lab_folder: Path) -> None:
    """Where the folder's path is too long for a socket, sockets lie elsewhere, and go with the lab."""
    deep = lab_folder / ("deep" * 25)
    lab = Lab.up("x", nodes=2, folder=deep)
    run = Path(lab.spec.run)
    assert lab.run(["srun", "-N2", "true"]).returncode == 0
    lab.down()
    assert not run.exists()
    deep.rmdir()


def test_a_refused_lab_leaves_nothing(lab_folder: Path) -> None:
    """A folder whose path Slurm cannot read is refused before anything is made, here or in /tmp."""
    before = set(Path(tempfile.gettempdir()).glob("slurmkit-*"))
    odd = lab_folder / ("a b" + "x" * 90)
    with pytest.raises(ConfigError, match="cannot read the path"):
        Lab.up("odd", folder=odd)
    assert not odd.exists()
    assert set(Path(tempfile.gettempdir()).glob("slurmkit-*")) <= before


@pytest.mark.parametrize("verb", ["up", "status", "shell"])
def test_a_folder_that_is_a_file_is_told(lab_folder: Path, tmp_path: Path, verb: str) -> None:
    """One line that names it, and what to set instead."""
    (tmp_path / "file").touch()
    done = call(tmp_path / "file", verb)
    assert done.returncode == 1
    said, hint = done.stderr.splitlines()
    assert "Not a directory" in said
    assert "set SLURMKIT_LAB_DIR" in hint


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(
    ("options", "words"), [("size=64k", "No space left on device"), ("noexec", "mounted noexec")]
)
def test_a_file_system_that_cannot_hold_a_lab_is_told(
    lab_folder: Path, missing: Callable[[str], None], options: str, words: str
) -> None:
    """A full disk, and one from which no Prolog can be run: an error with the way out, and nothing is left."""
    folder = lab_folder / "disk"
    folder.mkdir()
    mount = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o {options} none {folder} || exit 9; "$@"; code=$?; ls {folder}; exit $code',
        "-",
    ]
    up = [*mount, *CLI, "up", "--nodes=2"]
    done = subprocess.run(up, env=environ(folder), capture_output=True, text=True, check=False, timeout=60)
    folder.rmdir()
    if done.returncode == 9:
        missing(f"no file system can be mounted here: {done.stderr}")
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "hint: " in done.stderr
    assert "SLURMKIT_LAB_DIR to a folder" in done.stderr
    assert traces(folder) == []


@pytest.mark.usefixtures("as_root")
def test_roots_umask_hides_no_lab_from_others(lab_folder: Path) -> None:
    """Under umask 077, which many a root has, other users reach the lab all the same."""
    said: list[str] = []
    mask = os.umask(0o077)
    try:
        lab = Lab.up("masked", nodes=1, folder=lab_folder, note=said.append)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(mask)
    assert lab.run([*AS_SOMEBODY, "srun", "true"], cwd=Path("/")).returncode == 0
    lab.down()
    assert not any("only root" in line for line in said)


@pytest.mark.usefixtures("as_root")
def test_a_lab_that_others_cannot_reach_is_told(lab_folder: Path) -> None:
    """Where a folder above it is closed, root hears that nobody else can submit to it, and what to set."""
    closed = lab_folder / "closed"
    closed.mkdir(mode=0o700)
    said: list[str] = []
    lab = Lab.up("hidden", nodes=1, folder=closed, note=said.append)
    refused = lab.run([*AS_SOMEBODY, "cat", str(lab.conf)], cwd=Path("/"), check=False).returncode
    lab.down()
    closed.rmdir()
    assert refused
    told = "lab hidden: only root can reach it there; set SLURMKIT_LAB_DIR for other users"
    assert told in said
