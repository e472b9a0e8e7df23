"""Training runs that are interrupted on a real Slurm end as if nothing had happened, or stay dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from polling import wait_until
from runs import STEPS, RunHandle, kill, submit_again, submit_run

from trainer.data import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

#: Rests of a rank in each pass (two a step): a first life then lasts long enough to be hit.
REST = 0.15
#: Long enough for a first life of more than the 90 seconds in which Slurm notices a limit of a minute.
LONG_REST = 0.8


def on(nodes: str) -> str:
    """Runs of this module do not share nodes, so that one disturbs no other."""
    return f"resources.nodelist='{nodes}'"


@pytest.fixture(scope="module")
def cluster(start_lab: Callable[..., Lab]) -> Lab:
    """A lab of our own: two of the runs go on beside the other tests until their time limit."""
    return start_lab(nodes=8)


@pytest.fixture(scope="module")
def submit(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunHandle]:
    """Submit a small run on the data of this module."""
    data = tmp_path_factory.mktemp("data")
    prepare(data)
    folder = tmp_path_factory.mktemp("runs")

    def submit_one(name: str, *overrides: str, **options: object) -> RunHandle:
        return submit_run(cluster, [f"data.path={data}/text.h5", *overrides], folder / name, **options)  # type: ignore[arg-type]

    return submit_one


@pytest.fixture(scope="module")
def limited(submit: Callable[..., RunHandle]) -> tuple[RunHandle, RunHandle]:
    """Two runs that meet a time limit, with and without a warning; they mostly rest."""
    # Slurm warns up to a minute ahead of the lead: with a limit of one, a slow start would miss its first step.
    warned = submit("warned", "resources.time=2", on("n[5-6]"), "requeue.signal_lead=10", pause=LONG_REST)
    bare = submit("bare", "resources.time=1", on("n[7-8]"), "requeue.signal=null", pause=LONG_REST)
    return warned, bare


@pytest.fixture(scope="module")
def undisturbed(limited: tuple[RunHandle, RunHandle], submit: Callable[..., RunHandle]) -> RunHandle:
    """The same run without any interruption."""
    del limited  # they are on their way first
    run = submit("undisturbed", on("n[1-2]"))
    run.wait_finished()
    assert run.events("start")[0]["ranks"] == 4
    assert len(run.proof()["losses"]) == STEPS
    return run


def assert_same(run: RunHandle, undisturbed: RunHandle, cause: str) -> None:
    """Each requeue for one cause, a resume at the very next sample, and the same end to the bit."""
    wait_until(lambda: run.events("requeue"), 150, "the run to requeue itself")
    run.wait_finished()
    requeued, resumed = run.events("requeue")[0], run.events("resume")[0]
    assert requeued["cause"] == cause, run.log
    assert requeued["restart"] == 0
    assert resumed["restart"] == 1
    assert 0 < resumed["step"] == requeued["step"] < STEPS
    assert resumed["cursor"] == resumed["step"] * 16
    assert run.proof() == undisturbed.proof()
    assert int(run.state()["Restarts"]) == len(run.events("requeue")) == len(run.events("resume"))


@pytest.fixture(scope="module")
def interrupted(undisturbed: RunHandle, submit: Callable[..., RunHandle]) -> dict[str, RunHandle]:
    """Two runs side by side, each hit in its own way after a few steps; none is waited for here."""
    del undisturbed  # it has its nodes to itself
    runs = {
        "preempted": submit("preempted", on("n[1-2]"), pause=REST),
        "asked": submit("asked", on("n[3-4]"), pause=REST),
    }
    for run in runs.values():
        run.wait_step(8)
    lab = runs["asked"].lab
    urgent = ["--partition=high", "--nodelist=n[1-2]", "--exclusive", "--time=1", "--output=/dev/null"]
    lab.run(["sbatch", *urgent, "--wrap=true"])
    lab.run(["scancel", "--signal=USR1", runs["asked"].job])
    return runs


def test_a_preempted_run_goes_on_at_the_next_sample(
    undisturbed: RunHandle, interrupted: dict[str, RunHandle]
) -> None:
    """A job in ``high`` takes the nodes: the run saves, requeues itself and ends bit-identical."""
    assert_same(interrupted["preempted"], undisturbed, "preempted")


def test_usr1_saves_and_requeues(undisturbed: RunHandle, interrupted: dict[str, RunHandle]) -> None:
    """``scancel --signal=USR1`` makes a run save and go on in another life, bit-identical."""
    assert_same(interrupted["asked"], undisturbed, "asked to save and requeue")


@pytest.fixture(scope="module")
def ended(interrupted: dict[str, RunHandle], submit: Callable[..., RunHandle]) -> dict[str, RunHandle]:
    """Two runs side by side, on nodes that are free again: one is cancelled, of the other a rank is killed."""
    for run in interrupted.values():
        run.wait_finished()
    runs = {
        "cancelled": submit("cancelled", on("n[3-4]"), pause=REST),
        "killed": submit("killed", "trainer.checkpoint.every=5", on("n[1-2]"), pause=REST),
    }
    for run in runs.values():
        run.wait_step(12)
    runs["cancelled"].lab.run(["scancel", runs["cancelled"].job])
    kill(runs["killed"].rank_pids()[-1])
    return runs


def test_scancel_does_not_resurrect(ended: dict[str, RunHandle]) -> None:
    """``scancel`` ends a run for good: it saves, and Slurm never sees a requeue."""
    run = ended["cancelled"]
    run.wait_state("CANCELLED")
    (stopped,) = wait_until(lambda: run.events("stop"), 10, "the run to say why it stopped")
    assert stopped["cause"] == "cancelled", run.log
    assert stopped["code"] == 143
    assert not run.events("requeue")
    assert run.events("checkpoint")[-1]["step"] == stopped["step"] >= 12
    job = run.state()
    assert (job["JobState"], job["Restarts"]) == ("CANCELLED", "0")


def test_a_killed_rank_fails_the_job_and_a_new_one_goes_on(
    undisturbed: RunHandle, ended: dict[str, RunHandle]
) -> None:
    """After kill -9 of one rank none hangs, the job fails, a new one goes on from the checkpoint."""
    run = ended["killed"]
    run.wait_state("FAILED", timeout=30)
    wait_until(lambda: not run.rank_pids(), 10, "all ranks to be gone")
    last = run.events("checkpoint")[-1]["step"]
    again = submit_again(run)
    again.wait_finished()
    (resumed,) = again.events("resume")
    assert resumed["step"] == last >= 10
    assert again.proof() == undisturbed.proof()


def test_the_warning_before_the_time_limit(
    undisturbed: RunHandle, limited: tuple[RunHandle, RunHandle]
) -> None:
    """``--signal=USR1@10``: the run saves ahead of its limit, requeues itself and ends bit-identical."""
    assert_same(limited[0], undisturbed, "asked to save and requeue")


def test_the_time_limit_alone(undisturbed: RunHandle, limited: tuple[RunHandle, RunHandle]) -> None:
    """Without ``--signal`` there is only SIGTERM at the limit: the job's state tells it from scancel."""
    wait_until(lambda: limited[1].events("requeue"), 150, "the run to meet its limit")
    assert_same(limited[1], undisturbed, "time limit")
