"""What sites have, each in its own way: MPI, nodes without files, power saving, REST, S3, and no accounting."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from cluster import ONE, command, shell
from polling import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster import Cluster, Person

_ALLREDUCE = """
from mpi4py import MPI
world = MPI.COMM_WORLD
print(MPI.Get_processor_name(), world.rank, world.size, world.allreduce(world.rank + 1))
"""


@pytest.mark.feature("MPI with PMIx: the ranks of a command over two hosts are one world")
def test_mpi_over_two_hosts(cluster: Cluster, alice: Person, absent: Callable[[], None]) -> None:
    """``resources.srun_args=['--mpi=pmix']``: mpi4py finds its world over two leaves, and sums over it."""
    alice.run("sh", "-c", "cat >sum.py", stdin=_ALLREDUCE)
    where = ("resources.nodes=2", "resources.nodelist='c1,c5'", "resources.ntasks_per_node=2")
    # Debian's mpi4py belongs to Debian's Python.
    run = alice.submit(
        *ONE, *where, "resources.srun_args=['--mpi=pmix']", command("/usr/bin/python3", f"{alice.cwd}/sum.py")
    )
    alice.wait_ended(run)
    if cluster.release >= "26.05" and "pmix" not in cluster.run("srun", "--mpi=list").stdout:
        assert "Invalid MPI type 'pmix'" in alice.log(run)
        alice.agree(run, ["FAILED"])
        absent()
        return
    ranks = sorted(alice.log(run).splitlines(), key=lambda line: line.split()[1])
    assert [line.split()[0] for line in ranks] == ["c1", "c1", "c5", "c5"], alice.log(run)
    assert [line.split()[1:] for line in ranks] == [[str(rank), "4", "10"] for rank in range(4)]
    alice.agree(run, ["COMPLETED"])


@pytest.mark.feature("A configless node: jobs run there, it follows reconfigure, and one may submit from it")
def test_a_configless_node(cluster: Cluster, alice: Person) -> None:
    """c8 has no slurm.conf: it runs a job, takes new settings from slurmctld, and submits, shows and cancels as any host."""
    assert "No such file" in cluster.run("ls", "/etc/slurm/slurm.conf", host="c8", code=2).stderr
    run = alice.slurmkit(
        "submit",
        alice.new_name(),
        *ONE,
        "resources.nodelist=c8",
        "resources.nodes=1",
        shell("hostname; slurmkit --help >/dev/null && scontrol show config | grep KillWait"),
        host="c8",
    ).stdout.strip()
    alice.wait_ended(run)
    assert alice.log(run).splitlines()[0] == "c8"
    assert "= 5 sec" in alice.log(run)
    assert "COMPLETED" in alice.slurmkit("status", run, host="c8").stdout
    alice.agree(run, ["COMPLETED"])
    sent = "/run/slurm/conf/slurm.conf"
    with cluster.settings("KillWait=7"):
        wait_until(lambda: "KillWait=7" in cluster.read(sent, host="c8"), 60, "c8 to have the new settings")
    wait_until(lambda: "KillWait=5" in cluster.read(sent, host="c8"), 60, "c8 to have the old settings")
    again = alice.submit(*ONE, "resources.nodelist=c8", command("sleep", "600"))
    cluster.wait_state(alice.job_of(again), "RUNNING")
    alice.slurmkit("cancel", again, host="c8")
    alice.wait_ended(again)
    alice.agree(again, ["CANCELLED"])


@pytest.mark.feature("A host with no slurm.conf and no slurmd: exit code 4, and what to set")
def test_a_host_without_any_configuration(cluster: Cluster, alice: Person) -> None:
    """Where nothing says which cluster is meant the user is told what to set, and nothing is left behind."""
    bare = {"host": "s3", "SLURM_CONF": "", "code": None}
    cluster.run("mkdir", "-p", alice.cwd, host="s3")
    cluster.run("chown", "alice", alice.cwd, host="s3")
    done = alice.slurmkit("submit", *ONE, command("true"), **bare)
    assert done.returncode == 4, done.stderr
    assert "set SLURM_CONF" in done.stderr
    assert not alice.run("sh", "-c", "ls runs 2>/dev/null", host="s3", code=None).stdout


@pytest.mark.feature("Power saving: a job turns its cloud node on, and the node goes off when it is idle")
def test_power_saving(cluster: Cluster, alice: Person) -> None:
    """Partition ``cloud`` is off: a job powers a node on, status says it is being configured, and it goes off again."""
    hosts = ("p1", "p2")
    wait_until(lambda: not any(map(cluster.running, hosts)), 90, "the cloud to be off")
    asked = (*ONE, "resources.partition=cloud", command("hostname"))
    never = alice.slurmkit("compile", *asked, "resources.nodes=3", code=3).stderr
    assert "impossible" in never
    assert "cloud has 2 nodes" in never
    usable = alice.slurmkit("compile", *asked).stderr
    assert "impossible" not in usable
    assert "not now" not in usable
    run = alice.submit(*asked, "resources.nodes=2")
    seen: set[str] = set()

    def ended() -> bool:
        (point,) = alice.status(run)
        seen.add(point["state"])
        return point["state"] == "COMPLETED"

    wait_until(ended, 120, f"{run} to end; {seen}")
    assert "CONFIGURING" in seen, "it says what it waits for"
    assert sorted(alice.log(run).split()) == ["p1", "p2"]
    alice.agree(run, ["COMPLETED"])
    wait_until(lambda: not any(map(cluster.running, hosts)), 90, "the idle cloud to go off")


@pytest.mark.core
@pytest.mark.feature(
    "Without accounting: submit, sweep, status, logs and cancel, also once Slurm has forgotten the jobs"
)
def test_without_accounting(cluster: Cluster, alice: Person) -> None:
    """With no slurmdbd behind it slurmctld forgets a job in minutes: status knows it still, from its exit record."""
    settings = (
        "AccountingStorageType=accounting_storage/none",
        "AccountingStorageEnforce",
        "AccountingStorageTRES",
        "JobAcctGatherType",
        "PreemptType=preempt/none",
        "PreemptMode=OFF",
        "MinJobAge=2",
    )
    with cluster.settings(*settings, restart=True):
        run = alice.submit(*ONE, command("hostname"))
        words = (*ONE, shell("[ $0 != +x=2 ]"), "+x=range(4)")
        sweep = alice.slurmkit("submit", "-m", alice.new_name(), *words).stdout.strip()
        sleeper = alice.submit(*ONE, command("sleep", "600"))
        cluster.wait_state(alice.job_of(sleeper), "RUNNING")
        alice.slurmkit("cancel", sleeper)
        states = {
            run: ["COMPLETED"],
            sweep: ["COMPLETED"] * 2 + ["FAILED", "COMPLETED"],
            sleeper: ["CANCELLED"],
        }
        for folder in states:
            alice.wait_ended(folder)
        jobs = {alice.job_of(folder) for folder in states}
        assert len(jobs) == 3
        assert all(len(alice.attempts(folder)) == 1 for folder in states)
        wait_until(lambda: not any(map(cluster.job, jobs)), 120, "Slurm to forget the jobs")
        for folder, ended in states.items():
            points = sorted(alice.status(folder), key=lambda point: point["point"])
            assert [point["state"] for point in points] == ended
        assert alice.slurmkit("logs", run).stdout == alice.log(run)
        assert alice.log(run).startswith("c")


@pytest.mark.feature("slurmrestd answers a user's token, and shows the jobs that the ledger has")
def test_rest_with_a_token(cluster: Cluster, alice: Person) -> None:
    """A token of ``scontrol token`` opens the REST API; a wrong one does not; what was submitted is there."""
    token = alice.run("scontrol", "token", "lifespan=600").stdout.strip().removeprefix("SLURM_JWT=")
    run = alice.submit(*ONE, command("true"))
    alice.wait_ended(run)

    def get(path: str, token: str) -> tuple[str, str]:
        headers = ("-H", "X-SLURM-USER-NAME: alice", "-H", f"X-SLURM-USER-TOKEN: {token}")
        words = (
            "curl",
            "--silent",
            "--write-out",
            "\n%{http_code}",
            *headers,
            f"http://slurmrestd:6820{path}",
        )
        body, _, code = alice.run(*words).stdout.rpartition("\n")
        return code, body

    code, api = get("/openapi/v3", token)
    assert code == "200", api
    jobs_path = max(
        path for path in json.loads(api)["paths"] if re.fullmatch(r"/slurm/v[0-9.]+/jobs/?", path)
    )
    code, body = get(jobs_path, token)
    assert code == "200", body
    jobs: list[dict[str, Any]] = json.loads(body)["jobs"]
    mine = [job for job in jobs if str(job["job_id"]) == alice.job_of(run)]
    assert len(mine) == 1
    assert mine[0]["job_state"] in ("COMPLETED", ["COMPLETED"])
    code, body = get(jobs_path, "wrong")
    assert int(code) >= 400, body  # each release has a number of its own for it
    assert "job_state" not in body


_S3 = """
import fsspec
store = fsspec.filesystem("s3", key="any", secret="any", client_kwargs={"endpoint_url": "http://s3:9000"})
store.mkdir("bucket")
store.pipe("bucket/folder/object", bytes(range(256)) * 4096)
assert store.cat("bucket/folder/object") == bytes(range(256)) * 4096
print(store.ls("bucket/folder"), store.size("bucket/folder/object"))
"""


@pytest.mark.feature("An S3 server at the site: a job reads and writes objects with fsspec")
def test_s3_from_a_job(alice: Person) -> None:
    """A job on a node puts an object of 1 MiB into the site's S3 server, and gets the same bytes back."""
    alice.run("sh", "-c", "cat >store.py", stdin=_S3)
    run = alice.submit(*ONE, command("python", f"{alice.cwd}/store.py"))
    alice.wait_ended(run)
    assert alice.log(run).strip() == "['bucket/folder/object'] 1048576"
    alice.agree(run, ["COMPLETED"])
