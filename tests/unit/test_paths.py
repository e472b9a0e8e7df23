"""Where packaged data is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmkit import paths
from slurmkit.errors import SlurmkitError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_damaged_installation_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that is not there is an error of ours, with the two places and the remedy, and no missing file of a person's."""
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "slurmkit")
    with pytest.raises(
        SlurmkitError, match=f"damaged.*{tmp_path}/slurmkit/_data/conf.*{tmp_path}/conf"
    ) as caught:
        paths.data_dir("conf")
    assert caught.value.hint == "install slurmkit-hpc again"
    (tmp_path / "conf").mkdir()
    assert paths.data_dir("conf") == tmp_path / "conf"
