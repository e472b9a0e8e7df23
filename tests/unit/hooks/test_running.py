"""Whether slurmd runs our hooks, and when they last wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurmkit.hooks.advice import read_site
from slurmkit.hooks.running import last_records, running

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    folder = tmp_path / "ours"
    folder.mkdir()
    for name in ("prolog", "epilog"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("script", "runs"),
    [
        ("{ours}/prolog", True),
        ("exec {ours}/prolog", True),
        ('"{ours}/prolog" || true', True),
        ("H={ours}\n$H/prolog", True),
        ("# {ours}/prolog", False),
        ("{ours}/prolog.old", False),
        ("{ours}-2/prolog", False),
        ("/bin/true", False),
    ],
)
def test_a_script_of_the_site_may_call_it(tmp_path: Path, ours: Path, script: str, runs: bool) -> None:
    """The site's own Prolog, alone or one of a pattern, runs ours if a line of it says so."""
    own = tmp_path / "prolog.d" / "10-site"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n" + script.format(ours=ours) + "\n")
    for named in (str(own), f"{own.parent}/*"):
        assert running(read_site({"Prolog": named}, (22, 5)), ours) == {"prolog": runs, "epilog": False}


def test_slurm_conf_may_name_it(tmp_path: Path, ours: Path) -> None:
    """By its path, also where the file is gone; by a pattern; over a link."""
    (tmp_path / "link").symlink_to(ours / "prolog")
    for named in (f"{ours}/prolog", f"{ours}/pro*", str(tmp_path / "link")):
        assert running(read_site({"Prolog": named}, (22, 5)), ours)["prolog"]
    (ours / "prolog").unlink()
    assert running(read_site({"Prolog": f"{ours}/prolog"}, (22, 5)), ours)["prolog"]
    assert not running(read_site({"Prolog": f"{tmp_path}/nothing"}, (22, 5)), ours)["prolog"]


def test_the_last_record_of_each_node(tmp_path: Path) -> None:
    """The end of each file alone is read; a torn line is passed over; a node without a sound one is told."""
    early = json.dumps({"time": 1, "event": "start", "job": 1}) + "\n"
    for node, text in {
        "n1": 'x"' * 100_000 + "\n" + json.dumps({"time": 5, "event": "end", "job": 3}) + '\n{"time":9,"ev',
        "n2": early + "x" * 20_000 + "\n",
    }.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "jobs.jsonl").write_text(text)
    (tmp_path / "n3").mkdir()
    assert [tuple(record) for record in last_records(tmp_path)] == [
        ("n1", 5, "end", 3),
        ("n2", None, "", None),
    ]
    assert last_records(tmp_path / "nowhere") == []
