"""Slurm's text into values."""

from __future__ import annotations

import pytest

from slurmkit.cluster.fabric import Fabric, Switch
from slurmkit.cluster.model import Gres
from slurmkit.cluster.parse import (
    expand,
    parse_config,
    parse_fabric,
    parse_job,
    parse_nodes,
    parse_partitions,
    parse_records,
)
from slurmkit.units import UNLIMITED


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[001-003]-ib", ("gpu001-ib", "gpu002-ib", "gpu003-ib")),
        ("node[1-2]x[3-4]", ("node1x3", "node1x4", "node2x3", "node2x4")),
        ("b04-[09-10]", ("b04-09", "b04-10")),
        ("(null)", ()),
    ],
)
def test_host_lists_are_expanded(text: str, names: tuple[str, ...]) -> None:
    """Suffixes, several brackets and leading zeros come out as Slurm would write them."""
    assert expand(text) == names


NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=8 CPUAlloc=0 CPUTot=8 AvailableFeatures=(null) Gres=gpu:a100:4 NodeAddr=127.0.0.1 "
    "OS=Linux 6.1.0 #1 SMP PREEMPT RealMemory=16000 State=IDLE+DRAIN ThreadsPerCore=1 Partitions=low,high "
    "CfgTRES=cpu=8,mem=16000M,billing=8 Reason=bad disk on sda [root@2026-01-01T00:00:00]"
)


def test_values_with_blanks_stay_whole() -> None:
    """A reason of several words and a kernel's version end where the next key begins."""
    (record,) = parse_records(NODE)
    assert record["OS"] == "Linux 6.1.0 #1 SMP PREEMPT"
    assert record["Reason"] == "bad disk on sda [root@2026-01-01T00:00:00]"
    assert record["CfgTRES"] == "cpu=8,mem=16000M,billing=8"


def test_a_node_keeps_what_it_has_and_what_cannot_be_read() -> None:
    """A gres of an unknown spelling makes the node uncertain: it is not taken for one that has nothing."""
    gres = "gpu:a100:no_consume:4(S:0-1),gpu:x:y:z"
    (node,) = parse_nodes(parse_records(NODE.replace("Gres=gpu:a100:4", f"Gres={gres}")))
    assert (node.gres, node.unread_gres) == ((Gres("gpu", "a100", 4),), ("gpu:x:y:z",))


def test_a_reason_does_not_change_a_node() -> None:
    """An admin's ``Reason`` that looks like fields stays a text: the first value of a key is Slurm's own."""
    (node,) = parse_nodes(parse_records(NODE.replace("bad disk", "was State=DOWN Gres=(null)")))
    assert (node.states, node.gres) == (frozenset({"IDLE", "DRAIN"}), (Gres("gpu", "a100", 4),))


JOB = (
    "JobId=1 JobName=a Requeue=0 Comment=z b UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=0 Nice=10 Requeue=1 "
    "Partition=low ReqNodeList=n[1-2] NumNodes=2 TRES=cpu=2,mem=200M,node=2 Features=(null) Licenses= Network=(null) "
    "Command=/home/my jobs/j.sh WorkDir=/home Comment=x Partition=foo StdErr=y  StdErr=/home/slurm-1.out StdIn=/dev/null "
    "StdOut=/home/slurm-1.out Power= TresPerNode=gres:gpu:2 "
)


def test_a_jobs_name_and_comment_change_nothing_else() -> None:
    """A person may write ``Requeue=0`` into a name and ``Partition=foo`` into a comment: both stay whole."""
    job = parse_job(JOB)
    assert (job["JobName"], job["Comment"]) == ("a Requeue=0 Comment=z b", "x Partition=foo StdErr=y")
    assert (job["Requeue"], job["Partition"], job["Licenses"], job["TresPerNode"]) == (
        "1",
        "low",
        "",
        "gres:gpu:2",
    )
    assert job["Command"] == "/home/my jobs/j.sh"


def test_of_an_array_the_first_record_is_read() -> None:
    """``show job`` of an array whose tasks have started lists one record a task."""
    assert parse_job(JOB + "\n" + JOB.replace("JobId=1", "JobId=2"))["JobId"] == "1"
    assert parse_job("slurm_load_jobs error: Invalid job id specified") == {}


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("IDLE", True),
        ("MIXED", True),
        ("ALLOCATED", True),
        ("IDLE+CLOUD+POWERED_DOWN", True),
        ("MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", True),
        ("DOWN+CLOUD+NOT_RESPONDING+POWERED_DOWN", False),
        ("IDLE+DRAIN", False),
        ("DOWN*", False),
        ("IDLE*", False),
        ("IDLE+SOMETHING_NEW", True),
    ],
)
def test_a_node_is_usable_unless_somebody_must_mend_it(state: str, usable: bool) -> None:
    """Drained, down and silent nodes take no job; powered-down cloud nodes do, and unknown states are kept."""
    (node,) = parse_nodes(parse_records(NODE.replace("IDLE+DRAIN", state)))
    assert node.usable is usable


def test_partitions_have_their_limits() -> None:
    """Time and nodes of a partition, with UNLIMITED where there is no limit."""
    text = "PartitionName=low Default=YES GraceTime=20 MaxNodes=UNLIMITED MaxTime=1-00:00:00 PreemptMode=REQUEUE State=UP TotalNodes=8"
    (low,) = parse_partitions(parse_records(text))
    assert (low.name, low.default, low.max_time, low.max_nodes, low.total_nodes) == (
        "low",
        True,
        86400,
        UNLIMITED,
        8,
    )


def test_the_controllers_settings_are_read() -> None:
    """Release, cluster, the switch wait and the plugins that may rewrite a job come from ``show config``."""
    text = "SLURM_VERSION           = 22.05.8\nClusterName             = lab\nJobSubmitPlugins        = lua\nCliFilterPlugins        = (null)\nSchedulerParameters     = bf_interval=1,max_switch_wait=60\n"
    config = parse_config(text)
    assert (config.release, config.cluster, config.rewriters, config.max_switch_wait) == (
        (22, 5, 8),
        "lab",
        ("job_submit/lua",),
        60,
    )
    assert parse_config("").max_switch_wait == 300


def test_the_limits_of_an_array_are_read() -> None:
    """Every setting that bounds an array is found by its name; one that is not set bounds nothing."""
    text = "MaxArraySize            = 1001\nMaxJobCount             = 10000\nSchedulerParameters     = max_array_tasks=500\n"
    assert parse_config(text).array_limits == {
        "MaxArraySize": 1001,
        "MaxJobCount": 10000,
        "max_array_tasks": 500,
    }
    assert parse_config("").array_limits == {}


def test_the_tree_is_read_with_its_leaves() -> None:
    """Leaves are the switches of level 0; the spine holds all nodes below it."""
    text = (
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-5]\n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-5] Switches=leaf[1-2]\n"
    )
    fabric = parse_fabric(parse_records(text))
    assert fabric.leaves == (Switch("leaf1", 0, ("n1", "n2")), Switch("leaf2", 0, ("n3", "n4", "n5")))
    everything = frozenset({"n1", "n2", "n3", "n4", "n5"})
    assert [fabric.largest_leaves(everything, count) for count in (1, 2)] == [3, 5]
    assert fabric.largest_leaves(frozenset({"n1", "n2", "n3"}), 1) == 2, (
        "nodes of other partitions do not count"
    )
    assert Fabric().leaves == ()
