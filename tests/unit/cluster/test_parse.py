"""Slurm's text into values."""

from __future__ import annotations

import pytest

from slurmkit.cluster.fabric import Fabric, Switch
from slurmkit.cluster.model import Gres
from slurmkit.cluster.parse import (
    expand,
    parse_config,
    parse_fabric,
    parse_gres,
    parse_nodes,
    parse_partitions,
    parse_records,
)
from slurmkit.units import UNLIMITED


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("gpu:8", 8),
        ("gpu:a100:8(S:0-1)", 8),
        ("gpu:tesla:2,gpu:kepler:2", 4),
        ("(null)", 0),
        ("", 0),
        ("gpu:tesla:3(IDX:0,2-3)", 3),
        ("gpu", 1),
        ("gpu:a100:2(S:0),shard:a100:16(S:0)", 2),
        ("gpu:1g.5gb:7", 7),
        ("craynetwork:4,gpu:h100:4", 4),
    ],
)
def test_gpus_are_counted_in_every_spelling(text: str, total: int) -> None:
    """Types, sockets, indices, MIG profiles and several types at once: the number of GPUs is right."""
    assert sum(item.count for item in parse_gres(text) if item.name == "gpu") == total


def test_gres_keep_name_and_type() -> None:
    """A typed gres keeps its type as Slurm spells it, and an untyped one has none."""
    assert parse_gres("gpu:a100:4(S:0-1),shard:16") == (Gres("gpu", "a100", 4), Gres("shard", "", 16))


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


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("IDLE", True),
        ("MIXED", True),
        ("ALLOCATED", True),
        ("IDLE+CLOUD+POWERED_DOWN", True),
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
    """Time, nodes and preemption of a partition, with UNLIMITED where there is no limit."""
    text = "PartitionName=low Default=YES GraceTime=20 MaxNodes=UNLIMITED MaxTime=1-00:00:00 PreemptMode=REQUEUE State=UP TotalNodes=8"
    (low,) = parse_partitions(parse_records(text))
    assert (low.name, low.default, low.max_time, low.max_nodes, low.grace_time, low.preempt_mode) == (
        "low",
        True,
        86400,
        UNLIMITED,
        20,
        "REQUEUE",
    )


def test_the_controllers_settings_are_read() -> None:
    """Release, cluster, the switch wait and the plugins that may rewrite a job come from ``show config``."""
    text = "SLURM_VERSION           = 22.05.8\nClusterName             = lab\nJobSubmitPlugins        = lua\nCliFilterPlugins        = (null)\nSchedulerParameters     = bf_interval=1,max_switch_wait=60\n"
    config = parse_config(text)
    assert (config.release, config.cluster, config.rewriters, config.max_switch_wait) == (
        (22, 5, 8),
        "lab",
        ("lua",),
        60,
    )
    assert parse_config("").max_switch_wait == 300


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
