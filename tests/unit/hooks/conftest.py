"""Where the tests of this folder install."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "slurmkit"


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "state")
