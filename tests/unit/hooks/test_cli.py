"""``slurmkit hooks``: what it asks Slurm, what it refuses, and what it says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import slurmkit
from slurmkit.cli import main
from slurmkit.cluster.command import CommandClient
from slurmkit.hooks.install import install

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Slurm = Callable[..., list[str]]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """A slurmctld with these settings, which knows two questions; returns what it was asked."""

    def knows(**options: str) -> list[str]:
        settings = {"SLURM_VERSION": "22.05.8", "PrologFlags": "Alloc", "PrologEpilogTimeout": "8", **options}
        asked: list[str] = []

        def run(argv: Sequence[str]) -> tuple[int, str, str]:
            asked.append(" ".join(argv))
            config = "".join(f"{key} = {value}\n" for key, value in settings.items())
            answers = {"scontrol ping": "Slurmctld(primary) at head is UP\n", "scontrol show config": config}
            return 0, answers[asked[-1]], ""

        monkeypatch.setattr(slurmkit, "open_client", lambda: CommandClient(run))
        return asked

    return knows


@pytest.fixture
def place(tmp_path: Path) -> Path:
    install(tmp_path / "ours", f"{tmp_path}/state", site=None)
    return tmp_path / "ours"


def call(capfd: pytest.CaptureFixture[str], *argv: str, code: int) -> tuple[str, str]:
    assert main.run(["hooks", *argv]) == code
    out = capfd.readouterr()
    assert "Traceback" not in out.err
    return out.out, out.err


def test_each_node_asks_for_the_settings_alone(
    place: Path, slurm: Slurm, capfd: pytest.CaptureFixture[str]
) -> None:
    """An install on ten thousand nodes has slurmctld write its table of nodes not once."""
    asked = slurm(Prolog=f"{place}/prolog", Epilog=f"{place}/epilog")
    call(capfd, "install", f"--dir={place}", code=0)
    assert asked == ["scontrol ping", "scontrol show config"]


def test_uninstall_over_a_link_keeps_what_slurm_names(
    place: Path, slurm: Slurm, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where /etc/slurm is a link: without the hooks that slurm.conf names every node would drain."""
    link = place.parent / "link"
    link.symlink_to(place.parent)
    for named, said in ((place, link / "ours"), (link / "ours", place), (link / "ours", link / "ours")):
        slurm(Prolog=f"{named}/prolog", Epilog=f"{named}/epilog")
        for force in ([], ["--force"]):
            assert f"Prolog={named}/prolog" in call(capfd, "uninstall", f"--dir={said}", *force, code=1)[1]
        assert (place / "prolog").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[ $# -eq 0 ] && {ours}/prolog", "Slurm still runs"),
        ("D={above}; $D/ours/prolog", "it cannot be said that Slurm runs no more"),
    ],
)
def test_what_a_script_of_the_site_names_is_kept(
    place: Path, slurm: Slurm, capfd: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    """Uninstall refuses also where it only may be run; all three verbs name the line."""
    site = place.parent / "site.sh"
    text = line.format(ours=place, above=place.parent)
    site.write_text(f"#!/bin/sh\n{text}\n")
    slurm(Prolog=str(site), Epilog="(null)")
    err = call(capfd, "uninstall", f"--dir={place}", "--force", code=1)[1]
    assert said in err
    assert f"{site}:2: {text}" in err
    slurm(Prolog=str(site), Epilog=f"{place}/epilog")
    sure = "&&" in line
    out, err = call(capfd, "install", f"--dir={place}", code=0)
    assert f"{site}:2: {text}" in err
    assert out == ""
    out, err = call(capfd, "status", f"--dir={place}", code=0 if sure else 1)
    assert f"{site}:2: {text}" in out
    assert ("runs (" if sure else "is mentioned (") in out
    site.write_text(f"#!/bin/sh\n# {text}\n")
    slurm(Prolog=str(site), Epilog="(null)")
    call(capfd, "uninstall", f"--dir={place}", code=0)
    assert not place.exists()


def test_status_points_at_install_only_where_that_helps(
    place: Path, slurm: Slurm, capfd: pytest.CaptureFixture[str]
) -> None:
    """The last line is a command that mends something; every other trouble has its own remedy."""
    slurm(Prolog=f"{place}/prolog", Epilog=f"{place}/epilog", PrologEpilogTimeout="65534")
    err = call(capfd, "status", f"--dir={place}", code=1)[1]
    assert "PrologEpilogTimeout=8; set it in slurm.conf" in err
    assert "mend it with" not in err
    (place / "prolog").write_text("x")
    err = call(capfd, "status", f"--dir={place}", code=1)[1]
    assert f"replace it with: slurmkit hooks install --dir {place} --force" in err
    assert "mend it with" not in err
    (place / "epilog").chmod(0o644)
    err = call(capfd, "status", f"--dir={place}", code=1)[1]
    assert err.splitlines()[-1].endswith(f"mend it with: slurmkit hooks install --dir {place}")
    found = json.loads(call(capfd, "status", f"--dir={place}", "--json", code=1)[0])
    assert {
        "what": f"{place}/epilog has mode 0644, and 0755 is needed",
        "remedy": f"slurmkit hooks install --dir {place}",
    } in (found["troubles"])


def test_a_slurmduser_without_a_place_to_write_is_told(
    place: Path, slurm: Slurm, capfd: pytest.CaptureFixture[str]
) -> None:
    """Install does not say that all is well where no record will ever be."""
    slurm(Prolog=f"{place}/prolog", Epilog=f"{place}/epilog", SlurmdUser="slurm(64999)")
    err = call(capfd, "install", f"--dir={place}", code=0)[1]
    assert f"mend it with: chown -h 64999 {place.parent}/state" in err


def test_a_path_with_more_slashes_than_needed(
    tmp_path: Path, slurm: Slurm, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two at its beginning, as of an empty variable before it, are one to Linux, and no link."""
    slurm()
    words = (f"--dir=/{tmp_path}//ours/", f"--state-dir=/{tmp_path}//state")
    out, err = call(capfd, "install", *words, code=0)
    assert f"Prolog={tmp_path}/ours/prolog\n" in out
    assert f"records: {tmp_path}/state/NODE" in err
