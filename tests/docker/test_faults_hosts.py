"""Hosts that are wrong in one thing, a key, a clock or a full disk: the user sees why, and nothing is lost."""

# ruff: noqa: S108 - the folders of containers

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster import ONE, shell
from held import submit_around
from polling import wait_until
from training import SMALL, Training, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster import Cluster, Person

KEY, CLOCK = "/etc/munge/own.key", "/etc/clock-offset"
SPOOL = "/run/slurmlab/fill"
#: A small file system of the login host, which a test can fill.
SMALL_DISK = "/dev/shm"
LONG = shell("sleep 300")


@pytest.fixture(scope="module")
def ill(cluster: Cluster) -> Iterator[None]:
    """While the tests of this module run, c3 has a munge key of its own, c4 a wrong clock, and c6 a full spool."""
    cluster.run("sh", "-c", f"head -c 128 /dev/urandom >{KEY}", host="c3")
    cluster.run("sh", "-c", f"echo +10m >{CLOCK}", host="c4")
    try:
        for node in ("c3", "c4"):
            cluster.restart(node)
        fill(cluster, "c6", SPOOL)
        for node in ("c3", "c4"):
            wait_until(lambda node=node: given_up(cluster, node), 90, f"{node} to be given up")
        yield
    finally:
        cluster.run("rm", "-f", SPOOL, host="c6")
        for node, file in (("c3", KEY), ("c4", CLOCK)):
            if not cluster.run("rm", file, host=node, code=None).returncode:  # a test that failed left it
                cluster.restart(node)


@pytest.fixture(autouse=True)
def _idle_again() -> None:
    """Nodes stay ill from test to test: each mends its own, and the last one sees that all are idle."""


@pytest.fixture(scope="module", autouse=True)
def _idle_at_last(idle_at_last: None, ill: None) -> None:
    """``ill`` mends first."""


def given_up(cluster: Cluster, node: str) -> bool:
    """Whether Slurm marks it with a star: it does not respond."""
    return (
        "*" in cluster.run("sinfo", "--noheader", f"--nodes={node}", "--partition=main", "--format=%t").stdout
    )


def fill(cluster: Cluster, host: str, path: str) -> None:
    """Write a file until its disk is full."""
    done = cluster.run("sh", "-c", f"cat /dev/zero >{path}", host=host, code=None)
    assert "No space left on device" in done.stderr


def assert_goes_elsewhere(alice: Person, *may_go: str) -> None:
    """A job that may go to c5, and to these nodes, goes to c5."""
    others = ",".join(f"c{number}" for number in range(1, 9) if f"c{number}" not in {*may_go, "c5"})
    goes = alice.submit(*ONE, shell("hostname"), f"resources.exclude='{others}'")
    alice.wait_ended(goes)
    assert alice.log(goes) == "c5\n"
    alice.agree(goes, ["COMPLETED"])


def assert_waits(alice: Person, run: str, node: str) -> None:
    """A job that names the node waits, and status says why in Slurm's word; not each time Slurm names the node, too."""
    why = "ReqNodeNotAvail"
    told = wait_until(
        lambda: line if why in (line := alice.slurmkit("status", run).stdout) else None,
        30,
        lambda: f"{why} of the job on {node}; {alice.status(run)}",
    )
    assert told.split("\t")[2] == "PENDING"
    assert "1 PENDING" in alice.slurmkit("status", run).stderr


def assert_never_begins(alice: Person, run: str, node: str) -> None:
    """Slurm 26.05 takes any answer to a ping for a good one, starts the job there, and kills it as non-startable."""
    wait_until(lambda: alice.status(run)[0]["state"] == "COMPLETING", 90, f"the job on {node} to be killed")
    assert alice.status(run)[0]["nodes"] == node
    assert "has no log of point 0 yet: its job has not started" in alice.slurmkit("logs", run, code=2).stderr


@pytest.mark.parametrize(
    ("node", "file"),
    [
        pytest.param(
            "c3",
            KEY,
            id="key",
            marks=pytest.mark.feature(
                "A node with a wrong munge key: nothing is computed there, and status and logs say so"
            ),
        ),
        pytest.param(
            "c4",
            CLOCK,
            id="clock",
            marks=pytest.mark.feature(
                "A node whose clock is 10 minutes off: no run begins there, and status and logs say so"
            ),
        ),
    ],
)
def test_a_node_that_is_not_believed(
    cluster: Cluster, ill: None, alice: Person, node: str, file: str, difference: Callable[..., None]
) -> None:
    """Nobody believes the node: jobs go elsewhere; what names it waits, says so, and runs once it is mended.

    Since 26.05 what it gets fails before it begins, so that others have to exclude it; what failed there is submitted
    again once the node is mended.
    """
    named = (*ONE, shell("hostname"), f"resources.nodelist={node}")
    run = alice.submit(*named)
    fails = cluster.release >= "26.05"
    assert_goes_elsewhere(alice, *([] if fails else [node]))
    (assert_never_begins if fails else assert_waits)(alice, run, node)
    if file == KEY:
        does = (
            "is given jobs, which slurmctld kills: FAILED" if fails else "is given no job until it is mended"
        )
        difference("A node that munge does not believe", does)
    cluster.run("rm", file, host=node)
    cluster.restart(node)
    if fails:
        assert alice.wait_ended(run)[0]["state"] == "FAILED"
        said = alice.slurmkit("logs", run, code=2).stderr
        assert "has ended without having begun: FAILED" in said
        assert f"(on {node})" in said
        alice.agree(run, ["FAILED"])
        run = alice.submit(*named)
    alice.wait_ended(run)
    assert alice.log(run) == f"{node}\n"
    alice.agree(run, ["COMPLETED"])


@pytest.mark.feature("A node whose spool is full: the job goes back to the queue, the node is drained")
def test_a_node_without_space_for_a_job(cluster: Cluster, ill: None, alice: Person) -> None:
    """The job cannot be launched: it is back in the queue, the node drains with a reason, and it runs once mended."""
    run = alice.submit(*ONE, shell("hostname"), "resources.nodelist=c6")
    wait_until(lambda: "DRAIN" in cluster.node("c6")["State"], 60, "c6 to be drained")
    (point,) = alice.status(run)
    assert point["state"] == "PENDING", point
    cluster.run("rm", SPOOL, host="c6")
    cluster.run("scontrol", "update", "nodename=c6", "state=resume")
    (point,) = alice.wait_ended(run)
    assert (point["state"], point["nodes"]) == ("COMPLETED", "c6")
    assert point["restarts"] >= 1
    assert alice.log(run) == "c6\n", "it began once"
    alice.agree(run, ["COMPLETED"])


@pytest.mark.feature("A full /tmp of a node: a job that writes there fails with its own words in the log")
def test_a_node_without_space_in_tmp(cluster: Cluster, alice: Person) -> None:
    """What needs no /tmp does not notice; what writes there fails, and logs and status say what happened."""
    fill(cluster, "c7", "/tmp/fill")
    try:
        good = alice.submit(*ONE, shell("hostname"), "resources.nodelist=c7")
        bad = alice.submit(*ONE, shell("echo x >/tmp/x"), "resources.nodelist=c7")
        alice.wait_ended(bad)
        assert "No space left on device" in alice.slurmkit("logs", bad).stdout
        assert "1 FAILED" in alice.slurmkit("status", bad).stderr
        alice.agree(bad, ["FAILED"])
        alice.wait_ended(good)
        alice.agree(good, ["COMPLETED"])
    finally:
        cluster.run("rm", "/tmp/fill", "/tmp/x", host="c7", code=None)


@pytest.mark.feature(
    "The disk of the checkpoints is full: the run fails with its words, and resumes when there is space"
)
def test_a_full_disk_of_the_checkpoints(cluster: Cluster, alice: Person) -> None:
    """The last commit survives the full disk, the log says so, and a new job of the same script goes on from there."""
    prepare(alice)
    root = "/tmp/checkpoints"
    words = ("resources.nodelist=c2", "trainer.checkpoint.every=1", f"trainer.checkpoint.root={root}")
    undisturbed = Training(alice, alice.submit(*SMALL, "resources.nodelist=c1", "env.vars.TEST_PAUSE='0'"))
    run = Training(alice, alice.submit(*SMALL, *words, "env.vars.TEST_PAUSE='0.3'"))
    run.wait_step(3)
    fill(cluster, "c2", "/tmp/fill")
    try:
        assert run.wait_ended() == "FAILED"
        log = alice.slurmkit("logs", run.run).stdout
        assert f"could not be written to {root}" in log
        assert "No space left on device; the last committed one is step" in log
        assert "free space there" in log
        committed = cluster.run("sh", "-c", f"find {root} -name COMMIT", host="c2").stdout.split()
        assert committed
        alice.agree(run.run, ["FAILED"])
    finally:
        cluster.run("rm", "/tmp/fill", host="c2")
    again = alice.run("sbatch", "--parsable", f"{run.run}/job.sbatch", TEST_AWAKE="1").stdout.strip()
    cluster.wait_state(again, "COMPLETED", timeout=120)
    (found,) = alice.status(again)
    assert (found["job"], found["state"]) == (again, "COMPLETED"), "by the id of the second job"
    (resumed,) = run.events("resume")
    assert resumed["step"] == max(int(path.split("/")[-2].partition("-")[2]) for path in committed)
    assert undisturbed.wait_ended() == "COMPLETED"
    assert run.proof() == undisturbed.proof()
    alice.agree(run.run, ["COMPLETED"])


@pytest.mark.feature("The folder of runs is full: submit names it, and leaves no folder and no job")
def test_a_full_folder_of_runs(cluster: Cluster, alice: Person) -> None:
    """Full before sbatch: no folder, no job. Full after it: the error names the job, which status finds again."""
    runs = f"{SMALL_DISK}/{alice.cwd.rpartition('/')[2]}"
    alice.run("mkdir", runs)
    name = alice.new_name()
    words = (name, *ONE, LONG, f"runs_dir={runs}", "resources.nodelist=c1")
    cluster.run("scontrol", "update", "nodename=c1", "state=drain", "reason=test")  # there it waits
    disk = f"{SMALL_DISK}/fill"
    fill(cluster, "login", disk)
    try:
        said = alice.slurmkit("submit", *words, code=1).stderr
        assert f"the run folder {runs}/" in said
        assert "No space left on device" in said
        assert "make room there, or set runs_dir=FOLDER" in said
        assert alice.run("ls", "-A", runs).stdout == ""
        assert not cluster.run("squeue", "--noheader", f"--name={name.partition('=')[2]}").stdout
        cluster.run("rm", disk)
        done = submit_around(alice, "after", lambda: fill(cluster, "login", disk), *words, code=1)
        assert "is submitted, but" in done.stderr
        assert "No space left on device" in done.stderr
        assert "end the job with: scancel" in done.stderr
    finally:
        cluster.run("rm", "-f", disk)
    (run,) = alice.run("sh", "-c", f"ls -d {runs}/*").stdout.split()
    (point,) = alice.status(run)
    assert point["state"] == "PENDING"
    assert f"job {point['job']} is submitted, but" in done.stderr
    alice.slurmkit("cancel", run)
    cluster.run("scontrol", "update", "nodename=c1", "state=resume")
    alice.agree(run, ["CANCELLED"])


@pytest.mark.feature("A login host whose munge key or clock is wrong: exit 4, and the hint names both")
@pytest.mark.parametrize(("file", "text"), [(KEY, "x" * 128), (CLOCK, "+10m")], ids=["key", "clock"])
def test_a_login_host_that_is_not_believed(cluster: Cluster, alice: Person, file: str, text: str) -> None:
    """Nothing is submitted from there. To it slurmctld looks dead: the hint says what to look at if others find it up."""
    run = alice.submit(*ONE, shell("true"))
    alice.wait_ended(run)
    cluster.run("sh", "-c", f"cat >{file}", stdin=text)
    cluster.restart("login")
    try:
        wait_until(lambda: "is DOWN" in cluster.run("scontrol", "ping", code=None).stdout, 30, "munged")
        for words in (("submit", *ONE, shell("true")), ("status", run), ("cancel", run)):
            said = alice.slurmkit(*words, code=4).stderr
            assert "slurmctld cannot be reached: Slurmctld(primary) at slurmctld is DOWN" in said
            assert (
                "if it is up for others, this host differs from theirs in munge's key or in its clock" in said
            )
            assert "is UP" in cluster.run("scontrol", "ping", host="c1").stdout, "it is up for others"
    finally:
        cluster.run("rm", file)
        cluster.restart("login")
        wait_until(cluster.answers, 60, "the login host to be believed again")
    alice.agree(run, ["COMPLETED"])
    assert len(alice.run("sh", "-c", "ls runs").stdout.split()) == 1


@pytest.mark.feature("The disk of the hooks' records is full: the job runs, and the node is not drained")
def test_a_full_disk_of_the_hooks(cluster: Cluster, alice: Person) -> None:
    """Prolog and Epilog cannot write on c7: a job over c5 and c7 does not notice, and c5 notes it as ever."""
    folder, installed, admin = "/tmp/hooks", "/etc/slurm/slurmkit", ("login", "c8")
    told = [cluster.run("slurmkit", "hooks", "install", host=host) for host in admin]
    for host in admin:
        settings = f"echo STATE_DIR={folder} >{installed}/slurmkit-hooks.conf"
        cluster.run("sh", "-c", settings, host=host)
    cluster.run("mkdir", "-p", f"{folder}/c7", host="c7")
    fill(cluster, "c7", "/tmp/fill")

    def note(*, wanted: bool) -> str | None:
        """A run that c5 has noted, or has not: then every slurmd has the new settings."""
        run = alice.submit(*ONE, shell("hostname"), "resources.nodes=2", "resources.nodelist='c5,c7'")
        alice.wait_ended(run)
        wait_until(lambda: cluster.node("c5")["State"] == "IDLE", 60, "the Epilog of c5 to end")
        noted = cluster.read(f"{folder}/c5/jobs.jsonl", host="c5")
        return run if (f'"job":{alice.job_of(run)},' in noted) is wanted else None

    try:
        with cluster.settings(*told[0].stdout.splitlines()):
            run = wait_until(lambda: note(wanted=True), 90, "c5 to note a job")
            alice.agree(run, ["COMPLETED"])
            wait_until(lambda: cluster.node("c7")["State"] == "IDLE", 60, "the Epilog of c7 to end")
            assert not cluster.read(f"{folder}/c7/jobs.jsonl", host="c7").strip()
        wait_until(lambda: note(wanted=False), 90, "c5 to note no job any more")
    finally:
        for node in ("c5", "c7"):
            cluster.run("rm", "-rf", folder, "/tmp/fill", host=node)
        for host in admin:
            cluster.run("rm", "-rf", installed, host=host)
