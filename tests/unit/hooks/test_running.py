"""Whether slurmd runs our hooks, and when they last wrote."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from slurmkit.hooks.advice import read_site
from slurmkit.hooks.last import last_records
from slurmkit.hooks.running import running


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    folder = tmp_path / "ours"
    folder.mkdir()
    for name in ("prolog", "epilog"):
        (folder / name).touch()
    return folder


#: What a line of the site's own Prolog means: slurmd runs ours, does not, or only a person can say.
SCRIPTS = {
    "{ours}/prolog": True,
    "exec {ours}/prolog": True,
    '"{ours}/prolog" || true': True,
    "[ $# -eq 0 ] && {ours}/prolog": True,
    '"${{a[@]##*/}}"; {ours}/prolog': True,
    'echo "job # $1"; {ours}/prolog': True,
    "if ! {ours}/prolog; then exit 0; fi": True,
    "out=$({ours}/prolog)": True,
    "LANG=C timeout 5 /bin/bash {ours}/prolog # ours": True,
    "[ -x {ours}/prolog ] && {ours}/prolog": True,
    "# was a comment \\\n{ours}/prolog": None,
    "true \\\n && {ours}/prolog": True,
    "D={ours}\n$D/prolog": None,
    "D={above}; $D/ours/prolog": None,
    'D={above}; "$D"/ours/prolog': None,
    "cd {above} && ours/prolog": None,
    "for hook in {ours}/*; do $hook; done": None,
    "{ours}/$(basename $0)": None,
    "run-parts {ours}": None,
    "rm -f {ours}/prolog": None,
    "rm -f \\\n{ours}/prolog": None,
    "test -d {ours}/": None,
    "CONF={ours}/prolog": None,
    'CONF="{ours}/prolog"': None,
    'echo "then: {ours}/prolog"': None,
    'echo "first; {ours}/prolog"': None,
    "subprocess.run(['{ours}/prolog'])": None,
    "# {ours}/prolog": False,
    "   # D={above}; $D/ours/prolog": False,
    "/bin/true # {ours}/prolog": False,
    "{ours}/prolog.old": False,
    "{ours}-2/prolog": False,
    "{ours}/epilog": False,
    "/elsewhere/ours/prolog": False,
    "/bin/true": False,
}


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_of_the_site_may_call_it(tmp_path: Path, ours: Path, script: str, linked: bool) -> None:
    """The site's own Prolog, alone or one of a pattern: a call is one, a comment is nothing, the rest is for a person."""
    above = tmp_path
    if linked:  # as where /etc/slurm leads to a shared disk
        above = tmp_path / "link"
        above.symlink_to(tmp_path)
    own = tmp_path / "prolog.d" / "10-site"
    own.parent.mkdir()
    line = script.format(ours=above / ours.name, above=above)
    own.write_text(f"#!/bin/sh\n{line}\n")
    for named in (str(own), f"{own.parent}/*"):
        for folder in (ours, above / ours.name):
            found = running(read_site({"Prolog": named}, (22, 5)), folder)
            assert (found["prolog"].runs, found["epilog"].runs) == (SCRIPTS[script], False)
            assert found["prolog"].others == (named,)
            if SCRIPTS[script] is not False:
                assert found["prolog"].where.startswith(f"{own}:")


def test_a_script_that_cannot_be_read_is_for_a_person(tmp_path: Path, ours: Path) -> None:
    """What it calls is not known: nobody takes the hooks away because of that."""
    own = tmp_path / "site"
    own.write_text("")
    with mock.patch.object(Path, "open", side_effect=PermissionError(13, "Permission denied")):
        use = running(read_site({"Prolog": str(own)}, (22, 5)), ours)["prolog"]
    assert (use.runs, use.where) == (None, f"{own} cannot be read: Permission denied")


def test_slurm_conf_may_name_it(tmp_path: Path, ours: Path) -> None:
    """By its path, also where the file is gone; by a pattern; over a link to it or to a folder above, on either side."""

    def runs(named: str, folder: Path = ours) -> bool | None:
        use = running(read_site({"Prolog": named}, (22, 5)), folder)["prolog"]
        assert not use.runs or use.where == f"slurm.conf: Prolog={named}"
        return use.runs

    (tmp_path / "link").symlink_to(ours / "prolog")
    (tmp_path / "folder").symlink_to(ours)
    for named in (f"{ours}/prolog", f"{ours}/pro*", f"{tmp_path}/link", f"{tmp_path}/folder/prolog"):
        assert runs(named)
        assert runs(named, tmp_path / "folder")
    (ours / "prolog").unlink()
    for named in (f"{ours}/prolog", f"{tmp_path}/folder/prolog"):
        assert runs(named)
        assert runs(named, tmp_path / "folder")
    assert runs(f"{tmp_path}/nothing") is False
    (ours / "prolog").symlink_to("/bin/true")  # whatever it is: without it slurmd would find none
    assert runs(f"{ours}/prolog")
    assert runs(f"{tmp_path}/folder/prolog")


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


@pytest.mark.parametrize(
    "time", ["1e999", "-1", "99999999999999", "1" * 400, "true", "5.5", '"5"', "null", "[" * 5000]
)
def test_a_time_that_no_clock_shows(tmp_path: Path, time: str) -> None:
    """A record of somebody else's making is passed over: the one before it counts."""
    sound = json.dumps({"time": 5, "event": "end", "job": 3})
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "jobs.jsonl").write_text(f'{sound}\n{{"time":{time},"event":"end","job":4}}\n')
    assert [tuple(record) for record in last_records(tmp_path)] == [("n1", 5, "end", 3)]
