"""What a site allows its users: Slurm's own words reach them at once, and nothing is left half submitted."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from cluster import ONE, command, shell
from polling import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster import Cluster, Person

_LIMITS = {
    "MaxSubmitJobs": "3",
    "MaxWall": "60",
    "MaxTRESPerJob": "gres/gpu=2",
    "GrpTRES": "cpu=2",
}
_NONE = {"MaxSubmitJobs": "-1", "MaxWall": "-1", "MaxTRESPerJob": "gres/gpu=-1", "GrpTRES": "cpu=-1"}


def set_limits(cluster: Cluster, limits: dict[str, str], *of: str) -> None:
    words = [f"{key}={value}" for key, value in limits.items()]
    cluster.run("sacctmgr", "-i", "modify", *of, "set", *words)


@contextmanager
def limited(cluster: Cluster, limits: dict[str, str], none: dict[str, str], *of: str) -> Iterator[None]:
    """Limits as an admin sets them, for a while."""
    set_limits(cluster, limits, *of)
    try:
        yield
    finally:
        set_limits(cluster, none, *of)


def reason(person: Person, run: str, word: str) -> None:
    """The status says why a job waits, in Slurm's word; it takes slurmctld a moment to know it."""

    def shown() -> bool:
        (point,) = person.status(run)
        assert point["state"] == "PENDING"
        return point["reason"].startswith(word)

    wait_until(shown, 60, f"{run} to wait for {word}; {person.status(run)}")
    assert word in person.slurmkit("status", run).stdout


def folders(person: Person) -> set[str]:
    return set(person.run("sh", "-c", "ls -d runs/* 2>/dev/null; true").stdout.split())


@pytest.mark.feature(
    "Limits of an association and of a QOS: status has Slurm's reason while a job waits for one"
)
def test_a_job_over_a_limit_waits_and_says_why(cluster: Cluster, bob: Person) -> None:
    """Wall time, GPUs and CPUs over bob's limits: each job waits, its status has the reason, one too many is refused."""
    bobs = ("user", "where", "name=bob", "account=lab")
    with limited(cluster, _LIMITS, _NONE, *bobs):
        runs = {
            "AssocMaxWall": bob.submit(*ONE, command("true"), "resources.time=2:00:00"),
            "AssocMaxGRES": bob.submit(*ONE, command("true"), "resources.gres=gpu:3"),
            "AssocGrpCpu": bob.submit(*ONE, command("true"), "resources.cpus_per_task=4"),
        }
        before = folders(bob)
        for force in ([], ["--force"]):
            said = bob.slurmkit("submit", *force, *ONE, command("true"), code=1).stderr
            assert "AssocMaxSubmitJobLimit" in said
            assert "sacctmgr show assoc user=$USER" in said
        assert folders(bob) == before, "a refused run leaves no folder"
        for word, run in runs.items():
            reason(bob, run, word)
        for run in runs.values():
            bob.slurmkit("cancel", run)
            bob.agree(run, ["CANCELLED"])
    assert not cluster.run("squeue", "--noheader", "--user=bob").stdout


@pytest.mark.feature(
    "An account or QOS that a user may not use: Slurm's words, and how to see what one may use"
)
def test_what_bob_may_not_use(cluster: Cluster, bob: Person) -> None:
    """An unknown account, an unknown QOS, and a QOS that refuses what is over its limit: exit code 1, nothing is left."""
    over = {"MaxWall": "10", "Flags": "DenyOnLimit"}
    asked = {
        "resources.account=nope": "Invalid account",
        "resources.qos=nope": "Invalid qos",
        "resources.time=20 resources.qos=now": "QOSMaxWall",
    }
    with limited(cluster, over, {"MaxWall": "-1", "Flags-": "DenyOnLimit"}, "qos", "where", "name=now"):
        for words, refused in asked.items():
            for force in ([], ["--force"]):
                said = bob.slurmkit("submit", *force, *ONE, command("true"), *words.split(), code=1).stderr
                assert refused in said, said
                assert "sacctmgr show assoc user=$USER" in said
    assert not folders(bob)
    assert not cluster.run("squeue", "--noheader", "--user=bob").stdout


@pytest.mark.feature("A limit of running jobs: the next one waits for it, and runs when there is room")
def test_a_job_waits_for_room(cluster: Cluster, bob: Person) -> None:
    """With MaxJobsPerUser=1 of a QOS the second job says so while it waits, and runs once the first has ended."""
    with limited(cluster, {"MaxJobsPerUser": "1"}, {"MaxJobsPerUser": "-1"}, "qos", "where", "name=low"):
        first = bob.submit(*ONE, "resources.qos=low", command("sleep", "600"))
        cluster.wait_state(bob.job_of(first), "RUNNING")
        second = bob.submit(*ONE, "resources.qos=low", command("hostname"))
        reason(bob, second, "QOSMaxJobsPerUserLimit")
        bob.slurmkit("cancel", first)
        bob.wait_ended(second)
    bob.agree(first, ["CANCELLED"])
    bob.agree(second, ["COMPLETED"])


class Started:
    """A command of a person that is under way, its words in a file; one that a test leaves is killed after it."""

    def __init__(self, person: Person, name: str, *argv: str) -> None:
        self.person, self.name = person, name
        # exec: the process that is signalled is the program; and a shell's own background ignores Ctrl-C.
        line = f'echo $$ >{name}.pid; exec "$@" 2>{name}.err'
        home = f"/home/{person.user}"
        words = ["docker", "exec", f"--user={person.user}", f"--workdir={person.cwd}", f"--env=HOME={home}"]
        self.process = subprocess.Popen(
            [*words, f"{person.cluster.name}-login", "sh", "-c", line, "sh", *argv],
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Started:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def said(self) -> str:
        return self.person.cluster.read(f"{self.person.cwd}/{self.name}.err")

    def interrupt(self) -> None:
        self.person.run("sh", "-c", f"kill -INT $(cat {self.name}.pid)")

    def end(self, timeout: float = 30) -> tuple[int, str]:
        """Exit code and stdout."""
        out, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode, out.strip()


@pytest.mark.feature(
    "MaxJobCount is reached: it is said at once, Ctrl-C leaves nothing, and whoever waits gets in"
)
def test_a_full_queue(cluster: Cluster, alice: Person, bob: Person) -> None:
    """Where slurmctld is full sbatch tries for two minutes: bob hears it at once, may give up, or gets his turn."""
    full = alice.run("sbatch", "--parsable", "--hold", "--array=1-12", "--output=/dev/null", "--wrap=true")
    sweep = ("slurmkit", "submit", "-m", *ONE, shell("hostname"))
    with cluster.settings("MaxJobCount=10", "MinJobAge=2", restart=True), ExitStack() as after:
        try:
            too_many = bob.slurmkit(*sweep[1:], "+x=range(20)", code=3).stderr
            assert "one job array holds 10 here" in too_many
            assert not folders(bob)
            lost = bob.new_name()
            gives_up = after.enter_context(Started(bob, "gives-up", *sweep, lost, "+x=range(3)"))
            waits = after.enter_context(Started(bob, "waits", *sweep, bob.new_name(), "+x=range(2)"))
            for one in (gives_up, waits):
                wait_until(
                    lambda one=one: "Ctrl-C" in one.said, 90, f"it to say that Slurm is full; {one.said}"
                )
                # Slurm's other word for it need not mean the number of jobs: then we do not say so.
                assert "MaxJobCount=10" in one.said or "Slurm job queue full" in one.said
            gives_up.interrupt()
            assert gives_up.end()[0] == 130, gives_up.said
            assert len(folders(bob)) == 1, "only the one that waits has a folder"
            assert "is kept" not in gives_up.said
            assert not cluster.run("squeue", "--noheader", f"--{lost}").stdout
        finally:
            alice.run("scancel", full.stdout.strip())
        code, run = waits.end(150)
        assert code == 0, waits.said
        bob.wait_ended(run)
        bob.agree(run, ["COMPLETED", "COMPLETED"])
    assert not cluster.accounted("JobID", name=lost.partition("=")[2]), "it never became a job"
    assert len(folders(bob)) == 1
