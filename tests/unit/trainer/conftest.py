"""The data files of the examples, made once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainer.data import prepare

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    prepare(folder)
    return folder
