"""Training runs that are interrupted on a real Slurm end as if nothing had happened, or stay dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from polling import wait_until
from runs import TWO_RANKS, RunHandle, kill, submit_again, submit_run
from tiny import STEPS

from trainer.data import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

#: Rests of a rank in each pass (two a step): a first life lasts 96 seconds and burns no CPU, so that all runs of
#: this module are on their way side by side, and each is hit in time also where a machine is slow to start them.
REST = 0.8


@pytest.fixture(scope="module")
def cluster(start_lab: Callable[..., Lab]) -> Lab:
    """A lab of our own, whose nodes the runs of this module share out among them."""
    return start_lab(nodes=8)


@pytest.fixture(scope="module")
def runs(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunHandle]:
    """All runs of this module, submitted at once."""
    data = tmp_path_factory.mktemp("data")
    prepare(data)
    folder = tmp_path_factory.mktemp("runs")

    def submit(name: str, nodes: str, *overrides: str, pause: float = REST) -> RunHandle:
        words = [f"data.path={data}/text.h5", f"resources.nodelist='{nodes}'", *overrides]
        return submit_run(cluster, words, folder / name, pause=pause)

    return {
        "bare": submit("bare", "n[7-8]", *TWO_RANKS, "requeue.signal=null"),
        "warned": submit("warned", "n[7-8]", *TWO_RANKS, "requeue.signal_lead=10"),
        "killed": submit("killed", "n[5-6]", *TWO_RANKS, "trainer.checkpoint.every=2"),
        "preempted": submit("preempted", "n[1-2]"),
        "asked": submit("asked", "n[5-6]", *TWO_RANKS),
        "cancelled": submit("cancelled", "n[5-6]", *TWO_RANKS),
        "undisturbed": submit("undisturbed", "n[3-4]", pause=0),
        "undisturbed_two": submit("undisturbed_two", "n[3-4]", *TWO_RANKS, pause=0),
    }


@pytest.fixture(scope="module")
def hit(cluster: Lab, runs: dict[str, RunHandle]) -> dict[str, RunHandle]:
    """The runs, each hit in its own way after a few steps; none is waited for here."""

    def control(*words: str) -> None:
        cluster.run(["scontrol", "update", *words])

    # Slurm looks at the limits twice a minute, and warns up to half a minute ahead of the lead.
    for name, end in (("bare", "now"), ("warned", "now+40")):
        runs[name].wait_step(1)
        control(f"jobid={runs[name].job}", f"endtime={end}")
    for name in ("preempted", "asked", "cancelled"):
        runs[name].wait_step(5)
    urgent = ["--partition=high", "--nodelist=n[1-2]", "--exclusive", "--time=1", "--output=/dev/null"]
    cluster.run(["sbatch", *urgent, "--wrap=true"])
    cluster.run(["scancel", "--signal=USR1", runs["asked"].job])
    cluster.run(["scancel", runs["cancelled"].job])
    runs["killed"].wait_step(5)
    kill(runs["killed"].rank_pids()[-1])
    return runs


@pytest.fixture(scope="module")
def undisturbed(runs: dict[str, RunHandle]) -> dict[int, dict[str, Any]]:
    """The same run without any interruption, by its number of ranks."""
    proofs = {}
    for ranks, name in ((4, "undisturbed"), (2, "undisturbed_two")):
        runs[name].wait_finished()
        assert runs[name].events("start")[0]["ranks"] == ranks
        assert len(runs[name].proof()["losses"]) == STEPS
        proofs[ranks] = runs[name].proof()
    return proofs


def assert_same(run: RunHandle, undisturbed: dict[int, dict[str, Any]], cause: str) -> None:
    """A requeue for one cause, a resume at the very next sample, and the same end to the bit."""
    wait_until(lambda: run.events("requeue"), 120, "the run to requeue itself")
    (requeued,) = run.events("requeue")
    assert requeued["cause"] == cause, run.log
    assert requeued["restart"] == 0
    run.wait_finished()
    (resumed,) = run.events("resume")
    assert resumed["restart"] == 1
    assert 0 < resumed["step"] == requeued["step"] < STEPS
    assert resumed["cursor"] == resumed["step"] * 16
    assert run.proof() == undisturbed[run.events("start")[0]["ranks"]]
    assert int(run.state()["Restarts"]) == len(run.events("requeue")) == 1


def test_scancel_does_not_resurrect(hit: dict[str, RunHandle]) -> None:
    """``scancel`` ends a run for good: it saves, and Slurm never sees a requeue."""
    run = hit["cancelled"]
    run.wait_state("CANCELLED")
    (stopped,) = wait_until(lambda: run.events("stop"), 10, "the run to say why it stopped")
    assert stopped["cause"] == "cancelled", run.log
    assert stopped["code"] == 143
    assert not run.events("requeue")
    assert run.events("checkpoint")[-1]["step"] == stopped["step"] >= 5
    job = run.state()
    assert (job["JobState"], job["Restarts"]) == ("CANCELLED", "0")


@pytest.fixture(scope="module")
def again(hit: dict[str, RunHandle]) -> tuple[RunHandle, int]:
    """After kill -9 of one rank none hangs and the job fails; its script is submitted once more.

    With the step that was committed last: rank 0 may have died before it could say so.
    """
    run = hit["killed"]
    run.wait_state("FAILED")
    wait_until(lambda: not run.rank_pids(), 30, "all ranks to be gone")
    newest = max(path.parent.name for path in run.point.glob("checkpoints/step-*/COMMIT"))
    return submit_again(run), int(newest.removeprefix("step-"))


@pytest.fixture(scope="module")
def unlimited(again: tuple[RunHandle, int], hit: dict[str, RunHandle]) -> dict[str, RunHandle]:
    """The two runs that met their limit; it was moved to where they were, and would be so again."""
    del again  # it is on its way first

    def is_moved(run: RunHandle) -> bool:
        longer = ["scontrol", "update", f"jobid={run.job}", "timelimit=10"]
        # A quick second life may be over by now: then there is no limit to move.
        return run.result() is not None or not run.lab.run(longer, check=False).returncode

    for name in ("bare", "warned"):
        run = hit[name]
        wait_until(lambda run=run: run.events("requeue"), 120, f"the run {name} to requeue itself")
        wait_until(lambda run=run: is_moved(run), 30, "Slurm to take the limit")
    return hit


def test_the_time_limit_alone(
    unlimited: dict[str, RunHandle], undisturbed: dict[int, dict[str, Any]]
) -> None:
    """Without ``--signal`` there is only SIGTERM at the limit: the job's state tells it from scancel."""
    assert_same(unlimited["bare"], undisturbed, "time limit")


def test_the_warning_before_the_time_limit(
    unlimited: dict[str, RunHandle], undisturbed: dict[int, dict[str, Any]]
) -> None:
    """``--signal=USR1@10``: the run saves ahead of its limit, requeues itself and ends bit-identical."""
    assert_same(unlimited["warned"], undisturbed, "asked to save and requeue")


def test_a_preempted_run_goes_on_at_the_next_sample(
    hit: dict[str, RunHandle], undisturbed: dict[int, dict[str, Any]]
) -> None:
    """A job in ``high`` takes the nodes: the run saves, requeues itself and ends bit-identical."""
    assert hit["preempted"].events("start")[0]["ranks"] == 4
    assert_same(hit["preempted"], undisturbed, "preempted")


def test_usr1_saves_and_requeues(hit: dict[str, RunHandle], undisturbed: dict[int, dict[str, Any]]) -> None:
    """``scancel --signal=USR1`` makes a run save and go on in another life, bit-identical."""
    assert_same(hit["asked"], undisturbed, "asked to save and requeue")


def test_a_killed_rank_fails_the_job_and_a_new_one_goes_on(
    again: tuple[RunHandle, int], undisturbed: dict[int, dict[str, Any]]
) -> None:
    """After kill -9 of one rank none hangs, the job fails, a new one goes on from the checkpoint."""
    run, committed = again
    run.wait_finished()
    (resumed,) = run.events("resume")
    assert resumed["step"] == committed >= 4
    assert run.proof() == undisturbed[2]
