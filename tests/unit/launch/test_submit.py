"""What Ctrl-C does while sbatch runs: there is a job and its folder, or neither."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, cast

import pytest

from slurmkit.cluster.fabric import Fabric
from slurmkit.cluster.model import ClusterConfig, ClusterSnapshot
from slurmkit.errors import SlurmUnavailableError, SubmissionUnclearError
from slurmkit.launch import submit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import Run

ALL_JOBS = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"
NO_MORE = "sbatch: error: Job creation temporarily disabled, retrying"
CLUSTER = ClusterSnapshot(0.0, ClusterConfig("lab", (22, 5, 8), {"MaxJobCount": "10"}), (), (), Fabric(()))
AWAY = SlurmUnavailableError("away")


@pytest.fixture
def run(tmp_path: Path, make: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose script is about to be submitted."""
    monkeypatch.setattr(submit, "_ONCE_MORE", 0.0)
    return make(tmp_path / "runs")


def ctrl_c() -> None:
    """To this very thread, as a terminal does it to the process."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def are_held() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


class Queue:
    """A squeue that is asked for the job of one script, and answers from a list; each time Ctrl-C is pressed once more."""

    def __init__(self, run: Run, *answers: str | Exception | None) -> None:
        self.script, self.answers = str(run.path / "job.sbatch"), list(answers)

    def own_jobs(self) -> list[tuple[str, float, str]]:
        assert are_held(), "a Ctrl-C now would leave open whether there is a job"
        ctrl_c()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [("11", 0.0, "/home/me/job.sbatch"), *([(answer, 0.0, self.script)] if answer else [])]


def submitted(run: Run, queue: Queue, words: str = ALL_JOBS) -> str:
    """The id of the job, where Ctrl-C was pressed before sbatch said that it tries again; empty if that ended it."""
    said: list[str] = []
    with (
        contextlib.suppress(KeyboardInterrupt),
        submit._uninterrupted() as interruptible,
        submit._whole_or_not_at_all(run.path),
    ):
        full = submit._while_full(CLUSTER, said.append, interruptible)

        def sbatch(argv: Sequence[str]) -> tuple[int, str, str]:
            assert list(argv) == ["sbatch", "--parsable", queue.script]
            ctrl_c()
            with full(words):
                pytest.fail("it was not interrupted")

        try:
            return submit._sbatch(run.path, cast("SlurmClient", queue), sbatch)
        finally:
            assert are_held()
            assert len(said) == 1
            assert not queue.answers, "Slurm was asked less often"
            assert signal.sigtimedwait({signal.SIGINT}, 0), "the second Ctrl-C was not held back"
    return ""


def test_interrupted_and_there_is_a_job(run: Run) -> None:
    """Ctrl-C came too late: the job is found by its script, though a second one comes while Slurm is asked."""
    assert submitted(run, Queue(run, "12")) == "12"
    assert run.path.exists()


def test_a_job_that_is_made_meanwhile_is_found(run: Run) -> None:
    """What sbatch asked for may still wait in slurmctld when sbatch is gone: the queue is read once more."""
    assert submitted(run, Queue(run, None, "12")) == "12"
    assert run.path.exists()


def test_interrupted_and_there_is_none(run: Run) -> None:
    """Nothing is left, and it ends as Ctrl-C does."""
    assert submitted(run, Queue(run, None, None)) == ""
    assert not run.path.exists()


@pytest.mark.parametrize("answers", [(AWAY,), (None, AWAY)])
def test_interrupted_and_slurmctld_is_silent(run: Run, answers: tuple[Exception | None, ...]) -> None:
    """There may be a job that needs its folder: that is kept, and the error says how to look again."""
    with pytest.raises(SubmissionUnclearError, match="interrupted") as caught:
        submitted(run, Queue(run, *answers))
    assert "slurmkit status" in caught.value.hint
    assert run.path.exists()


@pytest.mark.parametrize(("words", "room"), [(ALL_JOBS, "MaxJobCount=10"), (NO_MORE, "takes no job now")])
def test_who_waits_for_a_full_slurmctld_knows_why(words: str, room: str) -> None:
    """Sbatch's words, and how many jobs slurmctld holds where it is that; Ctrl-C ends the wait, and is held back after it."""
    said: list[str] = []
    with submit._uninterrupted() as interruptible:
        full = submit._while_full(CLUSTER, said.append, interruptible)
        with pytest.raises(KeyboardInterrupt):
            _press(full(words))
        assert are_held()
    assert not are_held()
    (line,) = said
    assert line.startswith(words)
    assert room in line


def _press(waiting: AbstractContextManager[None]) -> None:
    with waiting:
        assert not are_held()
        ctrl_c()
