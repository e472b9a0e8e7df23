"""What a run has printed: which log, and until when it is followed."""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING, cast

import pytest

from slurmkit.errors import RunNotFoundError, SlurmUnavailableError, UsageError
from slurmkit.launch.ledger import Attempt, Run
from slurmkit.launch.logs import follow_log, print_log
from slurmkit.launch.watch import run_status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from slurmkit.cluster.client import SlurmClient


class Slurm:
    """A squeue that knows some tasks of job 12 as long as there are states, or that does not answer."""

    def __init__(self, tasks: Sequence[str] = (), states: Sequence[str] = ("RUNNING",)) -> None:
        self._tasks, self._states = tasks, list(states)
        self.script_text: str | None = None

    def cluster(self) -> str:
        return "lab"

    def own_jobs(self) -> list[tuple[str, float, str]]:
        return []

    def script(self, job_id: str) -> str | None:
        return self.script_text

    def history(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        return []

    reason, nodes, command = "None", "n1", ""

    def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        if not self._states:
            raise SlurmUnavailableError("away")
        state = self._states[0] if len(self._states) == 1 else self._states.pop(0)
        if state == "away":
            raise SlurmUnavailableError(state)
        rest = {
            "RestartCnt": "0",
            "Reason": self.reason,
            "NodeList": self.nodes,
            "Command": self.command,
            "State": state,
        }
        return [{"ArrayJobID": "12", "ArrayTaskID": task, **rest} for task in self._tasks]


def printed(run: Run, point: int, slurm: Slurm | None = None) -> str:
    out, slurm = io.BytesIO(), slurm or Slurm()
    slurm.command = str(run.path / "job.sbatch")
    print_log(run, point, cast("SlurmClient", slurm), out)
    return out.getvalue().decode()


def followed(run: Run, slurm: Slurm, pause: Callable[[float], object]) -> tuple[str, list[str]]:
    slurm.command = str(run.path / "job.sbatch")
    out, said = io.BytesIO(), list[str]()
    follow_log(run, 0, cast("SlurmClient", slurm), out, said.append, pause)
    return out.getvalue().decode(), said


@pytest.fixture
def run(tmp_path: Path, make: Callable[..., Run]) -> Run:
    """A single run with a log."""
    run = make(tmp_path / "runs")
    run.add_attempt(Attempt("lab", "12", 0.0, None))
    run.log(0).write_text("one\n")
    return run


@pytest.mark.parametrize("answers", [True, False], ids=["Slurm", "no Slurm"])
def test_no_other_point_has_a_single_runs_log(
    tmp_path: Path, run: Run, by_hand: Callable[..., Path], answers: bool
) -> None:
    """Point 7 of a run without points is refused, submitted by hand or not, whether Slurm answers or not."""
    hand = Run(by_hand(tmp_path / "runs"))
    (tmp_path / "exp-12.log").write_text("one\n")
    for single in (run, hand):
        assert printed(single, 0) == "one\n"
        for point in (7, -1):
            with pytest.raises(RunNotFoundError, match=f"got {point}; .* one point alone"):
                printed(single, point, Slurm(states=("RUNNING",) if answers else ()))


def test_a_point_that_a_sweep_has_not_is_refused(
    tmp_path: Path, make: Callable[..., Run], by_hand: Callable[..., Path]
) -> None:
    """A task that never was is told from one that has not started; of a sweep by hand only Slurm knows."""
    with pytest.raises(RunNotFoundError, match="points 0 to 1"):
        printed(make(tmp_path / "runs", points=[["a=1"], ["a=2"]]), 2)
    hand = Run(by_hand(tmp_path / "runs", points=[0, 1]))
    slurm = Slurm(["0", "1", "2"])
    slurm.script_text = f"export SLURMKIT_RUN_DIR={hand.path}\n"
    for point, known, said in (
        (9, slurm, "no point 9"),
        (2, slurm, "not started"),
        (9, Slurm(states=()), "not started"),
    ):
        with pytest.raises(RunNotFoundError, match=said):
            printed(hand, point, known)
    with pytest.raises(RunNotFoundError, match="no point 9"):
        follow_log(
            hand, 9, cast("SlurmClient", slurm), io.BytesIO(), lambda _: None, lambda _: pytest.fail("waited")
        )


def test_a_follower_reads_on_until_the_job_has_ended(run: Run) -> None:
    """Each line once, also what is printed while Slurm is away, and what comes after the job's last question."""
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 6:
            with run.log(0).open("a") as log:
                log.write("two\n")

    assert followed(run, Slurm(["N/A"], ["away", "RUNNING", "COMPLETED"]), pause) == (
        "one\ntwo\n",
        ["12: COMPLETED"],
    )
    assert len(waits) > 6


def test_a_follower_of_what_has_ended_needs_no_slurm(run: Run) -> None:
    """Where Slurm has told of the end once, nobody waits until it is back."""
    run_status(run, cast("SlurmClient", known := Slurm(["N/A"], ["COMPLETED"])))
    assert run.ended() == {}, "a job of another script"
    known.command = str(run.path / "job.sbatch")
    run_status(run, cast("SlurmClient", known))
    waits: list[float] = []
    assert followed(run, Slurm(states=()), waits.append) == ("one\n", ["12: COMPLETED"])
    assert sum(waits) < 10


def test_the_end_of_a_life_need_not_be_the_last(run: Run) -> None:
    """A script that has ended may have been requeued: while Slurm is away, a follower waits."""
    record = '{"cluster": "lab", "job": "12", "task": 0, "restart": 0, "time": 1, "exit": 1}\n'
    (run.path / "lives" / "n1.jsonl").write_text(record)
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if sum(waits) > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        followed(run, Slurm(states=()), pause)


@pytest.mark.parametrize(
    ("state", "reason", "nodes", "said"),
    [
        ("FAILED", "NonZeroExitCode", "n1", "has ended without having begun: FAILED NonZeroExitCode (on n1)"),
        ("CANCELLED", "None", "", "has ended without having begun: CANCELLED"),
        ("COMPLETED", "None", "n1", "has ended, and what it printed is not there: COMPLETED (on n1)"),
        ("PENDING", "None", "", "has no log of point 0 yet: its job has not started"),
        ("away", "None", "", "has no log of point 0 yet: its job has not started"),
    ],
)
def test_a_job_that_could_not_start_is_not_waited_for(
    run: Run, state: str, reason: str, nodes: str, said: str
) -> None:
    """A job that its node gave up has ended, and never printed: that is said, with the node, and a follower leaves."""
    run.log(0).unlink()
    slurm = Slurm(["N/A"], [state])
    slurm.reason, slurm.nodes = reason, nodes
    with pytest.raises(RunNotFoundError) as caught:
        printed(run, 0, slurm)
    assert caught.value.message.endswith(said)
    if state in {"PENDING", "away"}:
        return
    waits: list[float] = []
    _, told = followed(run, slurm, waits.append)
    assert told[0].endswith(said), "and not that it is waited for"
    assert sum(waits) < 10


@pytest.mark.parametrize("kind", ["never submitted", "another cluster's"])
def test_nobody_follows_what_has_no_end(tmp_path: Path, make: Callable[..., Run], kind: str) -> None:
    """A run without a submission, or of a cluster that is not asked: an error, and no waiting for ever."""
    run = make(tmp_path / "runs")
    if kind != "never submitted":
        run.add_attempt(Attempt("other", "12", 0.0, None))
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) < 100, "it waits for ever"

    with pytest.raises(UsageError, match=r"no submission|'other'"):
        followed(run, Slurm(), pause)


def test_a_follower_leaves_when_the_run_folder_is_gone(run: Run) -> None:
    """Nobody waits for the log of a run whose folder was removed, though its job runs."""
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) < 100, "it waits for ever"
        shutil.rmtree(run.path, ignore_errors=True)

    assert followed(run, Slurm(["N/A"]), pause) == ("one\n", [f"{run.path} is gone"])
