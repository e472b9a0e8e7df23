"""The run folder."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurmkit.errors import ConfigError, RunNotFoundError, SlurmkitError
from slurmkit.launch.ledger import (
    Attempt,
    Run,
    create_run,
    find_point,
    find_run,
    new_run_path,
    write_manifest,
)


def make(runs: Path, name: str = "exp", points: list[list[str]] | None = None) -> Run:
    path = new_run_path(runs, name)
    create_run(path)
    write_manifest(path, {"version": 1, "name": name}, "#!/bin/bash\n", points)
    return Run(path)


def test_a_run_folder_is_private_and_whole(tmp_path: Path) -> None:
    """Only its owner reads a run folder, and everything in it comes back as it was written."""
    run = make(tmp_path / "runs", points=[["a=1"], ["a=`id`", "b=x\ny"]])
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert run.manifest["name"] == "exp"
    assert run.points() == [
        {"index": 0, "overrides": ["a=1"]},
        {"index": 1, "overrides": ["a=`id`", "b=x\ny"]},
    ]
    attempt = Attempt("lab", "7", 1.5, (0, 1), ({"option": "--nodes", "asked": "2", "got": "1"},))
    run.add_attempt(attempt)
    assert run.attempts() == [attempt]


@pytest.mark.parametrize("name", ["a/../../b", "..", ".hidden", "a b\tc", "x" * 300, "ü→"])
def test_odd_names_stay_inside_the_runs(tmp_path: Path, name: str) -> None:
    """A name with slashes, dots or blanks makes one visible folder below runs, and nothing beside it."""
    run = make(tmp_path / "runs", name)
    assert run.path.parent == tmp_path / "runs"
    assert not run.path.name.startswith(".")


def test_two_login_nodes_never_overwrite_each_other(tmp_path: Path) -> None:
    """Submissions recorded at the same moment each get a number of their own, and none is lost."""
    run = make(tmp_path / "runs")
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda index: Run(run.path).add_attempt(Attempt("lab", str(index), 0.0, None)), range(40)
            )
        )
    assert sorted(int(attempt.job_id) for attempt in run.attempts()) == list(range(40))
    assert len(list((run.path / "attempts").iterdir())) == 40, "nothing half-written is left"


def test_the_newest_life_of_a_point_counts(tmp_path: Path) -> None:
    """A point that failed and was run again has the newer exit, whichever node wrote it; torn lines are ignored."""
    run = make(tmp_path / "runs")
    (run.path / "exits" / "n2.jsonl").write_text(
        '{"job": "7", "task": 0, "restart": 0, "exit": 1, "time": 10}\n{"job": "7", "ta'
    )
    (run.path / "exits" / "n1.jsonl").write_text(
        '{"job": "7", "task": 0, "restart": 1, "exit": 0, "time": 20}\n'
    )
    assert run.exits()[0]["exit"] == 0


@pytest.mark.parametrize("spoil", ["missing", "file"])
def test_a_missing_or_odd_shared_folder_is_named(tmp_path: Path, spoil: str) -> None:
    """Where no run folder can be made, the error says where and what to set, and nothing is left behind."""
    if spoil == "file":
        (tmp_path / "runs").write_text("")
    runs = tmp_path / "runs" if spoil == "file" else tmp_path / "gone" / "runs"
    with pytest.raises(ConfigError, match="runs_dir") as caught:
        create_run(new_run_path(runs, "exp"))
    assert "runs_dir=" in caught.value.hint
    assert not (tmp_path / "gone").exists()


def by_hand(runs: Path, name: str) -> Path:
    """A folder as a script that was submitted by hand makes it."""
    for part in ("points/0/0", "exits"):
        (runs / name / part).mkdir(parents=True)
    os.utime(runs / name / "points", (2, 2))
    return runs / name


def test_runs_are_found_by_every_name(tmp_path: Path) -> None:
    """A folder, a run id, a job id, an array task's id and ``last`` all name a run; so of one submitted by hand."""
    runs = tmp_path / "runs"
    sweep, single = make(runs, "sweep"), make(runs, "single")
    hand = Run(by_hand(runs, "single-43"))
    for age, run in enumerate((sweep, single), 3):
        os.utime(run.path / "run.json", (age, age))
    sweep.add_attempt(Attempt("lab", "41", 0.0, (5, 6, 7)))
    single.add_attempt(Attempt("lab", "42", 0.0, None))
    for word, run, point in [
        (str(sweep.path), sweep, None),
        (sweep.id, sweep, None),
        ("41", sweep, None),
        ("41_2", sweep, 7),
        ("42", single, None),
        ("last", single, None),
        (str(hand.path), hand, None),
        ("single-43", hand, None),
        ("43", hand, None),
        ("43_2", hand, 2),
    ]:
        found, named = find_point(word, runs)
        assert (found.path, named) == (run.path, point), word
    os.utime(hand.path / "points", (9, 9))
    assert find_run("last", runs).path == hand.path


@pytest.mark.parametrize(("word", "said"), [("41_3", "tasks 0 to 2"), ("42_0", "no array")])
def test_a_task_that_is_not_there_is_named(tmp_path: Path, word: str, said: str) -> None:
    """``12_9`` of an array of three, and ``12_0`` of a job that is no array, are no points."""
    make(tmp_path / "runs").add_attempt(Attempt("lab", "41", 0.0, (0, 1, 2)))
    make(tmp_path / "runs").add_attempt(Attempt("lab", "42", 0.0, None))
    with pytest.raises(RunNotFoundError, match=said):
        find_point(word, tmp_path / "runs")


@pytest.mark.parametrize("name", ["exp-20261130-150000-1234", "exp", "12", "exp-12a"])
def test_what_is_no_run_is_not_taken_for_one(tmp_path: Path, name: str) -> None:
    """A submission that was killed while it made its folder, though that ends in digits, and other folders."""
    with pytest.raises(RunNotFoundError):
        Run(by_hand(tmp_path, name))
    with pytest.raises(RunNotFoundError):
        find_run("last", tmp_path)


def test_the_log_of_a_run_by_hand_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies in the submission folder: above the folder of runs, or here where that is elsewhere."""
    run = Run(by_hand(tmp_path / "a" / "runs", "exp-12"))
    assert run.log(0) == run.point_dir(0) / "log"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for folder in (tmp_path / "here", tmp_path / "a"):
        (folder / "exp-12.log").touch()
        assert run.log(0) == folder / "exp-12.log"


@pytest.mark.parametrize("word", ["nope", "99", "last"])
def test_an_unknown_run_lists_those_that_there_are(tmp_path: Path, word: str) -> None:
    """A run that does not exist is said with the newest runs to choose from."""
    (tmp_path / "runs").mkdir()
    names = "none" if word == "last" else make(tmp_path / "runs").id
    with pytest.raises(RunNotFoundError, match=names):
        find_run(word, tmp_path / "runs")


def test_runs_of_others_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of runs that people share, those that we may not look into hide none of ours."""
    ours, theirs = make(tmp_path / "runs", "ours"), make(tmp_path / "runs", "theirs")
    theirs_only = theirs.path / "run.json"
    real = Path.is_file

    def is_file(path: Path) -> bool:  # root may look everywhere, so no mode of a file would do
        if path == theirs_only:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    assert find_run("last", tmp_path / "runs").path == ours.path
    with pytest.raises(RunNotFoundError, match="you may read"):
        find_run(str(theirs.path), tmp_path / "runs")


@pytest.mark.parametrize("word", ["x" * 300, "a\x00b", "12_x", "²", "99999999999999999999_1"])
def test_any_word_may_be_typed(tmp_path: Path, word: str) -> None:
    """No word is more than no run."""
    make(tmp_path / "runs").add_attempt(Attempt("lab", "41", 0.0, (0,)))
    with pytest.raises(RunNotFoundError):
        find_run(word, tmp_path / "runs")


@pytest.mark.parametrize("text", ["", "{", '{"cluster": "lab"}', "[]"])
def test_a_broken_record_is_named(tmp_path: Path, text: str) -> None:
    """A submission's record that is no record is an error with its path, and no traceback."""
    run = make(tmp_path / "runs")
    (run.path / "attempts").mkdir()
    (run.path / "attempts" / "0001.json").write_text(text)
    with pytest.raises(SlurmkitError, match=r"0001\.json"):
        run.attempts()


def test_runs_are_no_part_of_the_project_around_them(tmp_path: Path) -> None:
    """A folder of runs that we make is ignored by git; one that was there is left as it is."""
    make(tmp_path / "runs")
    assert (tmp_path / "runs" / ".gitignore").read_text() == "*\n"
    (tmp_path / "mine").mkdir()
    make(tmp_path / "mine")
    assert not (tmp_path / "mine" / ".gitignore").exists()
