"""The run folder."""

from __future__ import annotations

import json
import shlex
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import ConfigError, RunNotFoundError, SlurmkitError
from slurmkit.launch.ledger import (
    Attempt,
    Run,
    create_run,
    is_run,
    new_run_path,
)
from slurmkit.launch.lives import Life, newest_lives

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


ATTEMPT = '{"cluster": "lab", "job_id": "7", "submitted_at": 0, "points": null, "differences": []}'


def test_a_run_folder_is_private_and_whole(tmp_path: Path, make: Callable[..., Run]) -> None:
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
def test_odd_names_stay_inside_the_runs(tmp_path: Path, name: str, make: Callable[..., Run]) -> None:
    """A name with slashes, dots or blanks makes one visible folder below runs, and nothing beside it."""
    run = make(tmp_path / "runs", name)
    assert run.path.parent == tmp_path / "runs"
    assert not run.path.name.startswith(".")


def test_two_login_nodes_never_overwrite_each_other(tmp_path: Path, make: Callable[..., Run]) -> None:
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


def test_the_newest_life_of_a_point_counts(tmp_path: Path, make: Callable[..., Run]) -> None:
    """A point that failed and was run again has the newer exit, whichever node wrote it; torn lines are ignored.

    Also where the node of the older life was given up, comes back, and ends that life last.
    """
    run = make(tmp_path / "runs")
    line = '{"cluster": "lab", "job": "7", "task": 0, "restart": %d, "time": %d%s}\n'
    old = line % (0, 25, "") + line % (0, 30, ', "exit": 1, "term": 1') + '{"job": "7", "ta'
    new = line % (1, 20, ', "exit": 0, "term": 0') + line % (1, 15, "")
    for first, second in ((old, new), (new, old)):
        (run.path / "lives" / "n1.jsonl").write_text(first)
        (run.path / "lives" / "n2.jsonl").write_text(second)
        lives = run.lives()
        assert len(lives) == 2
        assert newest_lives(lives)["7", 0] == Life("lab", "7", 0, 1, 15, 0)
        assert Life("lab", "7", 0, 0, 25, 1, terminated=True) in lives


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


@pytest.mark.parametrize("name", ["exp-20261130-150000-1234", "exp", "12", "exp-12a"])
def test_what_is_no_run_is_not_taken_for_one(tmp_path: Path, name: str, by_hand: Callable[..., Path]) -> None:
    """A submission that was killed while it made its folder, though that ends in digits, and other folders."""
    with pytest.raises(RunNotFoundError):
        Run(by_hand(tmp_path, name))
    assert not is_run(tmp_path / name)


def test_the_log_of_a_run_by_hand_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_hand: Callable[..., Path]
) -> None:
    """It lies in the submission folder: above the folder of runs, or here where that is elsewhere."""
    run = Run(by_hand(tmp_path / "a" / "runs", "exp-12"))
    assert run.log(0) == run.point_dir(0) / "log"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for folder in (tmp_path / "here", tmp_path / "a"):
        (folder / "exp-12.log").touch()
        assert run.log(0) == folder / "exp-12.log"
    assert run.log(7) == run.point_dir(7) / "log", "no other point has printed that"


@pytest.mark.parametrize(
    "text",
    [
        "", "{", '{"cluster": "lab"}', "[]", ATTEMPT.replace('"7"', "7"), ATTEMPT.replace('"7"', '"x"'), ATTEMPT.replace('"7"', '"7_1"'), ATTEMPT.replace("null", '"01"'),
        ATTEMPT.replace("null", "[true]"),
    ],
)  # fmt: skip
def test_a_broken_record_is_named(tmp_path: Path, text: str, make: Callable[..., Run]) -> None:
    """A submission's record that is no record is an error with its path, and no traceback."""
    run = make(tmp_path / "runs")
    (run.path / "attempts").mkdir()
    (run.path / "attempts" / "0001.json").write_text(text)
    with pytest.raises(SlurmkitError, match=r"0001\.json"):
        run.attempts()


def test_runs_are_no_part_of_the_project_around_them(tmp_path: Path, make: Callable[..., Run]) -> None:
    """A folder of runs that we make is ignored by git; one that was there is left as it is."""
    make(tmp_path / "runs")
    assert (tmp_path / "runs" / ".gitignore").read_text() == "*\n"
    (tmp_path / "mine").mkdir()
    make(tmp_path / "mine")
    assert not (tmp_path / "mine" / ".gitignore").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "null"])
def test_a_broken_manifest_is_named(tmp_path: Path, text: str, make: Callable[..., Run]) -> None:
    """A ``run.json`` that holds no mapping is an error with its path, and no traceback."""
    run = make(tmp_path / "runs")
    (run.path / "run.json").write_text(text)
    with pytest.raises(SlurmkitError, match=r"run\.json cannot be read"):
        _ = run.manifest


EXIT = {"cluster": "lab", "job": "7", "task": 0, "restart": 0, "exit": 1, "time": 10}
ENDED = {
    "point": 0,
    "job": "7",
    "state": "FAILED",
    "reason": "",
    "nodes": "",
    "restarts": 0,
    "source": "squeue",
}
JUNK = ({}, [], {"job": None}, {"job": "x"}, {"job": "7_x"}, {"restarts": "no"}, {"restart": []}, {"task": "0"}, {"state": ["a"]}, {"cluster": 1}, {"exit": "0"}, {"time": None})  # fmt: skip


@pytest.mark.parametrize("good", [EXIT, ENDED], ids=["lives", "ended"])
def test_lines_that_are_no_record_are_passed_over(
    tmp_path: Path, good: dict[str, object], make: Callable[..., Run]
) -> None:
    """Whatever stands between two records of how a job ended, these two are read, and nothing else is."""
    run = make(tmp_path / "runs")
    junk = [
        {**good, **item} if isinstance(item, dict) and item.keys() <= good.keys() and item else item
        for item in JUNK
    ]
    lines = [good, *junk, {**good, "job": "8", "task": 1}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    for name in ("lives/n1.jsonl", "ended.jsonl"):
        (run.path / name).write_text(text)
    read = {status.job: status.state for status in run.ended().values()}
    assert read == ({"7": "FAILED", "8": "FAILED"} if good is ENDED else {})
    assert {(life.job, life.point) for life in run.lives()} == (
        set() if good is ENDED else {("7", 0), ("8", 1)}
    )


def test_a_run_is_called_by_what_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Run]
) -> None:
    """What a person is told to type is the id where verbs look by themselves, and else the path, as a shell takes it."""
    here, there = make(tmp_path / "runs"), make(tmp_path / "my runs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURMKIT_RUNS_DIR", raising=False)
    assert (here.word, there.word) == (here.id, f"'{there.path}'")
    monkeypatch.setenv("SLURMKIT_RUNS_DIR", str(there.path.parent))
    assert (here.word, there.word) == (str(here.path), there.id)


def test_what_submits_points_again_can_be_typed(tmp_path: Path, make: Callable[..., Run]) -> None:
    """From anywhere: the script of the run, its points as sbatch takes them, and the folder that it was submitted from."""
    run = make(tmp_path / "my runs", points=[[]] * 12)
    manifest = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**manifest, "cwd": "/home/me/it's"}))
    script = str(run.path / "job.sbatch")
    assert shlex.split(run.again([0, 1, 2, 4, 9])) == [
        "sbatch",
        "--chdir=/home/me/it's",
        "--array=0-2,4,9",
        script,
    ]
    assert "--array" not in make(tmp_path / "runs").again([0])
    (run.path / "job.sbatch").unlink()
    assert run.again([0]) == ""
