"""What is kept of a lab comes back as it was, and only on the machine it belongs to."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import LabError
from slurmkit.lab.config import LabShape, LabSpec
from slurmkit.lab.daemons import Lab
from slurmkit.lab.processes import started
from slurmkit.lab.record import Daemon, Record
from slurmkit.lab.report import read_status

if TYPE_CHECKING:
    from pathlib import Path


def record(root: Path) -> Record:
    root.mkdir(parents=True, exist_ok=True)
    spec = LabSpec(
        shape=LabShape(name=root.name, nodes=1, gpus=1),
        root=str(root),
        run=str(root),
        release=(22, 5),
        user="a",
        port=20000,
        devices=("/dev/null",),
    )
    return Record(spec, [Daemon("slurmctld", 1, 2, "/log"), Daemon("slurmd n1", 1, 2, "/log")])


def test_a_lab_comes_back_as_it_was(tmp_path: Path) -> None:
    """Load returns what save was given, and nothing but lab.json is left behind."""
    kept = record(tmp_path / "x")
    kept.save()
    assert Record.load(kept.root) == kept
    assert [path.name for path in kept.root.iterdir()] == ["lab.json"]


def test_a_lab_of_another_host_is_left_alone(tmp_path: Path) -> None:
    """On a shared home, neither status nor down touches a lab that runs elsewhere."""
    kept = record(tmp_path / "x")
    kept.host = "login2"
    kept.save()
    for act in (Lab.open, Lab.end):
        with pytest.raises(LabError, match="runs on host login2"):
            act("x", tmp_path)
    assert kept.root.exists()


def test_a_copy_of_a_lab_ends_nothing(tmp_path: Path) -> None:
    """A copied folder names the daemons of the original: `down` of the copy leaves them alone."""
    record(tmp_path / "x").save()
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    for act in (Lab.open, Lab.end):
        with pytest.raises(LabError, match="is a copy of the lab in"):
            act("y", tmp_path)
    assert (tmp_path / "x" / "lab.json").exists()


def test_a_lab_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`down` names its owner, signals nothing and removes nothing; root may end any lab."""
    kept = record(tmp_path / "x")
    kept.save()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(LabError, match=r"belongs to .*, and you are 4711"):
        Lab.end("x", tmp_path)
    assert kept.root.exists()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert Lab.end("x", tmp_path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["spec", "release"], [1]),
        (["spec", "release"], [1, 2]),
        (["spec", "release"], [22, "5"]),
        (["spec", "run"], 3),
        (["spec", "shape", "nodes"], True),
        (["spec", "shape", "nodes"], 99),
        (["spec", "shape"], None),
        (["spec", "shape"], {"name": "x", "gpus": 1}),
        (["spec", "shape", "name"], None),
        (["spec", "more"], 1),
        (["spec"], {}),
        (["daemons"], {}),
        (["daemons", 0], "slurmctld"),
        (["daemons", 0, "pid"], "x"),
        (["host"], None),
    ],
)
def test_a_damaged_value_is_told(tmp_path: Path, place: list[str | int], value: object) -> None:
    """Wherever in the file it is, the error names the file and the way out: nothing is guessed, or touched."""
    kept = record(tmp_path / "x")
    kept.save()
    path = kept.root / "lab.json"
    told = json.loads(path.read_text())
    spoilt = told
    for key in place[:-1]:
        spoilt = spoilt[key]
    spoilt[place[-1]] = value
    path.write_text(json.dumps(told))
    for act in (Lab.open, Lab.end):
        with pytest.raises(LabError, match=r"lab\.json is not what") as caught:
            act("x", tmp_path)
        assert f"remove {kept.root}" in caught.value.hint
    assert path.exists()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"3", b"null", b"{}", b'{"version": 1}', b"\xff"])
def test_a_damaged_file_is_told(tmp_path: Path, text: bytes) -> None:
    """Cut off, of another kind, or no text at all: the error names the file."""
    kept = record(tmp_path / "x")
    (kept.root / "lab.json").write_bytes(text)
    with pytest.raises(LabError, match=r"lab\.json is not what"):
        Lab.open("x", tmp_path)


def test_a_lab_of_another_slurmkit_is_left_alone(tmp_path: Path) -> None:
    """A file of another version is not read as if it were of ours: both versions are named."""
    kept = record(tmp_path / "x")
    kept.save()
    path = kept.root / "lab.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2, "new": True}))
    for act in (Lab.open, Lab.end):
        with pytest.raises(LabError, match=r"has version 2, and this slurmkit reads 1"):
            act("x", tmp_path)
    assert path.exists()


def test_an_unknown_lab_names_those_there_are(tmp_path: Path) -> None:
    """A typing error in --name is answered with the names that would have worked."""
    record(tmp_path / "mine").save()
    with pytest.raises(LabError, match=r"there is no lab nime .* there is mine") as caught:
        Lab.open("nime", tmp_path)
    assert caught.value.hint == 'start it: eval "$(slurmkit lab up --name nime)"'


def test_status_reads_the_same_for_people_and_programs(tmp_path: Path) -> None:
    """A dead slurmctld makes a lab unhealthy, by name: what it alone knows is unknown, and not none."""
    dead = record(tmp_path / "x")
    dead.daemons = [Daemon("munged", os.getpid(), started(os.getpid()) or 0, "/log"), *dead.daemons]
    status = read_status(dead)
    assert not status.healthy
    assert str(status).splitlines()[2:] == [
        "daemons  1 of 3 alive; dead: slurmctld, slurmd n1",
        "nodes    unknown: slurmctld does not answer",
        "jobs     unknown: slurmctld does not answer",
    ]
    assert str(status.trouble) == "slurmctld of lab x is dead"
    told = status.as_json()
    assert told["daemons"] == {"munged": True, "slurmctld": False, "slurmd n1": False}
    assert (told["nodes"], told["jobs"]) == (None, None)


def test_a_start_that_was_cut_off_is_told(tmp_path: Path) -> None:
    """A lab of which a daemon never started is not healthy, whatever of it lives."""
    begun = record(tmp_path / "x")
    begun.daemons = begun.daemons[:1]
    trouble = read_status(begun).trouble
    assert trouble is not None
    assert "its start was cut off" in trouble.message
    assert trouble.hint == "slurmkit lab down --name x, then up again"
