"""What slurm.conf lacks, decided on what ``scontrol show config`` says."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest

from slurmkit.hooks.advice import Advice, advise, read_site, swept
from slurmkit.hooks.beside import in_folder_of_both, in_folder_of_theirs
from slurmkit.hooks.running import Lack, Use

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


Runs = Mapping[str, "bool | None"]


def advice(runs: Runs, release: tuple[int, ...], options: dict[str, str]) -> Advice:
    site = read_site({**UNSET, **options}, release)
    named = {hook: tuple(path for path in site.hooks[hook] if path != str(OURS / hook)) for hook in runs}
    return advise(site, OURS, {hook: Use(runs[hook], "/site/prolog.sh:3", named[hook]) for hook in runs})


def lines(runs: Runs, release: tuple[int, ...] = OLD, **options: str) -> tuple[str, ...]:
    return advice(runs, release, options).lines


def notes(runs: Runs, release: tuple[int, ...] = OLD, **options: str) -> str:
    return "\n".join(advice(runs, release, options).notes)


def do(told: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """What an admin does: the commands, each indented, pasted into a shell."""
    commands = "\n".join(line for line in told.splitlines() if line.startswith("  "))
    argv = ["/bin/sh", "-c", commands]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


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


@pytest.mark.parametrize(
    ("timed", "lacks"),
    [
        ({"PrologEpilogTimeout": "300"}, []),
        ({"PrologTimeout": "300", "EpilogTimeout": "20"}, []),
        ({"PrologTimeout": "300"}, ["EpilogTimeout=8"]),
        ({"EpilogTimeout": "300"}, ["PrologTimeout=8"]),
        ({"PrologTimeout": "65534"}, ["PrologEpilogTimeout=8"]),
    ],
)
def test_each_hook_has_an_end(timed: dict[str, str], lacks: list[str]) -> None:
    """What the site has set is the site's decision; a timeout for one of them leaves the other without."""
    assert [line for line in lines(ALL, NEW, **{**BOTH, **timed}) if "Timeout" in line] == lacks
    theirs = {"Prolog": "/site/prolog.sh", "Epilog": "/site/epilog.sh", **timed}
    assert not [line for line in lines(ALL, NEW, **theirs) if "Timeout" in line]
    assert all(line in notes(ALL, NEW, **theirs) for line in lacks)


def test_a_site_with_hooks_of_its_own_gets_no_timeout_line() -> None:
    """It would cut a longer hook of theirs short, which drains the node: only a note says it."""
    there = {"Prolog": "/site/prolog.sh"}
    assert not [line for line in lines(NEITHER, **there) if "Timeout" in line]
    assert "PrologEpilogTimeout=8" in notes(NEITHER, **there)


def folder_of_both(site: Path, hook: str = "prolog") -> Path:
    return site.with_name(f"{site.name}.slurmkit-{hook}.d")


def test_beside_one_prolog_before_24_05(tmp_path: Path) -> None:
    """Only the last line counts: a folder for both, made by commands, and one line that names it."""
    site = tmp_path / "etc" / "prolog.sh"
    there = {"Prolog": str(site)}
    folder = folder_of_both(site)
    assert lines(NEITHER, **there)[:2] == (f"Prolog={folder}/*", f"Epilog={OURS}/epilog")
    said = notes(NEITHER, **there)
    assert f"{OURS}/epilog" not in said
    for _ in ("a node that has nothing", "a shared folder, from the next node"):
        done = do(said)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        texts = {path.name: path.read_text() for path in folder.iterdir()}
        assert texts == {
            "site": f"#!/bin/sh\nexec {site}\n",
            "zz-slurmkit-prolog": f"#!/bin/sh\n{OURS}/prolog\nexit 0\n",
        }
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o755}
    (folder / "site").write_text("#!/bin/sh\n: mine\n")
    assert do(said).returncode == 0
    assert ": mine" in (folder / "site").read_text()


def test_a_node_that_comes_later_is_told_the_same(tmp_path: Path) -> None:
    """Slurm.conf has forgotten the site's Prolog by then, and its pattern names it: both are made, in any release."""
    site = tmp_path / "prolog.sh"
    named = lines(NEITHER, Prolog=str(site))[0].partition("=")[2]
    for release in (OLD, NEW):
        told = advice({"prolog": False, "epilog": True}, release, {"Prolog": named})
        assert not [line for line in told.lines if line.startswith("Prolog=")]
        do("\n".join(told.notes))
        made = {path.name: path.read_text() for path in folder_of_both(site).iterdir()}
        assert sorted(made) == ["site", "zz-slurmkit-prolog"]
        assert made["site"] == f"#!/bin/sh\nexec {site}\n"
        shutil.rmtree(folder_of_both(site))


def test_a_folder_of_both_without_the_sites_hook_is_told(tmp_path: Path) -> None:
    """Ours runs, the site's does not: what is missing is printed; where nothing is, nothing."""
    named = str(folder_of_both(tmp_path / "prolog.sh") / "*")
    site = read_site({**UNSET, "Prolog": named}, OLD)
    for lacks in ((Lack("prolog.sh", told=False),), (Lack("site", told=True),), ()):
        uses = {"prolog": Use(True, "", (named,), lacks), "epilog": Use(True, "", ())}
        told = any(lack.told for lack in lacks)
        assert ("  mkdir" in "\n".join(advise(site, OURS, uses).notes)) is told


@pytest.mark.parametrize("name", ["$(touch x)", "a b", "it's", "100%s\\n"])
def test_what_is_printed_is_quoted(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a path has in it: pasted, it names that path and runs nothing."""
    monkeypatch.chdir(tmp_path)
    site, ours = tmp_path / name / "prolog.sh", tmp_path / name / "ours" / "prolog"
    for file, word in ((ours, "ours"), (site, "site")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\necho {word}\n")
        file.chmod(0o755)
    for commands, folder in (
        (in_folder_of_both(ours, str(site)), folder_of_both(site)),
        (in_folder_of_theirs(ours, f"{tmp_path}/{name}/d/*", for_both=False), site.parent / "d"),
    ):
        done = do(commands, PATH=os.environ["PATH"])
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        ran = [
            subprocess.run([file], capture_output=True, text=True, check=True).stdout
            for file in folder.iterdir()
        ]
        assert sorted(ran) == (["ours\n", "site\n"] if folder.name != "d" else ["ours\n"])
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_prolog_that_runs_a_folder_is_not_put_into_it(tmp_path: Path) -> None:
    """A site's prolog.sh that runs all of prolog.d would call itself without end; what lies there would run twice."""
    site = tmp_path / "prolog.sh"
    site.write_text(f"#!/bin/sh\nfor file in {tmp_path}/prolog.d/*; do $file; done\n")
    (tmp_path / "prolog.d").mkdir()
    (tmp_path / "prolog.d" / "README").touch()
    told = advice(NEITHER, OLD, {"Prolog": str(site)})
    do("\n".join(told.notes))
    assert [path.name for path in (tmp_path / "prolog.d").iterdir()] == ["README"]
    ran = [path for path in tmp_path.glob("*/*") if fnmatch(f"Prolog={path}", told.lines[0])]
    assert sorted(path.name for path in ran) == ["site", "zz-slurmkit-prolog"]


def test_a_folder_with_another_file_is_left_alone(tmp_path: Path) -> None:
    """Slurmd would run whatever is in it: it is shown, nothing is put beside it, and the note says what to do."""
    site = tmp_path / "prolog.sh"
    folder = folder_of_both(site)
    folder.mkdir()
    (folder / "README").touch()
    said = notes(NEITHER, Prolog=str(site))
    done = do(said)
    assert (done.returncode != 0, done.stdout) == (True, "README\n")
    assert [path.name for path in folder.iterdir()] == ["README"]
    assert f"If {folder} has other files, they are shown" in said


def test_beside_a_pattern_before_24_05() -> None:
    """The folder is there: slurm.conf needs no line, and the file gets a name that matches."""
    there = {"Epilog": "/site/epilog.d/*.sh"}
    assert not [line for line in lines(NEITHER, **there) if line.startswith("Epilog=")]
    said = notes(NEITHER, **there)
    assert "mv /site/epilog.d/.zz-slurmkit-epilog.sh /site/epilog.d/zz-slurmkit-epilog.sh" in said
    assert "CONTEXT" not in said


def test_a_pattern_whose_folder_is_not_here(tmp_path: Path) -> None:
    """On a node that came later: the commands make the folder, and leave a folder of the site as it is."""
    folder = tmp_path / "etc" / "prolog.d"
    said = notes(NEITHER, Prolog=f"{folder}/*.sh")
    for mode in (0o755, 0o700):
        assert do(said).returncode == 0
        assert [path.name for path in folder.iterdir()] == ["zz-slurmkit-prolog.sh"]
        assert folder.stat().st_mode & 0o777 == mode
        folder.chmod(0o700)


def test_a_pattern_of_folders_makes_none_of_that_name(tmp_path: Path) -> None:
    """Which of them it shall be, only the site can say."""
    do(notes(NEITHER, Prolog=f"{tmp_path}/*.d/*"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pattern", ["*", "*.sh", "[0-9]*", "[0-9][0-9]-*.sh", "??-*", "prolog.*", "[!.]*"])
def test_our_name_matches(tmp_path: Path, pattern: str) -> None:
    """What is pasted is run by slurmd, whatever the names of the site are like."""
    do(notes({"prolog": False, "epilog": True}, Prolog=f"{tmp_path}/{pattern}"))
    assert len(glob.glob(f"{tmp_path}/{pattern}")) == len(list(tmp_path.iterdir())) == 1  # noqa: PTH207 - as glob(3)


@pytest.mark.parametrize("name", ["*", "[0-9]*"])
def test_beside_one_pattern_for_both(tmp_path: Path, name: str) -> None:
    """Two files, and each of them passes over the hook that it is not for."""
    (tmp_path / "ours").mkdir()
    for hook in NEITHER:
        (tmp_path / "ours" / hook).write_text(f"#!/bin/sh\necho {hook}\n")
        (tmp_path / "ours" / hook).chmod(0o755)
    (tmp_path / "d").mkdir()
    pattern = f"{tmp_path}/d/{name}"
    said = notes(NEITHER, Prolog=pattern, Epilog=pattern)
    assert not [line for line in lines(NEITHER, Prolog=pattern, Epilog=pattern) if line.startswith("Prolog=")]
    assert do(said.replace(str(OURS), str(tmp_path / "ours"))).returncode == 0
    files = list((tmp_path / "d").iterdir())
    assert len(files) == 2
    for hook in NEITHER:
        env = {"SLURM_SCRIPT_CONTEXT": f"{hook}_slurmd"}
        done = [subprocess.run(file, env=env, capture_output=True, text=True, check=True) for file in files]
        assert sorted(one.stdout for one in done) == ["", f"{hook}\n"]


def test_what_is_only_mentioned_is_for_the_admin_to_say() -> None:
    """No line that would have it run twice; the note has the line, and what it rests on."""
    assert not [line for line in lines({"prolog": None, "epilog": True}) if line.startswith("Prolog=")]
    said = notes({"prolog": None, "epilog": True})
    assert "/site/prolog.sh:3" in said
    assert f"Prolog={OURS}/prolog" in said


@pytest.mark.parametrize(("user", "uid"), [("root(0)", 0), ("slurm(64030)", 64030), ("(null)", 0)])
def test_who_runs_the_hooks(user: str, uid: int) -> None:
    """SlurmdUser as Slurm writes it."""
    assert read_site({**UNSET, "SlurmdUser": user}, OLD).slurmd_uid == uid


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


def test_a_pattern_over_a_link_sweeps_too(tmp_path: Path) -> None:
    """Whichever of the two is spelled over a link: it is one folder."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for pattern, ours in (("real", "link"), ("link", "real"), ("link", "link")):
        site = read_site({**UNSET, "Prolog": f"{tmp_path}/{pattern}/ours/*"}, OLD)
        assert swept(site, tmp_path / ours / "ours")
    assert not swept(site, tmp_path / "elsewhere")
