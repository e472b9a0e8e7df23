"""The settings of the hooks: read as bash reads them, changed in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from slurmkit.hooks.settings import DEFAULT_STATE_DIR, read_settings, with_state_dir
from slurmkit.paths import data_dir

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "STATE_DIR={tmp}/a",
        "# STATE_DIR={tmp}/no\nSTATE_DIR={tmp}/a/\n",
        "STATE_DIR={tmp}/a\nSTATE_DIR={tmp}/b\nSTATE_DIR=relative\n",
        " STATE_DIR={tmp}/a\nSTATE_DIR ={tmp}/b\n",
        "STATE_DIR={tmp}/a=b\nMAX_BYTES=5000\n",
        'STATE_DIR="{tmp}/a"\n',
    ],
)
def test_python_reads_them_as_bash_does(tmp_path: Path, text: str) -> None:
    """Where install believes that the hooks write is where they write."""
    (tmp_path / "library").mkdir()
    shutil.copy(data_dir("prolog_epilog") / "record.bash", tmp_path)
    (tmp_path / "x.conf").write_text(text.format(tmp=tmp_path))
    code = (
        f'STATE_DIR={DEFAULT_STATE_DIR}; . ./record.bash; read_hook_settings ./x.conf; printf %s "$STATE_DIR"'
    )
    bash = subprocess.run(["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert read_settings(text.format(tmp=tmp_path)).state_dir == bash.stdout


def test_another_state_dir_leaves_the_rest_alone() -> None:
    """One line changes; what the admin wrote beside it stays, byte for byte."""
    text = "# ours since 2024\nMAX_BYTES=9999\nSTATE_DIR=/old\nSTATE_DIR=/older\n# end"
    assert with_state_dir(text, "/new") == "# ours since 2024\nMAX_BYTES=9999\n# end\nSTATE_DIR=/new\n"
    for same in (None, "/older"):
        assert with_state_dir(text, same) == text


def test_defaults_need_no_file() -> None:
    """Only what differs from the defaults is written."""
    assert not with_state_dir("", None)
    assert not with_state_dir("", DEFAULT_STATE_DIR)
    assert with_state_dir("", "/x") == "STATE_DIR=/x\n"
    assert read_settings(with_state_dir("STATE_DIR=/x\n", DEFAULT_STATE_DIR)).state_dir == DEFAULT_STATE_DIR


def test_a_line_that_does_nothing_is_told() -> None:
    """A setting that the hooks pass over is no secret of theirs."""
    unread = read_settings("# fine\n\nMAX_BYTES=4M\nSTATE_DIR=here\nCOLOUR=red\n").unread
    assert len(unread) == 3
    assert "1000 to 999999999999" in unread[0]
    assert "absolute" in unread[1]
    assert json.dumps("COLOUR=red").strip('"') in unread[2]
