"""What is kept of a lab comes back as it was, and only on the machine it belongs to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import LabError
from slurmkit.lab.config import LabShape, LabSpec
from slurmkit.lab.daemons import Lab
from slurmkit.lab.record import Daemon, Record
from slurmkit.lab.report import LabStatus

if TYPE_CHECKING:
    from pathlib import Path


def record(root: Path) -> Record:
    root.mkdir(parents=True, exist_ok=True)
    spec = LabSpec(
        shape=LabShape(name=root.name, gpus=1),
        root=str(root),
        run=str(root),
        release=(22, 5),
        user="a",
        port=20000,
        devices=("/dev/null",),
    )
    return Record(spec, [Daemon("slurmctld", 1, 2, "/log")])


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
    assert caught.value.hint == "start it: slurmkit lab up --name nime"


def test_status_reads_the_same_for_people_and_programs() -> None:
    """A dead daemon makes it unhealthy, by name; no answer of slurmctld is said in words."""
    status = LabStatus(LabShape(), "/labs/lab", "22.05", {"munged": True, "slurmctld": False}, {}, {})
    assert not status.healthy
    assert str(status).splitlines()[2:] == [
        "daemons  1 of 2 alive; dead: slurmctld",
        "nodes    slurmctld does not answer",
        "jobs     none",
    ]
    assert status.as_json()["daemons"] == {"munged": True, "slurmctld": False}
