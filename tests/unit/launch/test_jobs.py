"""Which job belongs to a run that a person submitted by hand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from slurmkit.launch.jobs import jobs_of
from slurmkit.launch.ledger import PointStatus, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.states import TaskState

ID = '-"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"'


class Slurm:
    """What squeue and sacct know of job 12, and the script that Slurm keeps of it."""

    def __init__(
        self,
        kept: str | None,
        queue: Sequence[str] = (),
        history: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._kept, self._queue, self._history = kept, queue, history

    def cluster(self) -> str:
        return "lab"

    def script(self, job_id: str) -> str | None:
        assert job_id == "12"
        assert self._queue, "of a job that the queue does not show nobody needs the script"
        return self._kept

    def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        assert job_ids == ["12"]
        rest = {"RestartCnt": "0", "Reason": "None", "NodeList": "", "Command": "/home/me/my.sbatch"}
        return [{"ArrayJobID": "12", "ArrayTaskID": task, "State": "RUNNING", **rest} for task in self._queue]

    def history(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        assert job_ids == ["12"]
        return [
            {"JobID": job, "State": "TIMEOUT", "NodeList": "n1", "JobName": name}
            for job, name in self._history
        ]


def script(folder: Path) -> str:
    """A script whose run folder lies in a folder."""
    return f"#!/bin/bash\nexport SLURMKIT_RUN_DIR={shlex.quote(str(folder / 'exp'))}{ID}\n"


def known(run: Run, slurm: Slurm) -> tuple[dict[int, str], dict[str, TaskState]]:
    jobs = jobs_of(run, cast("SlurmClient", slurm))
    return dict(jobs.newest), dict(jobs.states)


@pytest.mark.parametrize("name", ["runs", "my runs", "it's", "$(id)", "a\\b", 'q"q'])
def test_the_script_says_whose_job_it_is(tmp_path: Path, name: str, by_hand: Callable[..., Path]) -> None:
    """A job whose script names the folder is the run's, however the folder is called and wherever the script lay."""
    run = Run(by_hand(tmp_path / name))
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, is_ours: bool, by_hand: Callable[..., Path]
) -> None:
    """A person who keeps the script may name the folder in their own words."""
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    text = f"#!/bin/bash\nexport SLURMKIT_RUN_DIR={line}\n"
    assert bool(known(Run(by_hand(tmp_path)), Slurm(text, ["N/A"]))[1]) is is_ours


def test_the_same_folder_by_another_path_is_the_same(tmp_path: Path, by_hand: Callable[..., Path]) -> None:
    """A home folder that is mounted, or linked, under two names."""
    run = Run(by_hand(tmp_path / "runs"))
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert known(run, Slurm(script(tmp_path / "link"), ["N/A"]))[1]


@pytest.mark.parametrize(
    "kept",
    [script(Path("/elsewhere")), "#!/bin/bash\necho hi\n", None],
    ids=["another run's", "no script of ours", "another person's"],
)
def test_an_id_that_was_issued_again_is_not_ours(
    tmp_path: Path, kept: str | None, by_hand: Callable[..., Path]
) -> None:
    """A job of the same id whose script does not name the folder is neither shown nor counted as the run's."""
    jobs, states = known(Run(by_hand(tmp_path)), Slurm(kept, ["0", "1", "2"]))
    assert (jobs, states) == ({0: "12"}, {})


def test_every_task_of_a_sweep_is_there(tmp_path: Path, by_hand: Callable[..., Path]) -> None:
    """Those that have begun, that were seen to end before they began, and that wait."""
    run = Run(by_hand(tmp_path, points=[0, 1000]))
    run.keep_ended({"12_7": PointStatus(7, "12_7", "CANCELLED", "", "", 0, "squeue")})
    jobs, states = known(run, Slurm(script(tmp_path), ["1000", "2000"]))
    assert jobs == {0: "12_0", 7: "12_7", 1000: "12_1000", 2000: "12_2000"}
    assert set(states) == {"12_1000", "12_2000"}


@pytest.mark.parametrize(("name", "told"), [("exp", True), ("allocation", True), ("other", False)])
def test_the_accounting_is_believed_of_a_job_of_that_name(
    tmp_path: Path, name: str, told: bool, by_hand: Callable[..., Path]
) -> None:
    """Where the queue has forgotten the job, sacct knows its end; a job of another name is another's."""
    states = known(Run(by_hand(tmp_path)), Slurm(script(tmp_path), history=[("12", name)]))[1]
    assert ("12" in states) is told
