"""Who may use and who may start a lab, against the real Slurm of this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from labs import AS_SOMEBODY, SOMEBODY, traces

import slurmkit

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab


@pytest.mark.usefixtures("as_root")
def test_other_users_submit_to_a_lab_of_root(lab: Lab) -> None:
    """A job of an ordinary user runs as that user."""
    assert lab.run([*AS_SOMEBODY, "srun", "-N2", "id", "-un"], cwd=Path("/")).stdout.split() == [SOMEBODY] * 2


ORDINARY = """
import sys
from pathlib import Path
from slurmkit.lab.daemons import Lab
lab = Lab.up("mine", nodes=4, leaf=2, gpus=8, folder=Path(sys.argv[1]))
print(lab.spec.user)
print(lab.status().nodes["idle"])
print(lab.run(["srun", "-N4", "--gres=gpu:8", "id", "-un"], cwd=Path(sys.argv[1])).stdout.split())
print(sorted(path.parent.name for path in lab.hook_state.glob("*/jobs.jsonl")))
lab.down()
"""


@pytest.mark.usefixtures("as_root")
def test_an_ordinary_user_can_have_one(lab_folder: Path, missing: Callable[[str], None]) -> None:
    """Without root: all nodes idle, GPUs to hand out, Prolog runs, and nothing stays."""
    home = lab_folder / "home"
    package = Path(slurmkit.__file__).parent
    python = next(
        (
            path
            for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
            if _somebody_can_run(path)
        ),
        None,
    )
    if python is None:
        missing("there is no Python 3.10 that an ordinary user may execute")
    home.mkdir()
    try:
        shutil.copytree(package, home / "slurmkit", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(package.parent / "prolog_epilog", home / "prolog_epilog")
        shutil.chown(home, SOMEBODY, SOMEBODY)
        done = subprocess.run(
            [*AS_SOMEBODY, python, "-c", ORDINARY, str(home)],
            capture_output=True,
            text=True,
            check=False,
            env={
                "HOME": str(home),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(home),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            timeout=60,
        )
        assert done.stderr == ""
        user, idle, names, hooks = done.stdout.splitlines()
        assert (user, idle) == (SOMEBODY, "4")
        assert names == str([SOMEBODY] * 4)
        assert hooks == str(["n1", "n2", "n3", "n4"])
        assert not (home / "mine").exists()
        assert traces(home) == []
    finally:
        shutil.rmtree(home)


def _somebody_can_run(python: str) -> bool:
    probe = [*AS_SOMEBODY, python, "-c", "import sys; sys.exit(sys.version_info < (3, 10))"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0
