"""What is released installs where there is Python and nothing else: no Slurm, no compiler, no package index."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTEXT = Path(__file__).parents[2] / "build" / "docker"

#: What another app's command line composes. (On Python 3.14 no @hydra.main of Hydra 1.3 starts.)
COMPOSED = """
from hydra import compose, initialize
with initialize(None, version_base=None):
    config = compose(None, ["hydra/launcher=slurmkit", "hydra/sweeper=slurmkit"], return_hydra_config=True)
print(config.hydra.launcher._target_, config.hydra.sweeper._target_)
"""


@pytest.fixture(scope="module", params=["*.whl", "*.tar.gz"], ids=["wheel", "sdist"])
def bare(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Run a command on a bare host, after ``pip install`` of the wheel or the source archive."""
    release = request.config.getoption("--slurm")
    (released,) = (CONTEXT / release / "dist").glob(request.param)
    folder = CONTEXT / release
    start = [
        "docker",
        "run",
        "--detach",
        "--rm",
        "--init",
        "--network=none",
        f"--volume={folder}:/released:ro",
    ]
    image = f"slurmkit/cluster:{release}-bare"
    done = subprocess.run([*start, image, "sleep", "600"], capture_output=True, text=True, check=True)
    host = done.stdout.strip()

    def run(*argv: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        flags = ["-i"] if stdin is not None else []
        return subprocess.run(
            ["docker", "exec", *flags, "--workdir=/tmp", "--env=PATH=/env/bin:/usr/bin:/bin", host, *argv],
            capture_output=True,
            text=True,
            check=False,
            input=stdin,
            timeout=300,
        )

    try:
        assert run("python3", "-m", "venv", "/env").returncode == 0
        pip = (
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-index",
            "--find-links=/released/wheels",
        )
        installed = run(*pip, f"/released/dist/{released.name}")
        assert installed.returncode == 0, installed.stdout + installed.stderr
        yield run
    finally:
        subprocess.run(["docker", "rm", "--force", host], capture_output=True, check=True)


@pytest.mark.core
@pytest.mark.feature(
    "The wheel and the source archive install beside Python alone, and compile a script there"
)
def test_what_is_released_works_on_a_bare_host(
    bare: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The command line answers, a script is compiled, and another app of Hydra's finds the launcher."""
    helped = bare("slurmkit", "--help")
    assert (helped.returncode, helped.stderr) == (0, ""), helped.stderr
    assert "compile" in helped.stdout

    compiled = bare("slurmkit", "compile", "experiment=gpt_ddp", "resources.nodes=2")
    assert compiled.returncode == 0, compiled.stderr
    assert "#SBATCH --nodes=2" in compiled.stdout
    assert compiled.stderr.startswith("not checked against any cluster: scontrol is not installed here")
    checked = bare("bash", "-n", "/dev/stdin", stdin=compiled.stdout)
    assert checked.returncode == 0, checked.stderr

    composed = bare("python3", "-", stdin=COMPOSED)
    assert composed.returncode == 0, composed.stderr
    assert composed.stdout.count("hydra_plugins.slurmkit_plugin.") == 2
