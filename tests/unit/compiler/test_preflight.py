"""What stands between an experiment and a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmkit.cluster.fabric import Fabric, Switch
from slurmkit.cluster.model import ClusterConfig, ClusterSnapshot, Gres, Node, Partition
from slurmkit.compiler.preflight import Finding, Verdict, preflight
from slurmkit.config.schema import Experiment, Requeue, Resources, Topology
from slurmkit.units import UNLIMITED

NAMES = tuple(f"n{index}" for index in range(1, 9))
NODES = tuple(
    Node(name, frozenset({"IDLE"}), 8, 16000, (Gres("gpu", "a100", 4),), ("low", "high")) for name in NAMES
)
LOW = Partition("low", True, "UP", 86400, UNLIMITED, "REQUEUE", 20, 8)
HIGH = replace(LOW, name="high", default=False, max_time=UNLIMITED)
FABRIC = Fabric((Switch("leaf1", 0, NAMES[:4]), Switch("leaf2", 0, NAMES[4:]), Switch("spine", 1, NAMES)))
CLUSTER = ClusterSnapshot(0.0, ClusterConfig("lab", (22, 5, 8)), (LOW, HIGH), NODES, FABRIC)


def check(
    cluster: ClusterSnapshot = CLUSTER,
    topology: Topology | None = None,
    requeue: Requeue | None = None,
    **resources: object,
) -> dict[str, Finding]:
    experiment = Experiment(
        resources=Resources(**resources), topology=topology or Topology(), requeue=requeue or Requeue()
    )  # type: ignore[arg-type]
    return {item.code: item for item in preflight(experiment, cluster)}


def test_a_plan_that_fits_has_no_findings() -> None:
    """Silence means that nothing stands in the way: a sound plan is not nagged at."""
    assert check(nodes=4, gres="gpu:a100:4", time="1:00:00", mem="15G", topology=Topology(switches=1)) == {}


@pytest.mark.parametrize(
    ("resources", "code", "key", "accepted", "override"),
    [
        (
            {"partition": "lwo"},
            "partition.unknown",
            "resources.partition",
            "low, high",
            "resources.partition=low",
        ),
        ({"gres": "gpu:h100:2"}, "gres.type", "resources.gres", "gpu:a100", "resources.gres=gpu:a100:2"),
        ({"gres": "gpu:A100:2"}, "gres.type", "resources.gres", "gpu:a100", "resources.gres=gpu:a100:2"),
        ({"gres": "gpu:a100:5"}, "gres.count", "resources.gres", "1 to 4", "resources.gres=gpu:a100:4"),
        (
            {"gpus_per_node": "a100:5"},
            "gres.count",
            "resources.gpus_per_node",
            "1 to 4",
            "resources.gpus_per_node=a100:4",
        ),
        (
            {"gpus_per_task": "2", "ntasks_per_node": 4},
            "gres.count",
            "resources.gpus_per_task",
            "1 to 4",
            "resources.gpus_per_task=1",
        ),
        ({"nodes": 9}, "nodes.count", "resources.nodes", "1 to 8", "resources.nodes=8"),
        (
            {"time": "2-00:00:00"},
            "time.limit",
            "resources.time",
            "up to 1-00:00:00",
            "resources.time=1-00:00:00",
        ),
        ({"mem": "64G"}, "mem.size", "resources.mem", "up to 16000M", "resources.mem=16000M"),
        (
            {"cpus_per_task": 5, "ntasks_per_node": 2},
            "cpus.count",
            "resources.cpus_per_task",
            "1 to 4",
            "resources.cpus_per_task=4",
        ),
    ],
)
def test_what_can_never_run_is_impossible(
    resources: dict[str, object], code: str, key: str, accepted: str, override: str
) -> None:
    """Each impossible plan names the key, what the cluster accepts, and an override that mends it."""
    finding = check(**resources)[code]
    assert (finding.verdict, finding.key, finding.accepted, finding.override) == (
        Verdict.IMPOSSIBLE,
        key,
        accepted,
        override,
    )
    name, _, value = override.partition("=")
    mended = {
        **resources,
        name.removeprefix("resources."): int(value) if value.isdecimal() and "gpus" not in name else value,
    }
    assert code not in check(**mended), "the override that the finding gives must mend it"


def test_capital_letters_are_pointed_out() -> None:
    """``A100`` where the cluster has ``a100`` is the commonest slip: the message says that case matters."""
    assert "capital letters" in check(gres="gpu:A100:2")["gres.type"].message


def test_more_nodes_than_a_leaf_is_a_warning_with_the_wait() -> None:
    """With one switch asked for, a job over a leaf waits ``min(t, max_switch_wait)`` and then spans."""
    long = check(nodes=5, topology=Topology(switches=1, wait="1:00:00"))["switches.span"]
    assert long.verdict is Verdict.NOT_NOW
    assert "00:05:00" in long.message, "max_switch_wait (300 s) bounds the wait"
    short = check(nodes=5, topology=Topology(switches=1, wait="0:30"))["switches.span"]
    assert "00:00:30" in short.message
    assert "switches.span" not in check(nodes=5, topology=Topology(switches=2))


def test_drained_nodes_are_not_now() -> None:
    """What fits once drained nodes return is not impossible: the job waits, and nothing stops it."""
    drained = tuple(replace(node, states=frozenset({"IDLE", "DRAIN"})) for node in NODES[:6]) + NODES[6:]
    finding = check(replace(CLUSTER, nodes=drained), nodes=4)["nodes.usable"]
    assert finding.verdict is Verdict.NOT_NOW
    assert "6 of 8" in finding.message


def test_hidden_nodes_are_unknown_and_no_error() -> None:
    """Where PrivateData hides the nodes, nothing about them is impossible."""
    found = check(replace(CLUSTER, nodes=()), nodes=99, gres="gpu:nope:9")
    assert {code: item.verdict for code, item in found.items()} == {"nodes.hidden": Verdict.UNKNOWN}


@pytest.mark.parametrize("option", ["JobSubmitPlugins", "CliFilterPlugins"])
def test_a_rewriting_plugin_leaves_nothing_impossible(option: str) -> None:
    """A job_submit or cli_filter plugin may route the job elsewhere: then we warn and never stop."""
    cluster = replace(CLUSTER, config=ClusterConfig("lab", (22, 5, 8), {option: "lua"}))
    findings = check(cluster, partition="nope", nodes=1)
    assert findings["partition.unknown"].verdict is Verdict.UNKNOWN
    assert "lua" in findings["partition.unknown"].message


def test_a_partition_list_is_an_or() -> None:
    """``low,high`` may run where either accepts it: only what both refuse is a finding."""
    assert "time.limit" not in check(partition="low,high", time="2-00:00:00")
    assert "nodes.count" in check(partition="low,high", nodes=9)


def test_a_signal_ahead_of_the_whole_limit_is_said() -> None:
    """A lead longer than the time limit makes the job save and requeue for ever; sbatch takes it silently."""
    assert (
        check(time="5", requeue=Requeue(signal_lead=900))["signal.lead"].override == "requeue.signal_lead=75"
    )


def test_no_default_partition_is_said() -> None:
    """Without a default partition and without one asked for, the names to choose from are given."""
    cluster = replace(CLUSTER, partitions=(HIGH,))
    assert check(cluster)["partition.default"].override == "resources.partition=high"
