"""Nodes that Slurm powers up when a job wants them: what is not up now is a node all the same.

The cloud of this lab never brings them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command import ONE, command, slurmkit, status, submit
from polling import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

#: A cloud that is asked for nodes, and takes longer than any test to bring them.
CONF = """
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
SuspendExcNodes=n[1-2]
ResumeTimeout=600
NodeName=c[1-4] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[1-4] CPUs=8 RealMemory=16000 State=CLOUD
PartitionName=cloud Nodes=c[1-4] MaxTime=INFINITE
"""
TOPOLOGY = """SwitchName=leaf1 Nodes=n[1-2]
SwitchName=leaf2 Nodes=c[1-4]
SwitchName=spine Switches=leaf[1-2]
"""
JOB = (*ONE, command("hostname"))


@pytest.fixture
def cloud(start_lab: Callable[..., Lab]) -> Iterator[Lab]:
    """Nodes n[1-2] are up, and c[1-4] are powered down: seen or hidden by default. Each test has its own cloud."""
    lab = start_lab(nodes=2, extra=CONF)
    (lab.conf.parent / "topology.conf").write_text(TOPOLOGY)
    lab.run(["scontrol", "reconfigure"])
    yield lab
    lab.down()


def said(cloud: Lab, folder: Path, partition: str, nodes: int, code: int = 0) -> str:
    """What preflight finds of a job of so many nodes."""
    words = [*JOB, f"resources.partition={partition}", f"resources.nodes={nodes}"]
    return slurmkit(cloud, folder, "compile", *words, code=code).stderr


def test_hidden_nodes_are_nodes(cloud: Lab, tmp_path: Path) -> None:
    """More nodes than can be seen is unknown, and impossible only past those that the partition has.

    Slurm hides them before 23.02; where all are seen nothing is in the way.
    """
    hidden = "NodeName=c4" not in cloud.run(["scontrol", "show", "node"]).stdout
    assert said(cloud, tmp_path, "low", 2) == ""
    for partition, nodes in (("low", 3), ("cloud", 4)):
        found = said(cloud, tmp_path, partition, nodes)
        assert found.startswith("unknown: ") is hidden
        assert found.count("\n") == hidden
    assert "has 6 nodes; accepted: 1 to 6" in said(cloud, tmp_path, "low", 7, code=3)
    assert "has 4 nodes; accepted: 1 to 4" in said(cloud, tmp_path, "cloud", 5, code=3)


def test_nodes_that_are_being_powered_up_are_usable(cloud: Lab, tmp_path: Path) -> None:
    """A job waits for its nodes in CONFIGURING, and the next one is not told that they are down."""
    run = submit(cloud, tmp_path, *JOB, "resources.partition=cloud", "resources.nodes=3")
    wait_until(lambda: "POWERING_UP" in cloud.run(["scontrol", "show", "node"]).stdout, 30, "the power-up")
    assert "NOT_RESPONDING" in cloud.run(["scontrol", "show", "node", "c1"]).stdout
    assert status(cloud, tmp_path, run)[0]["state"] == "CONFIGURING"
    assert said(cloud, tmp_path, "cloud", 3) == ""


def test_powered_down_nodes_that_can_be_seen_are_usable(cloud: Lab, tmp_path: Path) -> None:
    """With PrivateData=cloud nothing is in the way of a job that wants all nodes, up or not."""
    with cloud.conf.open("a") as conf:
        conf.write("PrivateData=cloud\n")
    cloud.run(["scontrol", "reconfigure"])
    assert "POWERED_DOWN" in cloud.run(["scontrol", "show", "node", "c4"]).stdout
    wait_until(lambda: cloud.status().nodes == {"idle": 2}, 30, "the nodes to be back from the reconfigure")
    assert said(cloud, tmp_path, "cloud", 4) == ""
    assert said(cloud, tmp_path, "low", 6) == ""
