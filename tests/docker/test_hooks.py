"""Hooks as an admin installs them, on a shared /etc/slurm and on a node without one; and beside a Prolog of the site."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cluster import ONE, command
from polling import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster import Cluster, Person

OURS = "/etc/slurm/slurmkit"
#: One of those that share /etc/slurm, and the configless node, which has its own.
ADMIN = ("login", "c8")
_SITES = """#!/bin/sh
[ ! -e /run/broken ] || exit 1
echo "$SLURM_JOB_ID" >>/run/sites-jobs
"""


def recorded(cluster: Cluster, node: str, job: str) -> list[str]:
    """The events of a job that a node has noted."""
    lines = cluster.read(f"/var/lib/slurmkit/{node}/jobs.jsonl", host=node).splitlines()
    return [record["event"] for record in map(json.loads, lines) if str(record["job"]) == job]


def run_until(cluster: Cluster, alice: Person, nodes: tuple[str, ...], events: list[str]) -> tuple[str, str]:
    """Run jobs on nodes until one of them left just these events on each: then every slurmd has the new settings.

    Returns the run and its job.
    """
    where = (f"resources.nodelist='{','.join(nodes)}'", f"resources.nodes={len(nodes)}")

    def shown() -> tuple[str, str] | None:
        run = alice.submit(*ONE, *where, command("hostname"))
        alice.wait_ended(run)
        job = alice.job_of(run)
        wait_until(
            lambda: all(cluster.node(node)["State"] == "IDLE" for node in nodes), 60, "the Epilogs to end"
        )
        return (run, job) if all(recorded(cluster, node, job) == events for node in nodes) else None

    return wait_until(shown, 90, f"a job with {events} on {nodes}")


@pytest.fixture
def _uninstalled(cluster: Cluster) -> Iterator[None]:
    """Whatever a test leaves of the hooks is gone after it, once no slurm.conf names them."""
    yield
    for host in ADMIN:
        cluster.run("rm", "-rf", OURS, host=host)
        cluster.run("bash", "-c", "rm -rf /etc/slurm/{prolog,epilog,site-,slurmkit-}*", host=host)


@pytest.mark.core
@pytest.mark.usefixtures("_uninstalled")
@pytest.mark.feature(
    "hooks install: every node of a job notes it, also a configless one; uninstall only once nobody names them"
)
def test_an_admin_installs_the_hooks(cluster: Cluster, alice: Person) -> None:
    """The lines that install prints, put into slurm.conf, give each node of a job its record; no node is drained."""
    nodes = ("c1", "c5", "c8")
    told = [cluster.run("slurmkit", "hooks", "install", host=host) for host in ADMIN]
    lines = told[0].stdout.splitlines()
    assert told[1].stdout.splitlines() == lines, "it asks slurmctld, from wherever it is run"
    assert f"Prolog={OURS}/prolog" in lines
    assert "tried prolog: exited 0" in told[0].stderr
    with cluster.settings(*lines):
        run, job = run_until(cluster, alice, nodes, ["start", "end"])
        assert sorted(alice.log(run).split()) == list(nodes)
        alice.agree(run, ["COMPLETED"])
        assert not recorded(cluster, "c2", job)
        for host in ADMIN:
            again = cluster.run("slurmkit", "hooks", "install", host=host)
            assert (again.stdout, "slurm.conf has them already" in again.stderr) == ("", True)
            refused = cluster.run("slurmkit", "hooks", "uninstall", host=host, code=1)
            assert f"Prolog={OURS}/prolog" in refused.stderr
        status = json.loads(cluster.run("slurmkit", "hooks", "status", "--json", host="c8").stdout)
        assert status["troubles"] == []
        assert [(record["node"], record["event"]) for record in status["records"]] == [("c8", "end")]
    run_until(cluster, alice, nodes, [])
    for host in ADMIN:
        removed = cluster.run("slurmkit", "hooks", "uninstall", host=host)
        assert "removed" in removed.stderr
        cluster.run("ls", OURS, host=host, code=2)
    run_until(cluster, alice, nodes, [])


def commands(told: str) -> str:
    """What install says to type: the lines that are indented."""
    return "\n".join(line for line in told.splitlines() if line.startswith("  "))


@pytest.mark.usefixtures("_uninstalled")
@pytest.mark.feature(
    "A Prolog of the site beside ours: both run; where the site's fails, Slurm drains and requeues as ever"
)
def test_beside_a_prolog_of_the_site(cluster: Cluster, alice: Person) -> None:
    """Both hooks run for a job. The site's fails on c2: c2 is drained, and the job runs on c3, with its record there."""
    site = "/etc/slurm/site-prolog"
    for host in ADMIN:
        cluster.run("sh", "-c", f"cat >{site} && chmod 755 {site}", host=host, stdin=_SITES)
    with cluster.settings(f"Prolog={site}"):
        told = [cluster.run("slurmkit", "hooks", "install", host=host) for host in ADMIN]
        for host, said in zip(ADMIN, told, strict=True):
            cluster.run("bash", "-euc", commands(said.stderr), host=host)
        lines = told[0].stdout.splitlines()
        if cluster.release >= "24.05":  # every line counts: ours are added
            lines.insert(0, f"Prolog={site}")
        with cluster.settings(*lines):
            _, job = run_until(cluster, alice, ("c1", "c8"), ["start", "end"])
            for node in ("c1", "c8"):
                assert job in cluster.read("/run/sites-jobs", host=node).split()
            run_until(cluster, alice, ("c2", "c3"), ["start", "end"])
            _fails_on_c2(cluster, alice)
    run_until(cluster, alice, ("c1", "c2", "c3", "c8"), [])


def _fails_on_c2(cluster: Cluster, alice: Person) -> None:
    cluster.run("touch", "/run/broken", host="c2")
    try:
        run = alice.submit(*ONE, command("hostname"), "resources.exclude='c1,c[4-8]'")
        (point,) = alice.wait_ended(run)
        assert (point["state"], point["restarts"]) == ("COMPLETED", 1)
        assert alice.log(run).split() == ["c3"]
        alice.agree(run, ["COMPLETED"])
        assert "DRAIN" in cluster.node("c2")["State"]
        assert cluster.node("c2")["Reason"] == "Prolog"  # error: the mapping ends at a space
        assert recorded(cluster, "c3", alice.job_of(run)) == ["start", "end"]
    finally:
        cluster.run("rm", "/run/broken", host="c2")
        cluster.run("scontrol", "update", "nodename=c2", "state=resume", code=None)
