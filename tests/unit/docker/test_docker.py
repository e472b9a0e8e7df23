"""The files that make the clusters of containers, looked at without a Docker daemon."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"


def test_shellcheck_finds_nothing(missing: Callable[[str], None]) -> None:
    """Every script of docker/ and of CI is clean by shellcheck's rules."""
    if not shutil.which("shellcheck"):
        missing("shellcheck is not installed")
    files = [ROOT / ".ci" / "run", *(ROOT / ".ci").glob("*.sh")]
    files += [path for path in DOCKER.iterdir() if path.read_bytes().startswith(b"#!/bin/bash")]
    done = subprocess.run(["shellcheck", "-x", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_script_says_what_is_accepted(tmp_path: Path) -> None:
    """Without words, or with a release that there is not, a script ends with 2 and its usage, and asks no Docker."""
    path = f"{tmp_path}:/usr/bin:/bin"
    (tmp_path / "docker").write_text("#!/bin/sh\nsleep 600\n")
    (tmp_path / "docker").chmod(0o755)
    for words in (
        ["test.sh", "--only"],
        ["cluster.sh"],
        ["test.sh"],
        ["suite.sh"],
        ["cluster.sh", "up", "23.02"],
    ):
        script = [DOCKER / words[0], *words[1:]]
        done = subprocess.run(script, capture_output=True, text=True, check=False, env={"PATH": path})
        assert done.returncode == 2, words
        assert all(release in done.stderr for release in ("22.05", "24.11", "26.05")), words


def test_an_image_without_its_tools_says_what_to_type(tmp_path: Path) -> None:
    """Without .venv nothing is built; where no base image comes, Docker's own last words say why."""
    shutil.copytree(DOCKER, tmp_path / "docker")
    path = tmp_path / "path"
    path.mkdir()
    for name, line in (
        ("docker", 'case $1 in pull) printf "Error\\nlookup of the name: no such host\\n" >&2; exit 1;; image) exit 1;; esac'),
        ("debootstrap", "exit 3"),
    ):  # fmt: skip
        (path / name).write_text(f"#!/bin/sh\n{line}\n")
        (path / name).chmod(0o755)

    def said(*words: str) -> str:
        script = [tmp_path / "docker" / words[0], *words[1:]]
        env = {"PATH": f"{path}:/usr/bin:/bin"}
        done = subprocess.run(script, capture_output=True, text=True, check=False, env=env, timeout=60)
        assert done.returncode == 1
        return done.stderr

    assert "there is no" in (venv := said("cluster.sh", "image", "22.05"))
    assert "make setup" in venv
    assert "it cannot be pulled: lookup of the name: no such host" in said("base.sh", "bookworm")


def test_hosts_have_one_address_everywhere() -> None:
    """A name in the list that all hosts have is the address that this host gets."""
    composed = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    listed = dict(item.split(":$", 1) for item in composed["x-host"]["extra_hosts"])
    hosts = composed["services"]
    assert {name for name, host in hosts.items() if host["command"] == "slurmd"} < set(listed)
    for name, address in listed.items():
        assert hosts[name]["networks"]["site"]["ipv4_address"] == f"${address}"
        assert (hosts[name]["hostname"], hosts[name]["container_name"]) == (name, f"${{CLUSTER:?}}-{name}")


def test_only_the_power_control_has_the_docker_socket() -> None:
    """Whoever has it is root on the machine: it is no host that runs a job, or Slurm."""
    composed = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    having = [name for name, host in composed["services"].items() if "docker.sock" in str(host["volumes"])]
    assert having == ["power"]


@pytest.mark.parametrize("suite", ["bookworm", "trixie", "forky"])
def test_the_image_has_the_pinned_versions(suite: str) -> None:
    """What the image gets by pip has a version, that of development; PyTorch is Debian's where it is new enough."""
    found = importlib.util.spec_from_file_location("requirements", DOCKER / "requirements.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    wanted = module.requirements(suite)
    pinned = (ROOT / "requirements-dev.txt").read_text().splitlines()
    left_out = {line for line in pinned if line and not line.startswith("#")} - set(wanted)
    debian = set() if suite == "bookworm" else module.FROM_DEBIAN
    assert {line.partition("==")[0] for line in left_out} == debian | module.NOT_NEEDED
    assert all("==" in line for line in wanted)
    assert {line.partition("==")[0] for line in set(wanted) - set(pinned)} == {"moto[server]", "s3fs"}
    assert any(line.startswith("torch==") for line in wanted) == (suite == "bookworm")
    assert any(line.startswith("hydra-core==") for line in wanted)
