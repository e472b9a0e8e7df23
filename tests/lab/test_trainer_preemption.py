"""Training runs that are interrupted on a real Slurm end as if nothing had happened, or stay dead if they should."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from polling import wait_until
from runs import STEPS, RunHandle, kill, submit_run

from trainer.data import prepare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

#: Rests of a rank in each pass (two a step): a first life then lasts long enough to be hit.
REST = 0.15
#: Long enough for a first life of more than the two minutes in which Slurm notices a limit of one.
LONG_REST = 1.2


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
    """Two runs that meet a time limit of a minute, with and without a warning; they mostly rest."""
    minute = {"time": "1", "nodelist": "n[5-6]"}
    warned = submit("warned", pause=LONG_REST, options={**minute, "signal": "USR1@10"})
    bare = submit("bare", pause=LONG_REST, options={**minute, "nodelist": "n[7-8]", "signal": "no"})
    return warned, bare


@pytest.fixture(scope="module")
def undisturbed(limited: tuple[RunHandle, RunHandle], submit: Callable[..., RunHandle]) -> RunHandle:
    """The same run without any interruption."""
    del limited  # they are on their way first
    run = submit("undisturbed", options={"nodelist": "n[1-2]"})
    run.wait_finished()
    assert run.events("start")[0]["ranks"] == 4
    assert len(run.proof()["losses"]) == STEPS
    return run


def assert_same(run: RunHandle, undisturbed: RunHandle, cause: str) -> None:
    """One requeue for one cause, a resume at the very next sample, and the same end to the bit."""
    run.wait_finished()
    (requeued,) = run.events("requeue")
    (resumed,) = run.events("resume")
    assert requeued["cause"] == cause, run.log
    assert requeued["restart"] == 0
    assert resumed["restart"] == 1
    assert 0 < resumed["step"] == requeued["step"] < STEPS
    assert resumed["cursor"] == resumed["step"] * 16
    assert run.proof() == undisturbed.proof()
    assert run.state()["Restarts"] == "1"


def test_a_preempted_run_goes_on_at_the_next_sample(
    undisturbed: RunHandle, submit: Callable[..., RunHandle]
) -> None:
    """A job in ``high`` takes the nodes: the run saves in its grace, requeues itself and ends bit-identical."""
    run = submit("preempted", pause=REST, options={"nodelist": "n[1-2]"})
    run.wait_step(8)
    urgent = [
        "sbatch",
        "--parsable",
        "--partition=high",
        "--nodelist=n[1-2]",
        "--exclusive",
        "--time=1",
        "--output=/dev/null",
    ]
    high = run.lab.run([*urgent, "--wrap=true"]).stdout.strip()
    assert_same(run, undisturbed, "preempted")
    assert "JobState=COMPLETED" in run.lab.run(["scontrol", "show", "job", high]).stdout


def test_usr1_saves_and_requeues(undisturbed: RunHandle, submit: Callable[..., RunHandle]) -> None:
    """``scancel --signal=USR1`` makes a run save and go on in another life, bit-identical."""
    run = submit("asked", pause=REST, options={"nodelist": "n[1-2]"})
    run.wait_step(8)
    run.lab.run(["scancel", "--signal=USR1", run.job])
    assert_same(run, undisturbed, "asked to save and requeue")


def test_scancel_does_not_resurrect(submit: Callable[..., RunHandle]) -> None:
    """``scancel`` ends a run for good: it saves, and Slurm never sees a requeue."""
    run = submit("cancelled", pause=REST, options={"nodelist": "n[3-4]"})
    run.wait_step(8)
    run.lab.run(["scancel", run.job])
    run.wait_state("CANCELLED")
    (stopped,) = wait_until(lambda: run.events("stop"), 10, "the run to say why it stopped")
    assert stopped["cause"] == "cancelled", run.log
    assert not run.events("requeue")
    assert run.events("checkpoint")[-1]["step"] == stopped["step"] >= 8
    job = run.state()
    assert (job["JobState"], job["Restarts"]) == ("CANCELLED", "0")


def test_a_killed_rank_fails_the_job_and_a_new_one_goes_on(
    undisturbed: RunHandle, submit: Callable[..., RunHandle]
) -> None:
    """kill -9 of one rank: no rank hangs, the job is FAILED, and a resubmission goes on from the last checkpoint."""
    options = {"nodelist": "n[3-4]"}
    run = submit("killed", "trainer.checkpoint.every=5", pause=REST, options=options)
    run.wait_step(12)
    kill(run.rank_pids()[-1])
    run.wait_state("FAILED", timeout=30)
    wait_until(lambda: not run.rank_pids(), 10, "all ranks to be gone")
    last = run.events("checkpoint")[-1]["step"]
    again = submit("killed", "trainer.checkpoint.every=5", options=options)
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
    limited[1].wait_state("COMPLETING", "PENDING", "RUNNING", "COMPLETED", timeout=150)
    assert_same(limited[1], undisturbed, "time limit")
