"""What ``python -m slurmkit.lab.hosts`` leaves in a folder that all hosts see."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from slurmkit.lab import hosts, machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRETS = {"munge.key", "jwt_hs256.key", "slurmdbd.conf", "mariadb.sql", "storage.password"}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, bytes]]:
    """Write into one folder, as if Slurm 24.11 were here; its accounts may not be."""
    owners: dict[str, str] = {}
    monkeypatch.setattr(machine, "read_release", lambda _: (24, 11))
    monkeypatch.setattr(hosts.shutil, "chown", lambda path, user, _: owners.update({path.name: user}))
    folder = tmp_path / "slurm"

    def call(*words: str, code: int = 0) -> dict[str, bytes]:
        assert hosts._main([str(folder), *words]) == code
        return {path.name: path.read_bytes() for path in folder.glob("*")} if folder.exists() else {}

    return call


def test_secrets_are_for_few_eyes(write: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    """Keys and passwords are nobody else's to read, whatever the mask; the rest is everybody's."""
    mask = os.umask(0)
    try:
        made = write("--cloud", "2")
    finally:
        os.umask(mask)
    assert set(made) > SECRETS
    for name in made:
        mode = stat.S_IMODE((tmp_path / "slurm" / name).stat().st_mode)
        assert mode == (0o600 if name in SECRETS else 0o644), name
    password = made["storage.password"].decode()
    assert len(password) == 32
    assert f"StoragePass={password}" in made["slurmdbd.conf"].decode()
    assert f"IDENTIFIED BY '{password}'" in made["mariadb.sql"].decode()


def test_written_again_it_fits_what_runs(write: Callable[..., dict[str, bytes]]) -> None:
    """Other options change the configuration; munged, slurmdbd and MariaDB go on with the keys they have."""
    before = write()
    after = write("--user-signal", "--extra", "MaxJobCount=10")
    assert all(before[name] == after[name] for name in SECRETS)
    assert b"PreemptParameters=send_user_signal" in after["slurm.conf"]
    assert after["slurm.conf"].endswith(b"\nMaxJobCount=10\n")


def test_a_bad_shape_writes_nothing(
    write: Callable[..., dict[str, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line and a hint, as everywhere."""
    assert write("--nodes", "0", code=2) == {}
    assert "--nodes: 0 is not accepted" in capsys.readouterr().err
