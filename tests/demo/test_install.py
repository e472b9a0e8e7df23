"""What ``install.sh`` says and does, which ``make demo`` and CI begin with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = Path(__file__).with_name("install.sh")


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """A PATH without Slurm, and an ordinary user without sudo."""
    for name in ("bash", "sort", "cat", "git", "make"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    python = f'exec {sys.executable} "$@"'
    for name, text in {
        "python3": python,
        "id": "echo 1000",
        "sudo": "exit 1",
        "apt-get": "echo installed >&2; exit 9",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return {"PATH": str(tmp_path)}


def install(env: dict[str, str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a copy that cannot see the system's own sbin folders."""
    script = tmp_path / "install.sh"
    script.write_text(INSTALL.read_text().replace(":/usr/sbin:/sbin", ""))
    return subprocess.run(
        ["/bin/bash", script],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_without_slurm_and_root_it_says_what_to_install(bare: dict[str, str], tmp_path: Path) -> None:
    """An ordinary user gets the one command to hand to root, and nothing is tried."""
    done = install(bare, tmp_path)
    assert done.returncode == 1
    assert (
        "apt-get install --no-install-recommends mariadb-server munge slurm-client slurmctld slurmd slurmdbd"
        in done.stderr
    )
    assert "installed" not in done.stderr.splitlines()


def test_without_apt_it_names_the_programs(bare: dict[str, str], tmp_path: Path) -> None:
    """On another system than Debian the packages are named all the same."""
    (tmp_path / "apt-get").unlink()
    done = install(bare, tmp_path)
    assert done.returncode == 1
    assert "package manager" in done.stderr
    assert "slurmctld" in done.stderr


def test_where_nothing_is_missing_nothing_is_done(bare: dict[str, str], tmp_path: Path) -> None:
    """A second ``make demo`` asks for no password and installs nothing."""
    for name in ("slurmctld", "slurmd", "sinfo", "munged", "slurmdbd", "mariadbd"):
        (tmp_path / name).write_text("#!/bin/bash\n")
        (tmp_path / name).chmod(0o755)
    done = install(bare, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
