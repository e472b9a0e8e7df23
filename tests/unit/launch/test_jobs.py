"""Which job belongs to a run that a person submitted by hand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from slurmkit.launch.jobs import jobs_of
from slurmkit.launch.ledger import PointStatus, Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.states import TaskState

ID = '-"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"'


class Slurm:
    """What squeue and sacct know of job 12, and the script that Slurm keeps of it."""

    def __init__(
        self,
        kept: str | None,
        queue: Sequence[str] = (),
        history: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        self._kept, self._queue, self._history = kept, queue, history

    def script(self, job_id: str) -> str | None:
        assert job_id == "12"
        return self._kept

    def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        assert job_ids == ["12"]
        rest = {"RestartCnt": "0", "Reason": "None", "NodeList": "", "Command": "/home/me/my.sbatch"}
        return [{"ArrayJobID": "12", "ArrayTaskID": task, "State": "RUNNING", **rest} for task in self._queue]

    def history(self, job_ids: Sequence[str]) -> list[Mapping[str, str]] | None:
        assert job_ids == ["12"]
        return self._history and [
            {"JobID": job, "State": "TIMEOUT", "NodeList": "n1", "JobName": name}
            for job, name in self._history
        ]


def by_hand(folder: Path, points: Sequence[int] = ()) -> Run:
    """A folder as the script of job 12 makes it; the tasks of an array keep their log there."""
    (folder / "exp-12" / "exits").mkdir(parents=True)
    (folder / "exp-12" / "points" / "0" / "0").mkdir(parents=True)
    for point in points:
        place = folder / "exp-12" / "points" / str(point // 1000) / str(point)
        place.mkdir(parents=True, exist_ok=True)
        (place / "log").touch()
    return Run(folder / "exp-12")


def script(folder: Path) -> str:
    """A script whose run folder lies in a folder."""
    return f"#!/bin/bash\nexport SLURMKIT_RUN_DIR={shlex.quote(str(folder / 'exp'))}{ID}\n"


def known(run: Run, slurm: Slurm) -> tuple[dict[int, str], dict[str, TaskState]]:
    return jobs_of(run, cast("SlurmClient", slurm))


@pytest.mark.parametrize("name", ["runs", "my runs", "it's", "$(id)", "a\\b", 'q"q'])
def test_the_script_says_whose_job_it_is(tmp_path: Path, name: str) -> None:
    """A job whose script names the folder is the run's, however the folder is called and wherever the script lay."""
    run = by_hand(tmp_path / name)
    jobs, states = known(run, Slurm(script(tmp_path / name), ["N/A"]))
    assert jobs == {0: "12"}
    assert states["12"].state == "RUNNING"


@pytest.mark.parametrize(
    ("line", "is_ours"),
    [
        ('"$SCRATCH"/exp-$SLURM_JOB_ID  # on the fast disk', True),
        ("${SCRATCH}/exp-${SLURM_JOB_ID}", True),
        ("$SCRATCH/other-$SLURM_JOB_ID", False),
        ('"$SCRATCH/exp-$SLURM_JOB_ID', False),
        ("", False),
    ],
)
def test_a_script_may_be_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, is_ours: bool
) -> None:
    """A person who keeps the script may name the folder in their own words."""
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    text = f"#!/bin/bash\nexport SLURMKIT_RUN_DIR={line}\n"
    assert bool(known(by_hand(tmp_path), Slurm(text, ["N/A"]))[1]) is is_ours


def test_the_same_folder_by_another_path_is_the_same(tmp_path: Path) -> None:
    """A home folder that is mounted, or linked, under two names."""
    run = by_hand(tmp_path / "runs")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert known(run, Slurm(script(tmp_path / "link"), ["N/A"]))[1]


@pytest.mark.parametrize(
    "kept",
    [script(Path("/elsewhere")), "#!/bin/bash\necho hi\n", None],
    ids=["another run's", "no script of ours", "another person's"],
)
def test_an_id_that_was_issued_again_is_not_ours(tmp_path: Path, kept: str | None) -> None:
    """A job of the same id whose script does not name the folder is neither shown nor counted as the run's."""
    jobs, states = known(by_hand(tmp_path), Slurm(kept, ["0", "1", "2"]))
    assert (jobs, states) == ({0: "12"}, {})


def test_every_task_of_a_sweep_is_there(tmp_path: Path) -> None:
    """Those that have begun, that were seen to end before they began, and that wait."""
    run = by_hand(tmp_path, [0, 1000])
    run.keep_ended({"12_7": PointStatus(7, "12_7", "CANCELLED", "", "", 0, "squeue")})
    jobs, states = known(run, Slurm(script(tmp_path), ["1000", "2000"]))
    assert jobs == {0: "12_0", 7: "12_7", 1000: "12_1000", 2000: "12_2000"}
    assert set(states) == {"12_1000", "12_2000"}


@pytest.mark.parametrize(("name", "told"), [("exp", True), ("allocation", True), ("other", False)])
def test_the_accounting_is_believed_of_a_job_of_that_name(tmp_path: Path, name: str, told: bool) -> None:
    """Where the queue has forgotten the job, sacct knows its end; a job of another name is another's."""
    states = known(by_hand(tmp_path), Slurm(script(tmp_path), history=[("12", name)]))[1]
    assert ("12" in states) is told
