"""The controller, the database and their daemons fail: what runs goes on, and what was submitted is known in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster import ONE, shell
from held import SWEEP, submit_around
from polling import wait_until
from training import prepare, train

if TYPE_CHECKING:
    from cluster import Cluster, Person

THREE = ["COMPLETED"] * 3


def restart_controller(cluster: Cluster) -> None:
    cluster.start("slurmctld")
    wait_until(cluster.answers, 60, "slurmctld to answer")


def runs_of(person: Person) -> list[str]:
    return person.run("sh", "-c", "ls -d $PWD/runs/* 2>/dev/null || true").stdout.split()


@pytest.mark.feature("slurmctld is killed and restarted while jobs run: they go on, and lose nothing")
def test_jobs_do_not_notice_a_controller_that_dies(cluster: Cluster) -> None:
    """Slurmctld is killed while a training run trains and tasks of an array end: all of it completes in one life."""
    person = cluster.person("controller")
    prepare(person)
    undisturbed = train(person, "resources.nodelist=c1", rest=0)
    run = train(person, "resources.nodelist=c2", "resources.time=20", rest=0.2)
    waits = shell("until [ -e go ]; do sleep 0.1; done; echo done")
    sweep = person.slurmkit("submit", "-m", person.new_name(), *SWEEP[1:], waits).stdout.strip()
    run.wait_step(2)
    wait_until(lambda: {one["state"] for one in person.status(sweep)} == {"RUNNING"}, 60, "the array to run")
    cluster.kill("slurmctld")
    person.run("touch", "go")
    for point in range(3):
        person.wait_printed(sweep, "done", point)
    said = person.slurmkit("status", sweep, code=4).stderr
    assert "slurmctld did not answer" in said
    assert "or its host does not respond" in said
    assert "scontrol ping" in said
    assert person.slurmkit("logs", sweep).stdout == "done\n", "a log needs no slurmctld"
    said = person.slurmkit("cancel", run.run, code=4).stderr
    assert "slurmctld did not answer" in said, "and nothing is said to be cancelled"
    step = run.last_step()
    restart_controller(cluster)
    person.wait_ended(sweep)
    person.agree(sweep, THREE)
    assert {one["restarts"] for one in person.status(sweep)} == {0}
    assert (run.wait_ended(), undisturbed.wait_ended()) == ("COMPLETED", "COMPLETED")
    assert step < len(run.proof()["losses"])
    assert run.proof() == undisturbed.proof()
    assert [event["restart"] for event in run.events("start")] == [0]
    person.agree(run.run, ["COMPLETED"])


@pytest.mark.feature(
    "slurmctld dies before a sweep reaches it: exit 4, no trace is left, and it is typed again"
)
def test_a_controller_that_dies_before_it_is_asked(cluster: Cluster, alice: Person) -> None:
    """Slurmctld is gone when sbatch asks: exit 4 with the reason, no folder is left, and the same words work later."""
    done = submit_around(alice, "before", lambda: cluster.kill("slurmctld"), code=4)
    assert done.stdout == ""
    assert done.stderr.startswith("slurmkit: slurmctld cannot be reached: sbatch: error: "), done.stderr
    assert "scontrol ping" in done.stderr
    assert not runs_of(alice)
    restart_controller(cluster)
    run = alice.slurmkit("submit", alice.new_name(), *SWEEP, shell("true")).stdout.strip()
    alice.wait_ended(run)
    assert runs_of(alice) == [run]
    alice.agree(run, THREE)


@pytest.mark.feature(
    "slurmctld hangs as a sweep reaches it: the run is kept, and its job found once it is back"
)
def test_a_controller_that_hangs_when_it_is_asked(cluster: Cluster, alice: Person) -> None:
    """Nobody says whether there is a job: the folder is kept, and status, typed as the hint says, finds the job."""
    try:
        done = submit_around(alice, "before", lambda: cluster.pause("slurmctld"), code=1)
        (run,) = runs_of(alice)
        name = run.rpartition("/")[2]
        assert done.stdout == ""
        assert "look whether the job is there with: squeue --me" in done.stderr
        assert f"looked for again by: slurmkit status {name}" in done.stderr
        assert not alice.attempts(run)
    finally:
        cluster.unpause("slurmctld")
    wait_until(cluster.answers, 60, "slurmctld to answer")
    wait_until(lambda: alice.status(name), 30, "status to find the job")
    alice.wait_ended(run)
    alice.agree(run, THREE)


@pytest.mark.feature(
    "slurmctld dies between its answer and the record of a job: the job is recorded and goes on"
)
def test_a_controller_that_dies_after_its_answer(cluster: Cluster, alice: Person) -> None:
    """There is a job, but it cannot be read back: submit records it, says so, and exits with 0."""
    name = alice.new_name()

    def die_once_it_is_saved() -> None:
        """Slurmctld answers before it has saved the job; killed in between, one of 26.05 has forgotten it."""
        saved = ("grep", "-q", name.partition("=")[2], "/var/lib/slurmlab/state/job_state")
        wait_until(
            lambda: not cluster.run(*saved, host="slurmctld", code=None).returncode, 60, "it to be saved"
        )
        cluster.kill("slurmctld")

    done = submit_around(alice, "after", die_once_it_is_saved, name, *SWEEP, shell("true"), code=0)
    (run,) = runs_of(alice)
    assert done.stdout.strip() == run
    assert f"submitted job {alice.job_of(run)} with 3 points" in done.stderr
    assert "it could not be read back: slurmctld did not answer" in done.stderr
    restart_controller(cluster)
    # What ended while it was away it may hear only when it next pings the nodes.
    alice.wait_ended(run, timeout=240)
    alice.agree(run, THREE)


@pytest.mark.feature(
    "slurmctld dies before it has saved a sweep: it is LOST, and status says how it is submitted again"
)
def test_a_controller_that_forgets_a_sweep(cluster: Cluster, alice: Person) -> None:
    """It answers before it saves. What it had on its disk before it was asked is all that it knows when it comes back."""
    state = "/var/lib/slurmlab/state"

    def die_before_it_has_saved() -> None:
        cluster.docker("kill", "--signal=STOP", f"{cluster.name}-slurmctld")
        cluster.run("sh", "-c", f"rm -r {state} && mv /tmp/state {state}", host="slurmctld")
        cluster.kill("slurmctld")

    cluster.restart("slurmctld")  # so that it has saved all that has ended
    wait_until(cluster.answers, 60, "slurmctld to answer")
    # It may be saving just now: a file can be gone before it is copied.
    cluster.run("sh", "-c", f"until rm -rf /tmp/state; cp -a {state} /tmp/; do :; done", host="slurmctld")
    submit_around(alice, "after", die_before_it_has_saved, alice.new_name(), *SWEEP, shell("date"), code=0)
    (run,) = runs_of(alice)
    restart_controller(cluster)
    done = alice.slurmkit("status", run)
    assert "3 LOST" in done.stderr, done.stderr
    again = done.stderr.partition("submitted again with: ")[2].strip()
    assert "--array=0-2" in again
    alice.run("sh", "-c", again, cwd="/")
    assert [point["state"] for point in alice.wait_ended(run)] == ["COMPLETED"] * 3
    assert [alice.log(run, point).count("\n") for point in range(3)] == [1, 1, 1], "nothing ran twice"


@pytest.mark.feature(
    "slurmctld starts again while slurmdbd is down: jobs go on, and accounting hears of them later"
)
def test_a_controller_that_starts_without_accounting(cluster: Cluster, alice: Person) -> None:
    """It starts from its saved state: a run that waited runs, and is in the accounting once that is back."""
    cluster.kill("slurmdbd")
    cluster.kill("slurmctld")
    try:
        restart_controller(cluster)
        run = alice.submit(*ONE, shell("date"))
        assert [point["state"] for point in alice.wait_ended(run)] == ["COMPLETED"]
    finally:
        cluster.start("slurmdbd")
    alice.agree(run, ["COMPLETED"])


@pytest.mark.feature("slurmdbd or its database is down: submit, status and cancel work, and sacct catches up")
def test_accounting_that_is_down(cluster: Cluster, alice: Person) -> None:
    """Without slurmdbd, then without its database: runs are submitted, watched and cancelled; sacct knows all later."""
    cluster.kill("slurmdbd")
    good = alice.submit(*ONE, shell("echo good"))
    ended = alice.submit(*ONE, shell("sleep 300"))
    alice.wait_ended(good)
    cluster.kill("db")
    cluster.start("slurmdbd")
    cluster.wait_state(alice.job_of(ended), "RUNNING")
    said = alice.slurmkit("cancel", ended).stderr
    assert f"cancelled job {alice.job_of(ended)}" in said
    bad = alice.submit(*ONE, shell("exit 3"))
    assert [point["state"] for point in alice.wait_ended(bad)] == ["FAILED"]
    assert "1 CANCELLED" in alice.slurmkit("status", ended).stderr
    cluster.start("db")
    cluster.wait_healthy("db")
    if not cluster.running("slurmdbd"):  # it gives up after a while
        cluster.start("slurmdbd")
    wait_until(lambda: not cluster.run("sacct", code=None).returncode, 60, "sacct to answer")
    for run, state in ((good, "COMPLETED"), (ended, "CANCELLED"), (bad, "FAILED")):
        alice.agree(run, [state])
