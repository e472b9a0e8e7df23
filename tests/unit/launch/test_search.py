"""Which run, and which point of it, a person means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from slurmkit.errors import RunNotFoundError, SlurmkitError, SlurmRefusedError, SlurmUnavailableError
from slurmkit.launch.ledger import Attempt, Run
from slurmkit.launch.search import find_point

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmkit.cluster.client import SlurmClient


class Slurm:
    """A squeue that knows some jobs, by every id: id → array, task, script. Any other question fails the test."""

    def __init__(self, jobs: Mapping[str, tuple[str, str, Path]] | None = None) -> None:
        self._jobs = jobs or {}

    def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        (job_id,) = job_ids
        rest = {"State": "RUNNING", "RestartCnt": "0", "Reason": "None", "NodeList": ""}
        known = [self._jobs[job_id]] if job_id in self._jobs else []
        return [
            {"ArrayJobID": array, "ArrayTaskID": task, "Command": str(script), **rest}
            for array, task, script in known
        ]


def find(word: str, runs: Path, slurm: object = None) -> tuple[Run, int | None]:
    return find_point(word, runs, cast("SlurmClient", slurm or Slurm()))


def test_runs_are_found_by_every_name(
    tmp_path: Path, make: Callable[..., Run], by_hand: Callable[..., Path]
) -> None:
    """A folder, a run id, a job id, an array task's id and ``last`` all name a run; so of one submitted by hand."""
    runs = tmp_path / "runs"
    sweep, single = make(runs, "sweep"), make(runs, "single")
    hand = Run(by_hand(runs, "single-43"))
    swept = Run(by_hand(runs, "swept-44", [2]))
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
        ("44_2", swept, 2),
        ("44_9", swept, 9),
    ]:
        found, named = find(word, runs)
        assert (found.path, named) == (run.path, point), word
    os.utime(hand.path / "points", (9, 9))
    assert find("last", runs)[0].path == hand.path


@pytest.mark.parametrize(
    ("word", "said"), [("41_3", "tasks 0 to 2"), ("42_0", "no array"), ("43_0", "no array")]
)
def test_a_task_that_is_not_there_is_named(
    tmp_path: Path, word: str, said: str, make: Callable[..., Run], by_hand: Callable[..., Path]
) -> None:
    """``12_9`` of an array of three, and ``12_0`` of a job that is no array, by hand or not, are no points."""
    make(tmp_path / "runs").add_attempt(Attempt("lab", "41", 0.0, (0, 1, 2)))
    make(tmp_path / "runs").add_attempt(Attempt("lab", "42", 0.0, None))
    by_hand(tmp_path / "runs", "exp-43")
    with pytest.raises(RunNotFoundError, match=said):
        find(word, tmp_path / "runs")


@pytest.mark.parametrize("word", ["nope", "99", "last"])
def test_an_unknown_run_lists_those_that_there_are(
    tmp_path: Path, word: str, make: Callable[..., Run]
) -> None:
    """A run that does not exist is said with the newest runs to choose from."""
    (tmp_path / "runs").mkdir()
    names = "none" if word == "last" else make(tmp_path / "runs").id
    with pytest.raises(RunNotFoundError, match=names):
        find(word, tmp_path / "runs")


def test_runs_of_others_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Run]
) -> None:
    """In a folder of runs that people share, those that we may not look into hide none of ours."""
    ours, theirs = make(tmp_path / "runs", "ours"), make(tmp_path / "runs", "theirs")
    theirs_only = theirs.path / "run.json"
    real = Path.is_file

    def is_file(path: Path) -> bool:  # root may look everywhere, so no mode of a file would do
        if path == theirs_only:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    assert find("last", tmp_path / "runs")[0].path == ours.path
    with pytest.raises(RunNotFoundError, match="you may read"):
        find(str(theirs.path), tmp_path / "runs")


@pytest.mark.parametrize(
    "word", ["x" * 300, "a\x00b", "12_x", "²", "9" * 20 + "_1", "9" * 5000, "41_" + "9" * 5000], ids=range(7)
)
def test_any_word_may_be_typed(tmp_path: Path, word: str, make: Callable[..., Run]) -> None:
    """No word is more than no run."""
    make(tmp_path / "runs").add_attempt(Attempt("lab", "41", 0.0, (0,)))
    with pytest.raises(RunNotFoundError):
        find(word, tmp_path / "runs")


@pytest.mark.parametrize("word", ["8", "8_1", "9"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_job_that_no_run_has_recorded_is_found(
    tmp_path: Path, word: str, begun: bool, make: Callable[..., Run]
) -> None:
    """A submission that was killed before its record, or by hand: Slurm knows its run, or the run's folder what began there."""
    run = make(tmp_path / "runs", points=[["a=1"], ["a=2"]])
    make(tmp_path / "runs", "newer")
    script = Path("/mnt") / run.id / "job.sbatch"
    slurm = Slurm({"8": ("8", "1", script), "9": ("8", "0", script)})
    if begun:
        line = '{"cluster": "lab", "job": "8", "task": 1, "restart": 0, "time": 1}'
        (run.path / "lives" / "n1.jsonl").write_text(line + "\n")
        slurm = Slurm({"9": ("8", "0", Path("/forgotten"))})
    found, point = find(word, tmp_path / "runs", slurm)
    assert (found.path, point) == (run.path, {"8": None, "8_1": 1, "9": 0}[word])
    assert run.attempts() == [], "to look writes no record"


def test_the_id_that_a_task_sees_names_its_point(
    tmp_path: Path, make: Callable[..., Run], by_hand: Callable[..., Path]
) -> None:
    """``$SLURM_JOB_ID`` in a task of an array is an id of its own: it is that point, of a run by hand too."""
    run = make(tmp_path / "runs", points=[["a=1"], ["a=2"]])
    run.add_attempt(Attempt("lab", "20", 0.0, (4, 5)))
    hand = by_hand(tmp_path / "runs", "exp-30", [0, 1])
    slurm = Slurm({"21": ("20", "1", run.path / "job.sbatch"), "31": ("30", "0", Path("/home/me/my.sbatch"))})
    assert find("21", tmp_path / "runs", slurm)[1] == 5
    found, point = find("31", tmp_path / "runs", slurm)
    assert (found.path, point) == (hand, 0)
    with pytest.raises(RunNotFoundError):
        find("21_0", tmp_path / "runs", slurm)


@pytest.mark.parametrize("error", [SlurmUnavailableError("away"), SlurmRefusedError("no")])
def test_a_slurm_that_does_not_say_is_no_other_error(
    tmp_path: Path, error: SlurmkitError, make: Callable[..., Run]
) -> None:
    """Without Slurm, an id that no run has recorded is an unknown run."""

    class Away:
        def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
            raise error

    make(tmp_path / "runs")
    with pytest.raises(RunNotFoundError, match="no run '9'"):
        find("9", tmp_path / "runs", Away())


def test_a_broken_record_hides_no_other_run(tmp_path: Path, make: Callable[..., Run]) -> None:
    """A record that cannot be read stops only the search for its own run; whoever finds nothing hears of it."""
    healthy, broken = make(tmp_path / "runs", "healthy"), make(tmp_path / "runs", "broken")
    healthy.add_attempt(Attempt("lab", "3", 0.0, None))
    broken.add_attempt(Attempt("lab", "4", 0.0, None))
    os.utime(healthy.path / "run.json", (3, 3))
    (broken.path / "attempts" / "0001.json").write_text("{")
    assert find("3", tmp_path / "runs")[0].path == healthy.path
    lost = Slurm({"5": ("5", "N/A", healthy.path / "job.sbatch")})
    (healthy.path / "attempts" / "0001.json").unlink()
    assert find("5", tmp_path / "runs", lost)[0].path == healthy.path
    with pytest.raises(RunNotFoundError) as caught:
        find("4", tmp_path / "runs")
    assert "0001.json" in caught.value.detail
    known = Slurm({"4": ("4", "N/A", broken.path / "job.sbatch")})
    assert find("4", tmp_path / "runs", known)[0].path == broken.path, "the verb says what is wrong with it"
