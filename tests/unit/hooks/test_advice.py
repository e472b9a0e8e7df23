"""What slurm.conf lacks, decided on what ``scontrol show config`` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmkit.hooks.advice import advise, read_site, swept

OURS = Path("/etc/slurm/slurmkit")
#: As Slurm 22.05 writes settings that nobody made.
UNSET = {
    "Prolog": "(null)",
    "Epilog": "(null)",
    "PrologFlags": "(null)",
    "PrologEpilogTimeout": "65534",
    "MessageTimeout": "10 sec",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
}
BOTH = {"Prolog": f"{OURS}/prolog", "Epilog": f"{OURS}/epilog"}
NEITHER = {"prolog": False, "epilog": False}
ALL = {"prolog": True, "epilog": True}
OLD, NEW = (22, 5, 8), (24, 5, 0)


def lines(runs: dict[str, bool], release: tuple[int, ...] = OLD, **options: str) -> tuple[str, ...]:
    return advise(read_site({**UNSET, **options}, release), OURS, runs).lines


def notes(runs: dict[str, bool], release: tuple[int, ...] = OLD, **options: str) -> str:
    return "\n".join(advise(read_site({**UNSET, **options}, release), OURS, runs).notes)


def test_a_bare_site_needs_four_lines() -> None:
    """Both hooks, at the start of each allocation, and an end for one that hangs."""
    expected = (
        f"Prolog={OURS}/prolog",
        f"Epilog={OURS}/epilog",
        "PrologFlags=Alloc",
        "PrologEpilogTimeout=8",
    )
    assert lines(NEITHER) == expected
    assert not notes(NEITHER)


def test_what_is_there_is_not_asked_for() -> None:
    """A site that has everything is told nothing."""
    there = {**BOTH, "PrologFlags": "Alloc", "PrologEpilogTimeout": "20"}
    assert (lines(ALL, **there), notes(ALL, **there)) == ((), "")


@pytest.mark.parametrize("flags", ["Alloc,Contain", "Alloc,Serial", "X11", "alloc", "RunInJob"])
def test_flags_that_bring_alloc_are_left_alone(flags: str) -> None:
    """Contain and X11 imply Alloc, and so do others."""
    assert not [line for line in lines(ALL, **BOTH, PrologFlags=flags) if "Flags" in line]


def test_flags_are_appended_to() -> None:
    """A second PrologFlags line would take the site's own flags away: ours repeats them."""
    assert "PrologFlags=Serial,Alloc" in lines(ALL, **BOTH, PrologFlags="Serial")
    assert "replaces" in notes(ALL, **BOTH, PrologFlags="Serial")


@pytest.mark.parametrize(("wait", "seconds"), [("10 sec", 8), ("60 sec", 8), ("5 sec", 3), ("2 sec", 1)])
def test_the_timeout_stays_below_messagetimeout(wait: str, seconds: int) -> None:
    """At MessageTimeout less 2 s a user would read that the Prolog hangs."""
    assert f"PrologEpilogTimeout={seconds}" in lines(ALL, **BOTH, MessageTimeout=wait)


@pytest.mark.parametrize("key", ["PrologEpilogTimeout", "PrologTimeout", "EpilogTimeout"])
def test_a_timeout_of_the_site_stays(key: str) -> None:
    """Whatever the site has set is the site's decision."""
    assert not [line for line in lines(ALL, **{**BOTH, key: "300"}) if "Timeout" in line]


def test_a_site_with_hooks_of_its_own_gets_no_timeout_line() -> None:
    """It would cut a longer hook of theirs short, which drains the node: only a note says it."""
    there = {"Prolog": "/site/prolog.sh"}
    assert not [line for line in lines(NEITHER, **there) if "Timeout" in line]
    assert "PrologEpilogTimeout=8" in notes(NEITHER, **there)


def test_beside_one_prolog_before_24_05() -> None:
    """Only the last line counts: a folder for both, made by commands, and one line that names it."""
    there = {"Prolog": "/site/prolog.sh"}
    assert lines(NEITHER, **there)[:2] == ("Prolog=/site/prolog.d/*", f"Epilog={OURS}/epilog")
    said = notes(NEITHER, **there)
    assert "exec /site/prolog.sh" in said
    assert f"{OURS}/prolog" in said
    assert f"{OURS}/epilog" not in said


def test_beside_a_pattern_before_24_05() -> None:
    """The folder is there: slurm.conf needs no line, and the file gets a name that matches."""
    there = {"Epilog": "/site/epilog.d/*.sh"}
    assert not [line for line in lines(NEITHER, **there) if line.startswith("Epilog=")]
    assert "mv /site/epilog.d/.zz-slurmkit.sh /site/epilog.d/zz-slurmkit.sh" in notes(NEITHER, **there)


def test_beside_others_from_24_05_on() -> None:
    """Every line counts, and Slurm writes them as Prolog[0] and so on: one more is all."""
    there = {"Prolog[0]": "/site/prolog.sh", "Prolog[1]": "/site/p.d/*", "Epilog[0]": f"{OURS}/epilog"}
    assert read_site({**UNSET, **there}, NEW).hooks["prolog"] == ("/site/prolog.sh", "/site/p.d/*")
    assert lines({"prolog": False, "epilog": True}, NEW, **there)[0] == f"Prolog={OURS}/prolog"
    assert "printf" not in notes({"prolog": False, "epilog": True}, NEW, **there)


def test_relative_hooks_stand_beside_slurm_conf() -> None:
    """From 23.11 on a path may be relative: to the folder of slurm.conf."""
    site = read_site({**UNSET, "Prolog": "slurmkit/prolog"}, NEW)
    assert site.hooks["prolog"] == (f"{OURS}/prolog",)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (f"{OURS}/*", True),
        ("/etc/slurm/*/*", True),
        (f"{OURS}/pro*", False),
        ("/etc/slurm/*", False),
        (f"{OURS}/prolog", False),
        (f"{OURS}/[pe]*", True),
    ],
)
def test_a_pattern_that_sweeps_our_folder(pattern: str, found: bool) -> None:
    """It would run files that are no hook, which drains every node; one that has the hook alone does not."""
    assert bool(swept(read_site({**UNSET, "Prolog": pattern}, OLD), OURS)) is found
