"""What ``make`` says to a person: one readable line for each thing that takes long, none for what is done."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile with a Python whose venv has a pip, and neither does anything."""
    for name in ("Makefile", "requirements-dev.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(
        '#!/bin/sh\n[ "$1" != --version ] || echo Python 3.99\n[ "$1" != -m ] || ln -s ../bin "$3"/\n'
    )
    pip = tmp_path / "bin" / "pip"
    pip.write_text("#!/bin/sh\n")
    for program in (python, pip):
        program.chmod(0o755)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def make(checkout: Path, *words: str) -> list[str]:
    argv = ["make", "--no-print-directory", f"PYTHON={checkout}/bin/python", *words]
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        argv, cwd=checkout, env=env, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_setup_says_what_takes_long_and_what_to_type_next(checkout: Path) -> None:
    """The first time two lines, then one; nothing of make's own words."""
    ready = ".venv is ready: . .venv/bin/activate"
    making, said = make(checkout, "setup")
    assert making.startswith("making .venv with Python 3.99: ")
    assert said == ready
    assert make(checkout, "setup") == [ready]


def test_the_demo_says_nothing_where_nothing_is_to_be_made(checkout: Path) -> None:
    """What demo.sh asks of make is silent once .venv is there."""
    asked = next(
        line for line in (ROOT / "tests/demo/demo.sh").read_text().splitlines() if line.startswith("make ")
    )
    words = asked.split()[1:]
    assert len(make(checkout, *words)) == 1
    assert make(checkout, *words) == []
