"""What is kept of a lab comes back as it was, and only on the machine it belongs to."""

from __future__ import annotations

import json
import os
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


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    """The error names the file; nothing is guessed."""
    kept = record(tmp_path / "x")
    kept.save()
    (kept.root / "lab.json").write_text(json.dumps({"version": 1}))
    with pytest.raises(LabError, match=r"lab\.json is not what"):
        Lab.open("x", tmp_path)


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
