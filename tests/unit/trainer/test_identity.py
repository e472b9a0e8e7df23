"""Whose files these are: one id for all points and lives of a run, and where its checkpoints lie."""

from __future__ import annotations

import contextlib
import os
from itertools import count
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import CheckpointError, ConfigError
from slurmkit.runtime.jobenv import JobEnv
from slurmkit.runtime.records import write_atomic
from trainer import identity
from trainer.identity import RUN_ID, checkpoint_folder, run_id

if TYPE_CHECKING:
    from pathlib import Path


class KilledError(BaseException):
    """As kill -9, as far as the file is concerned."""


def test_an_id_is_there_as_a_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first life that is killed at any moment leaves no empty file that blocks all later ones."""
    fsync = os.fsync
    for last in count(1):
        path = tmp_path / str(last) / RUN_ID
        there: list[bool] = []

        def killed(descriptor: int, last: int = last, path: Path = path, there: list[bool] = there) -> None:
            there.append(path.exists())
            if len(there) == last:
                raise KilledError
            fsync(descriptor)

        with monkeypatch.context() as patch, contextlib.suppress(KilledError):
            patch.setattr(os, "fsync", killed)
            run_id(path.parent)
        assert len(run_id(path.parent)) == 16
        assert list(path.parent.iterdir()) == [path]
        if len(there) < last:
            assert there[-1], "its name was synced too"
            return


def test_two_points_that_begin_at_once_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one makes the file between our look and our own: its id counts, for both."""

    def write(path: Path, data: str) -> None:
        write_atomic(path, data)
        (tmp_path / RUN_ID).write_text("0123456789abcdef")

    monkeypatch.setattr(identity, "write_atomic", write)
    assert run_id(tmp_path) == "0123456789abcdef"
    assert [path.name for path in tmp_path.iterdir()] == [RUN_ID]


@pytest.mark.parametrize("content", ["", "0123", "../../../../etc/x", "0123456789abcde/"])
def test_a_file_that_holds_no_id_is_an_error_with_a_way_out(tmp_path: Path, content: str) -> None:
    """Never a new id: it would not find the checkpoints of the old one."""
    (tmp_path / RUN_ID).write_text(content)
    with pytest.raises(CheckpointError, match=f"holds '{content}'") as caught:
        run_id(tmp_path)
    assert "COMMIT" in caught.value.hint
    assert "remove the file" in caught.value.hint


def test_a_home_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` is never the name of a folder where the run was started; one without a home is refused."""
    monkeypatch.setenv("HOME", str(tmp_path))
    env = JobEnv.from_environ({"SLURMKIT_RUN_DIR": "/runs/digits"})
    assert checkpoint_folder(env, "~/ck", "12ab") == tmp_path / "ck" / "digits-12ab" / "0"
    with pytest.raises(ConfigError, match=r"root='~no-such-user/ck'") as caught:
        checkpoint_folder(env, "~no-such-user/ck", "12ab")
    assert "~" in caught.value.hint
