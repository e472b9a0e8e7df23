"""What ``python -m slurmkit.lab.hosts`` leaves in a folder that all hosts see."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from slurmkit.lab import hosts, machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


ROOT = Path(__file__).parents[3]
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
        made = write()
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
    """munged, slurmdbd and MariaDB go on with the keys they have."""
    before = write()
    after = write("--name", "other")
    assert all(before[name] == after[name] for name in SECRETS)
    assert b"ClusterName=other" in after["slurm.conf"]


def test_slurm_conf_says_that_all_is_there(
    write: Callable[..., dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that is cut short anywhere leaves no slurm.conf, by which the next one knows to write all of it."""
    real, count = hosts._replace, len(write())
    for stop in range(count):
        left = iter(range(stop))

        def replace(path: Path, content: bytes, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            real(path, content)

        for path in (tmp_path / "slurm").iterdir():
            path.unlink()
        monkeypatch.setattr(hosts, "_replace", replace)
        with pytest.raises(KeyboardInterrupt):
            hosts._main([str(tmp_path / "slurm")])
        assert not (tmp_path / "slurm" / "slurm.conf").exists(), stop


def test_a_bad_name_writes_nothing(
    write: Callable[..., dict[str, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line and a hint, as everywhere."""
    assert write("--name", "no name", code=2) == {}
    assert "--name: 'no name' names no lab" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file in its place, or an account that no package has made, are no traceback."""
    monkeypatch.setattr(machine, "read_release", lambda _: (24, 11))
    (tmp_path / "file").touch()
    assert hosts._main([str(tmp_path / "file")]) == 1
    assert "File exists" in capsys.readouterr().err
    monkeypatch.setattr(hosts, "_SECRETS", {"munge.key": "no-such-account"})
    assert hosts._main([str(tmp_path / "new")]) == 1
    assert "no-such-account" in capsys.readouterr().err


def test_there_are_as_many_hosts_as_nodes() -> None:
    """What slurm.conf names is what the composed file starts."""
    composed = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    names = {name for name, host in composed["services"].items() if host["command"] == "slurmd"}
    assert names == {f"c{n + 1}" for n in range(hosts.NODES)} | {
        f"p{n + 1}" for n in range(hosts.CLOUD_NODES)
    }
