"""Whether the hooks are as they should be: every fault is a line, and one line is exit code 1."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import SlurmkitError
from slurmkit.hooks import status
from slurmkit.hooks.advice import advise, read_site
from slurmkit.hooks.files import SETTINGS
from slurmkit.hooks.install import install
from slurmkit.hooks.running import running
from slurmkit.hooks.status import check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: What mends a folder that is not the default; to be typed as it is.
INSTALL = "slurmkit hooks install --dir [^ ]*/ours"
Break = tuple[str, str, "Callable[[Path, dict[str, str]], object]"]

FAULTS: dict[str, Break] = {
    "edited": (
        "prolog is not what slurmkit put there",
        f"copy of what is yours.*: {INSTALL} --force$",
        lambda place, _: (place / "prolog").write_text("x"),
    ),
    "gone": ("record.bash is not there", f"^{INSTALL}$", lambda place, _: (place / "record.bash").unlink()),
    "mode": ("epilog has mode 0644", f"^{INSTALL}$", lambda place, _: (place / "epilog").chmod(0o644)),
    "setting": (
        "MAX_BYTES takes",
        f"delete the line in .*{SETTINGS}",
        lambda place, _: (place / SETTINGS).write_text(f"STATE_DIR={place.parent}/state\nMAX_BYTES=4M\n"),
    ),
    "open folder": ("of the hooks: .*0777", "^chmod go-w [^ ]*/ours$", lambda place, _: place.chmod(0o777)),
    "state over a link": (
        "^the folder of the records: .*/state leads over a symbolic link",
        f"^name the place itself, which no link can move: [^ ]*/real, with: {INSTALL} --state-dir [^ ]*/real$",
        lambda place, _: (
            (place.parent / "state").rename(place.parent / "real")
            and (place.parent / "state").symlink_to("real")
        ),
    ),
    "state that is a file": (
        "^the folder of the records: .*/state is no folder$",
        f"^name another place, with: {INSTALL} --state-dir DIR$",
        lambda place, _: (place.parent / "state").rmdir() or (place.parent / "state").touch(),
    ),
    "open state": (
        "of the records: .*0777.*lead elsewhere",
        "^chmod go-w [^ ]*/state$",
        lambda place, _: (place.parent / "state").chmod(0o777),
    ),
    "not named": (
        "no Epilog that runs",
        "set Epilog=.*/ours/epilog in slurm.conf, and run scontrol reconfigure$",
        lambda _, options: options.update(Epilog="(null)"),
    ),
    "mentioned": (
        "cannot be said: .*site:1: rm -f",
        "by its whole path, as a command of its own",
        lambda place, options: options.update(Epilog=script(place, f"rm -f {place}/epilog")),
    ),
    "no flag": (
        "does not know PrologFlags=Alloc",
        "in slurm.conf",
        lambda _, options: options.update(PrologFlags="(null)"),
    ),
    "no end": (
        "PrologEpilogTimeout=8",
        "in slurm.conf",
        lambda _, options: options.update(PrologEpilogTimeout="65534"),
    ),
    "a hook of the site that is not here": (
        'slurm.conf has Prolog=.*/gone.sh, which matches no file here.*reason "Prolog error"$',
        "^put there what the other nodes have, or take it out of slurm.conf, and run scontrol reconfigure$",
        lambda place, options: options.update({"Prolog[0]": f"{place.parent}/gone.sh"}),
    ),
    "a pattern that matches nothing": (
        r'slurm.conf has Epilog=.*/epilog.d/\*, which matches no file here.*reason "Epilog error"$',
        "^put there what the other nodes have, or take it out of slurm.conf",
        lambda place, options: options.update({"Epilog[0]": f"{place.parent}/epilog.d/*"}),
    ),
    "swept": (
        "drains nodes",
        "set Epilog=.*/ours/epilog in its place",
        lambda place, options: options.update(Epilog=f"{place}/*"),
    ),
}


def script(place: Path, text: str) -> str:
    (place.parent / "site").write_text(text)
    return str(place.parent / "site")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    install(tmp_path / "ours", f"{tmp_path}/state", site=None)
    return tmp_path / "ours"


def options(place: Path) -> dict[str, str]:
    return {
        "Prolog": f"{place}/prolog",
        "Epilog": f"{place}/epilog",
        "PrologFlags": "Alloc",
        "PrologEpilogTimeout": "8",
    }


def test_all_is_well(place: Path) -> None:
    """No trouble where there is none; what slurm.conf lacks is not known where Slurm cannot be asked."""
    found = check(place, read_site(options(place), (22, 5)))
    assert found.as_json()["runs"] == {"prolog": True, "epilog": True}
    assert (found.troubles, found.lines) == ((), ())
    unasked = check(place, None)
    assert (unasked.troubles, unasked.lines, unasked.uses, unasked.notes) == ((), None, None, ())
    assert unasked.as_json()["runs"] is None


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told_with_its_remedy(place: Path, fault: str) -> None:
    """One line says where it is and what; install is named where it mends it, and only there."""
    said, remedy, damage = FAULTS[fault]
    settings = options(place)
    damage(place, settings)
    (trouble,) = check(place, read_site(settings, (22, 5))).troubles
    assert re.search(said, trouble.what), trouble
    assert re.search(remedy, trouble.remedy), trouble
    other = re.search(r"--state-dir (\S+)$", trouble.remedy)
    state = other and other[1].replace("DIR", f"{place.parent}/other")
    with contextlib.suppress(SlurmkitError):
        install(place, state, force="--force" in trouble.remedy, site=None)
    mended = not check(place, read_site(settings, (22, 5))).troubles
    assert mended == bool(re.search(INSTALL, trouble.remedy))


def test_a_command_is_whole_wherever_it_stands(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed without its folder it would mend another one; the default needs no telling."""
    (place / "prolog").unlink()
    (place / "prolog").symlink_to("/bin/true")
    site = script(place, "true")
    settings = {**options(place), "Epilog": site}

    def remedies() -> list[str]:
        return [trouble.remedy for trouble in check(place, read_site(settings, (22, 5))).troubles]

    command = f"slurmkit hooks install --dir {place}"
    beside = f"to have it run beside {site}"
    assert remedies() == [f"move it away, and then: {command}", f"do what {command} says, {beside}"]
    monkeypatch.setattr(status, "DEFAULT_FOLDER", str(place))
    command = "slurmkit hooks install"
    assert remedies() == [f"move it away, and then: {command}", f"do what {command} says, {beside}"]


def test_a_folder_of_both_on_a_node_that_comes_later(place: Path) -> None:
    """Slurm.conf names it, and here is nothing of it, or a part: what install prints, pasted, mends all but the site's."""
    site = place.parent / "prolog.sh"
    folder = place.parent / "prolog.sh.slurmkit-prolog.d"
    settings = read_site({**options(place), "Prolog": f"{folder}/*"}, (22, 5))

    def troubles() -> list[str]:
        return [f"{what}; {remedy}" for what, remedy in check(place, settings).troubles]

    def paste() -> None:
        told = "\n".join(advise(settings, place, running(settings, place)).notes)
        commands = "\n".join(line for line in told.splitlines() if line.startswith("  "))
        subprocess.run(["/bin/sh", "-c", commands], check=True)

    mend = f"; do what slurmkit hooks install --dir {place} says"
    (told,) = troubles()
    assert re.search(rf'Prolog={folder}/\*, which matches no file here.* "Prolog error"{mend}$', told)
    folder.mkdir()
    (folder / "site").write_text(f"#!/bin/sh\nexec {site}\n")
    site.touch()
    assert [f"{mend}, to have it run beside {folder}/*" in told for told in troubles()] == [True]
    paste()
    assert troubles() == []
    (folder / "site").unlink()
    (told,) = troubles()
    assert re.search(f"{folder}/site is not there: {site} does not run on this machine{mend}$", told)
    paste()
    assert troubles() == []
    site.unlink()
    (told,) = troubles()
    assert f"{folder}/site runs {site}, which is not there: " in told
    assert "put there what the other nodes have" in told
    (folder / "site").rename(folder / "50-mine")  # a name of the admin's own does as well
    assert troubles() == []


def test_a_command_is_one_word_a_place(place: Path) -> None:
    """Typed into a shell it names that folder, whatever characters that has."""
    odd = place.parent / "$(id) x"
    place.rename(odd)
    (odd / "prolog").unlink()
    remedies = [trouble.remedy for trouble in check(odd, None).troubles]
    install = ["slurmkit", "hooks", "install", "--dir"]
    assert [*install, str(odd)] in [shlex.split(remedy) for remedy in remedies]
    # slurm.conf cannot hold such a path: another one is named.
    assert [*install, "DIR"] in [shlex.split(remedy.rpartition("with: ")[2]) for remedy in remedies]


def test_every_folder_that_others_may_write_is_told(tmp_path: Path) -> None:
    """Whoever does what status says has not to ask again."""
    place = tmp_path / "above" / "ours"
    install(place, f"{tmp_path}/state", site=None)
    for folder in (place, place.parent):
        folder.chmod(0o777)
    remedies = [trouble.remedy for trouble in check(place, read_site(options(place), (22, 5))).troubles]
    assert remedies == [f"chmod go-w {place}", f"chmod go-w {place.parent}"]


def test_a_folder_over_a_link(place: Path) -> None:
    """It is the place that the link leads to, whichever of the two slurm.conf names."""
    link = place.parent / "link"
    link.symlink_to(place)
    for named in (place, link):
        found = check(link, read_site(options(named), (22, 5)))
        assert (found.troubles, found.folder) == ((), place)


def test_hooks_that_run_and_write_nothing_are_told(place: Path) -> None:
    """No fault for sure, since a new node has run no job; but nobody is left to believe that it writes."""
    site = read_site(options(place), (22, 5))
    assert f"no record is in {place.parent}/state" in check(place, site).notes[0]
    (place.parent / "state" / "n1").mkdir()
    (place.parent / "state" / "n1" / "jobs.jsonl").write_text('{"time":5,"event":"end","job":3}\n')
    assert check(place, site).notes == ()


def test_a_slurmduser_that_cannot_write_is_told(place: Path) -> None:
    """Hooks run as SlurmdUser and keep silent: whose folder it has to be is said beforehand."""
    nobody = 64999
    site = read_site({**options(place), "SlurmdUser": f"slurm({nobody})"}, (22, 5))
    state = place.parent / "state"
    remedies = [trouble.remedy for trouble in check(place, site).troubles]
    assert f"chown -h {nobody} {state}" in remedies
    state.chmod(0o700)
    assert f"chmod o+x {state}" in [trouble.remedy for trouble in check(place, site).troubles]
    assert f"chmod o+x {state}" not in remedies
