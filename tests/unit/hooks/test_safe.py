"""Where hooks and records may be: never where another could change what root runs, or where it writes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from slurmkit.errors import SlurmkitError, UsageError
from slurmkit.hooks import safe, trial
from slurmkit.hooks.install import install

#: Of nobody here.
SOMEBODY = 64999


@pytest.mark.parametrize(
    "path", ["/opt/with blank", "/opt/star*", "/opt/quo'te", '/opt/"', "/opt/#x", "/opt/ü"]
)
def test_a_path_that_slurm_conf_cannot_hold(path: str, state: str) -> None:
    """A blank, a quote or a pattern's character would name other files than these."""
    with pytest.raises(UsageError, match=r"slurm\.conf cannot hold"):
        install(Path(path), state, site=None)


def test_a_link_on_the_way_is_named(tmp_path: Path, state: str) -> None:
    """Whoever moves a link moves what root runs: the real place is what is to be typed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UsageError, match="symbolic link") as caught:
        install(tmp_path / "link" / "hooks", state, site=None)
    assert caught.value.hint.startswith("for --dir, name the place itself")
    assert caught.value.hint.endswith(f" {tmp_path}/real/hooks")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
@pytest.mark.parametrize("which", ["--dir", "--state-dir"])
def test_a_folder_that_others_may_write(tmp_path: Path, mode: int, which: str) -> None:
    """Root would run what anybody puts there, or write where anybody's link leads."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    good, bad = tmp_path / "good", tmp_path / "open"
    folder, state = (bad, good) if which == "--dir" else (good, bad)
    harm = {"--dir": "replace what slurmd runs", "--state-dir": "lead elsewhere what slurmd writes"}[which]
    with pytest.raises(SlurmkitError, match=f"{which}: .*open .*{mode:04o}.*{harm}") as caught:
        install(folder, str(state), site=None)
    assert caught.value.hint == f"chmod go-w {bad}, or name another place with {which}"
    assert not good.exists()


def test_a_parent_that_others_may_write(tmp_path: Path, state: str) -> None:
    """They could put another folder in its place; in a sticky one, such as /tmp, they cannot."""
    above = tmp_path / "above"
    above.mkdir()
    (above / "own").mkdir()
    above.chmod(0o777)
    with pytest.raises(SlurmkitError, match="above"):
        install(above / "own", state, site=None)
    above.chmod(0o1777)
    assert install(above / "own", state, site=None).changed


@pytest.mark.parametrize("spelled", ["/{path}", "//{path}/.", "{path}/../state"])
def test_a_path_that_is_spelled_oddly_is_no_link(place: Path, state: str, spelled: str) -> None:
    """Two slashes at its beginning, a dot, or a folder up: it is taken as it is meant."""
    Path(state).mkdir()
    assert install(place, spelled.format(path=state), site=None).changed


def test_a_place_that_is_a_file(tmp_path: Path, state: str) -> None:
    """It is named, and nothing is made."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file is no folder"):
        install(tmp_path / "file" / "x", state, site=None)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("linked", ["n1", "n1/jobs.jsonl"])
def test_a_link_among_the_records_is_never_given_away(tmp_path: Path, linked: str) -> None:
    """SlurmdUser may put one there, to /etc, and root would type a chown for him: it is told as what it is."""
    elsewhere = tmp_path / "etc"
    (elsewhere / "jobs.jsonl").mkdir(parents=True)  # also what lies below it is not ours to give
    place = tmp_path / "state" / linked
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere)
    found = [
        (what, remedy)
        for what, remedy in safe.kept_out(tmp_path, tmp_path / "state", SOMEBODY)
        if linked in what
    ]
    assert found == [(f"{place} is a symbolic link, and the records would go where it leads", f"rm {place}")]


@pytest.mark.parametrize("name", ["$(id) x", "a b", "it's", "x;id"])
def test_a_remedy_names_one_place_to_the_shell(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root pastes it: a path is one word of it, and nothing in it is run."""
    state, ours = tmp_path / name / "state", tmp_path / name / "ours"
    (state / "n1").mkdir(parents=True)
    (state / "n1" / "jobs.jsonl").touch()
    (state / "n2").symlink_to("/etc")
    ours.mkdir(mode=0o700)
    told = [remedy for _, remedy in safe.kept_out(ours, state, SOMEBODY)]
    state.chmod(0o777)
    told += [fault.remedy for fault in safe.faults(state, safe.WRITTEN) if not fault.named]
    monkeypatch.setattr(Path, "lstat", lambda _: os.stat_result((0o40755, 0, 0, 1, SOMEBODY, 0, 0, 0, 0, 0)))
    told += [fault.remedy for fault in safe.faults(ours, safe.RUN) if not fault.named]
    verbs = {"rm": 0, "chmod": 1, "chown": 2}
    for remedy in told:
        verb, *more = shlex.split(remedy)
        assert len(more) == verbs[verb] + 1, remedy
        assert os.path.lexists(more[-1]), remedy
        assert verb != "chown" or more[0] == "-h"
    assert {remedy.partition(" ")[0] for remedy in told} == set(verbs)


def test_a_link_is_named_with_its_place_for_the_shell(tmp_path: Path) -> None:
    """The place that it leads to is what has to be named: as one word."""
    (tmp_path / "$(id) x").mkdir()
    (tmp_path / "link").symlink_to("$(id) x")
    (fault,) = [fault for fault in safe.faults(tmp_path / "link", safe.RUN) if fault.named]
    assert shlex.split(fault.named) == [f"{tmp_path}/$(id) x"]
    assert fault.remedy.endswith(fault.named)


def test_the_trial_of_a_hook_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What shows why one failed can be pasted wherever slurmkit is installed."""
    monkeypatch.setattr(trial, "data_dir", lambda _: tmp_path / "$(id) x")
    hook = tmp_path / "prolog"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(SlurmkitError) as caught:
        trial.try_hooks(tmp_path, tmp_path)
    assert shlex.split(caught.value.hint)[-1] == f"{tmp_path}/$(id) x/prolog"
