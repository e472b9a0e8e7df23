"""The core of the loop on a cluster of real hosts: compile, submit, array, status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster import ONE, shell

if TYPE_CHECKING:
    from cluster import Cluster, Person


def test_a_run_over_two_hosts(cluster: Cluster, alice: Person) -> None:
    """A run over two leaves starts a rank on each host, and its ledger says what Slurm says."""
    run = alice.submit(*ONE, shell("hostname"), "resources.nodes=2", "resources.nodelist='c[4-5]'")
    assert alice.wait_ended(run)[0]["state"] == "COMPLETED"
    assert sorted(alice.log(run).split()) == ["c4", "c5"]
    alice.agree(run, ["COMPLETED"])
