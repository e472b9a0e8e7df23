"""CI, with programs in its way that only say what they were called with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def stub(folder: Path, name: str, line: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{line}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of CI alone, and a PATH on which everything is there, and no Docker daemon can run."""
    shutil.copytree(ROOT / ".ci", tmp_path / "checkout" / ".ci")
    demo, path = tmp_path / "checkout" / "tests" / "demo", tmp_path / "path"
    demo.mkdir(parents=True)
    path.mkdir()
    stub(demo, "install.sh", "true")
    stub(path, "make", f'echo "$@" >>{tmp_path}/made')
    stub(path, "docker", "exit 1")
    stub(path, "dockerd", "echo 'failed to start: no iptables' >&2; exit 1")
    for program in ("debootstrap", "docker-compose", "strace", "shellcheck"):
        stub(path, program, "true")
    stub(path, "apt-get", f"echo apt-get >>{tmp_path}/made")
    return tmp_path


def ci(checkout: Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{checkout}/path:/usr/bin:/bin"
    return subprocess.run(
        ["bash", checkout / "checkout" / ".ci" / "run"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": path, **env},
    )


def test_ci_fails_where_no_docker_daemon_can_run(checkout: Path) -> None:
    """It says so with the daemon's last words and what to type; told so, it passes and says what was not tried."""
    done = ci(checkout)
    assert done.returncode == 1
    assert "failed to start: no iptables" in done.stderr
    assert "not tried on Slurm 24.11 and 26.05" in done.stderr
    assert "SLURMKIT_CI_WITHOUT_DOCKER=1 bash .ci/run" in done.stderr
    done = ci(checkout, SLURMKIT_CI_WITHOUT_DOCKER="1")
    assert done.returncode == 0
    assert "not tried on Slurm 24.11 and 26.05" in done.stderr
    assert (checkout / "made").read_text().split("\n") == ["check", "test", "demo"] * 2 + [""]


def test_ci_tries_all_releases_where_a_daemon_answers(checkout: Path) -> None:
    """The core of it runs on each release, and what fails there fails CI."""
    stub(checkout / "path", "docker", "true")
    assert ci(checkout).returncode == 0
    assert (checkout / "made").read_text().splitlines()[-1] == "test-docker SLURM=all ONLY=core"
    stub(checkout / "path", "make", '[ "$1" != test-docker ]')
    assert ci(checkout).returncode != 0
