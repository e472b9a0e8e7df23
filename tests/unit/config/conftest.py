"""Config files of a person's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write ``NAME.yaml`` into a folder of configs, which is returned."""

    def write(name: str, text: str | bytes) -> Path:
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path

    return write


@pytest.fixture
def experiment_file(config_file: Callable[[str, str], Path]) -> Callable[..., Path]:
    """The same for ``experiment/mine``, or another name, with the head that an experiment needs."""

    def write(text: str, name: str = "experiment/mine") -> Path:
        return config_file(name, f"# @package _global_\n{text}")

    return write
