"""What stands between an experiment and a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmkit.cluster.fabric import Fabric, Switch
from slurmkit.cluster.model import ClusterConfig, ClusterSnapshot, Gres, Node, Partition
from slurmkit.compiler.finding import Finding, Verdict
from slurmkit.compiler.preflight import preflight
from slurmkit.config.schema import Experiment, Payload, Requeue, Resources, Topology
from slurmkit.units import UNLIMITED

NAMES = tuple(f"n{index}" for index in range(1, 9))
NODES = tuple(
    Node(name, frozenset({"IDLE"}), 8, 16000, (Gres("gpu", "a100", 4),), ("low", "high")) for name in NAMES
)
LOW = Partition("low", True, "UP", 86400, UNLIMITED, 8)
HIGH = replace(LOW, name="high", default=False, max_time=UNLIMITED)
FABRIC = Fabric((Switch("leaf1", 0, NAMES[:4]), Switch("leaf2", 0, NAMES[4:]), Switch("spine", 1, NAMES)))
CLUSTER = ClusterSnapshot(0.0, ClusterConfig("lab", (22, 5, 8)), (LOW, HIGH), NODES, FABRIC)


def findings(
    cluster: ClusterSnapshot = CLUSTER, topology: Topology | None = None, **resources: object
) -> tuple[Finding, ...]:
    experiment = Experiment(resources=Resources(**resources), topology=topology or Topology())  # type: ignore[arg-type]
    return preflight(experiment, cluster)


def check(
    cluster: ClusterSnapshot = CLUSTER, topology: Topology | None = None, **resources: object
) -> dict[str, Finding]:
    """The findings by their code, of which each may come once."""
    found = findings(cluster, topology, **resources)
    by_code = {item.code: item for item in found}
    assert len(by_code) == len(found)
    return by_code


def mended(resources: dict[str, object], finding: Finding) -> dict[str, object]:
    """The same resources after somebody typed what the finding says."""
    assert finding.mend is not None
    key, value = finding.mend
    name = key.removeprefix("resources.")
    typed = int(value) if Resources.__annotations__[name].startswith("int") else value
    return {**resources, name: None if value == "null" else typed}


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
        (
            {"ntasks_per_node": 9},
            "cpus.count",
            "resources.ntasks_per_node",
            "1 to 8",
            "resources.ntasks_per_node=8",
        ),
        (
            {"cpus_per_gpu": 3, "gres": "gpu:a100:4"},
            "cpus.count",
            "resources.cpus_per_gpu",
            "1 to 2",
            "resources.cpus_per_gpu=2",
        ),
        (
            {"gres": "gpu:a100:3,gpu:a100:3"},
            "gres.count",
            "resources.gres",
            "1 to 4",
            "resources.gres=gpu:a100:4",
        ),
        ({"gres": "gres/gpu:h100"}, "gres.type", "resources.gres", "gpu:a100", "resources.gres=gpu:a100:1"),
        (
            {"gpus_per_node": "a100:1,h100:1"},
            "gres.type",
            "resources.gpus_per_node",
            "gpu:a100",
            "resources.gpus_per_node=a100:2",
        ),
        ({"time": "0"}, "time.limit", "resources.time", "up to 1-00:00:00", "resources.time=1-00:00:00"),
        (
            {"gres": "gpu:1,gpu:a100:2"},
            "gres.mixed",
            "resources.gres",
            "a type for each of them, or for none",
            "resources.gres=gpu:a100:3",
        ),
        (
            {"gpus_per_node": "1", "gres": "gpu:a100:2"},
            "gres.mixed",
            "resources.gpus_per_node",
            "a type for each of them, or for none",
            "resources.gpus_per_node=a100:1",
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
    assert check(**mended(resources, finding)) == {}, "the override that the finding gives must mend it"


def test_a_type_here_and_none_there_is_mended_in_place() -> None:
    """Other resources of the list stay as they are, and a value with commas is quoted for Hydra."""
    found = check(gres="shard:4,gpu,gpu:a100:2")["gres.mixed"]
    assert found.override == "'resources.gres=\"shard:4,gpu:a100:3\"'"
    for gres in ("gpu:a100:1,gpu:h100:1,shard:2", "gpu:1"):
        assert "gres.mixed" not in {item.code for item in findings(gres=gres, gpus_per_node=None)}
    assert check(gres="gpu:1", gpus_per_node="2") == {}


#: Nodes with two kinds of GPU, and slices of them.
MIXED = replace(
    CLUSTER,
    nodes=tuple(
        replace(node, gres=(Gres("gpu", "a100", 4), Gres("gpu", "v100", 2), Gres("shard", "", 8)))
        for node in NODES
    ),
)


@pytest.mark.parametrize(
    ("resources", "subjects", "override"),
    [
        ({"gres": "foo:1,bar:1"}, ["foo", "bar"], "resources.gres=null"),
        ({"gres": "fpga:1,shard:2"}, ["fpga"], "resources.gres=shard:2"),
        ({"gres": "gpu:A100:2,shard:4"}, ["gpu:A100"], "'resources.gres=\"gpu:a100:2,shard:4\"'"),
        ({"gres": "gpu:a100:9,shard:9"}, ["gpu:a100", "shard"], "'resources.gres=\"gpu:a100:4,shard:8\"'"),
        ({"gres": "gpu:A100:3,gpu:a100:3"}, ["gpu:A100"], "resources.gres=gpu:a100:4"),
        ({"gres": "gpu:a100:1,gpu:v100:3"}, ["gpu:v100"], "'resources.gres=\"gpu:a100:1,gpu:v100:2\"'"),
        ({"gpus_per_node": "V100:1"}, ["gpu:V100"], "resources.gpus_per_node=v100:1"),
        ({"gpus_per_node": "7"}, ["gpu"], "resources.gpus_per_node=6"),
        ({"gpus_per_task": "1", "ntasks_per_node": 8}, ["gpu"], "resources.ntasks_per_node=6"),
        ({"gpus_per_task": "a100:2", "ntasks_per_node": 5}, ["gpu:a100"], "resources.ntasks_per_node=2"),
        ({"gpus_per_task": "a100:3", "ntasks_per_node": 2}, ["gpu:a100"], "resources.gpus_per_task=a100:2"),
    ],
)
def test_each_gres_at_fault_is_found_and_the_others_are_kept(
    resources: dict[str, object], subjects: list[str], override: str
) -> None:
    """Every item is a finding of its own; one override mends them all, and asks for no other resource in their place."""
    found = findings(MIXED, **resources)
    assert [item.subject for item in found] == subjects
    assert {item.override for item in found} == {override}
    assert findings(MIXED, **mended(resources, found[0])) == ()


def test_a_list_of_partitions_finds_what_all_of_them_lack() -> None:
    """Of two resources that one partition lacks and the other has not both, the one that neither has is found."""
    nodes = (*(replace(node, partitions=("low",)) for node in NODES[:4]), *(
        replace(node, gres=(Gres("shard", "", 8),), partitions=("high",)) for node in NODES[4:]
    ))  # fmt: skip
    found = findings(replace(CLUSTER, nodes=nodes), partition="low,high", gres="shard:1,foo:1")
    assert [item.subject for item in found] == ["foo"]


def test_a_data_file_that_is_not_here_is_unknown() -> None:
    """The nodes may see what the submission folder does not: it is said, and stops nothing."""
    found = {item.code: item for item in preflight(Experiment(unseen="data/my.h5"), CLUSTER)}["data.unseen"]
    assert (found.verdict, found.key) == (Verdict.UNKNOWN, "data.path")
    assert "data/my.h5" in found.message
    assert found.override == ""
    assert "data.path=FILE" in str(found)


def test_capital_letters_are_pointed_out() -> None:
    """``A100`` where the cluster has ``a100`` is the commonest slip: the message says that case matters."""
    assert "capital letters" in check(gres="gpu:A100:2")["gres.type"].message
    loud = (Gres("gpu", "A100", 4), Gres("gpu", "V100", 4))
    cluster = replace(CLUSTER, nodes=tuple(replace(node, gres=loud) for node in NODES))
    assert check(cluster, gres="gpu:a100:2")["gres.type"].override == "resources.gres=gpu:A100:2"


def test_more_nodes_than_a_leaf_is_a_warning_with_the_wait() -> None:
    """With one switch asked for, a job over a leaf waits ``min(t, max_switch_wait)`` and then spans."""
    long = check(nodes=5, topology=Topology(switches=1, wait="1:00:00"))["switches.span"]
    assert long.verdict is Verdict.NOT_NOW
    assert "00:05:00" in long.message, "max_switch_wait (300 s) bounds the wait"
    short = check(nodes=5, topology=Topology(switches=1, wait="0:30"))["switches.span"]
    assert "00:00:30" in short.message
    assert long.override == "topology.switches=null"
    assert "switches.span" not in check(nodes=5, topology=Topology(switches=2))


def test_a_partition_outside_the_fabric_is_said() -> None:
    """Where no node is below a leaf switch, no number of nodes mends it."""
    found = check(
        replace(CLUSTER, fabric=Fabric((Switch("far", 0, ("m1",)),))), topology=Topology(switches=1)
    )["switches.span"]
    assert (found.accepted, found.override) == ("null", "topology.switches=null")
    assert "below which the partition has no node" in found.message


def test_drained_nodes_are_not_now() -> None:
    """What fits once drained nodes return is not impossible: the job waits, and nothing stops it."""
    drained = tuple(replace(node, states=frozenset({"IDLE", "DRAIN"})) for node in NODES[:6]) + NODES[6:]
    finding = check(replace(CLUSTER, nodes=drained), nodes=4)["nodes.usable"]
    assert finding.verdict is Verdict.NOT_NOW
    assert "6 of 8" in finding.message
    assert (finding.accepted, finding.override) == ("1 to 2 now", "resources.nodes=2")


def test_no_node_for_now_is_mended_by_no_override() -> None:
    """As after a restart of slurmctld: the job waits for the nodes, and no number of them would not."""
    down = tuple(replace(node, states=frozenset({"DOWN"})) for node in NODES)
    finding = check(replace(CLUSTER, nodes=down), nodes=1)["nodes.usable"]
    assert (finding.accepted, finding.override) == ("none now", "")
    assert "the job waits" in finding.advice


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("n1", "n1 is down"),
        ("n[1-2,8]", "n[1-2] are down"),
        ("n8", ""),
        ("n[1-", ""),
        ("./n1", ""),
        ("@n1", ""),
    ],
)
def test_a_node_that_is_named_and_down_is_not_now(asked: str, said: str) -> None:
    """The job waits for just these nodes, though others are up; a text that names none is for sbatch to refuse."""
    down = tuple(replace(node, states=frozenset({"DOWN"})) for node in NODES[:2]) + NODES[2:]
    found = check(replace(CLUSTER, nodes=down), nodes=1, nodelist=asked)
    assert set(found) == ({"nodelist.usable"} if said else set())
    for finding in found.values():
        assert (finding.verdict, finding.key) == (Verdict.NOT_NOW, "resources.nodelist")
        assert said in finding.message


def test_hidden_nodes_are_unknown_and_no_error() -> None:
    """Where PrivateData hides the nodes, nothing about them is impossible."""
    found = check(replace(CLUSTER, nodes=()), nodes=8, gres="gpu:nope:9")
    assert {code: item.verdict for code, item in found.items()} == {"nodes.hidden": Verdict.UNKNOWN}


@pytest.mark.parametrize(
    ("resources", "code"),
    [
        ({"nodes": 4}, "nodes.count"),
        ({"nodes": 2}, "nodes.usable"),
        ({"gres": "gpu:h100:2"}, "gres.type"),
        ({"gres": "gpu:a100:8"}, "gres.count"),
        ({"nodes": 2, "gres": "gpu:a100:4"}, "gres.nodes"),
        ({"mem": "64G"}, "mem.size"),
        ({"cpus_per_task": 64}, "cpus.count"),
        ({"nodes": 3, "topology": Topology(switches=1)}, "switches.span"),
    ],
)
def test_powered_down_cloud_nodes_leave_it_open(resources: dict[str, object], code: str) -> None:
    """Two nodes are seen and four are powered down: what the two cannot do the others may, and that is said."""
    nodes = (NODES[0], replace(NODES[1], states=frozenset({"DOWN"}), gres=()))
    cluster = replace(CLUSTER, nodes=nodes, partitions=(replace(LOW, total_nodes=6),))
    found = check(cluster, **resources)[code]  # type: ignore[arg-type]
    assert found.verdict is Verdict.UNKNOWN
    if code not in {"nodes.usable", "switches.span"}:
        assert "4 of the 6 nodes of low cannot be seen" in found.message


def test_more_nodes_than_the_partition_counts_is_impossible_all_the_same() -> None:
    """TotalNodes counts the nodes that are not seen as well: more than that is certain."""
    cluster = replace(CLUSTER, nodes=NODES[:2], partitions=(replace(LOW, total_nodes=6),))
    found = check(cluster, nodes=7)
    assert (found["nodes.count"].verdict, found["nodes.count"].override) == (
        Verdict.IMPOSSIBLE,
        "resources.nodes=6",
    )
    assert check(replace(cluster, nodes=()), nodes=7)["nodes.count"].verdict is Verdict.IMPOSSIBLE


def test_a_gres_that_cannot_be_read_leaves_it_open() -> None:
    """A node whose ``Gres=`` we cannot read may have what is asked: nothing about gres is impossible then."""
    odd = replace(NODES[0], gres=(), unread_gres=("gpu:x:y:z",))
    found = check(replace(CLUSTER, nodes=(odd, *NODES[1:])), gres="gpu:h100:1")["gres.type"]
    assert found.verdict is Verdict.UNKNOWN
    assert "gpu:x:y:z of n1" in found.message


def test_a_type_of_digits_is_a_type() -> None:
    """``gpu:3090:4`` asks for four of a type, which a node with 3090s has."""
    nodes = tuple(replace(node, gres=(Gres("gpu", "3090", 4),)) for node in NODES)
    assert check(replace(CLUSTER, nodes=nodes), gres="gpu:3090:4", nodes=8) == {}
    assert check(replace(CLUSTER, nodes=nodes), gpus_per_node="3090:5")["gres.count"].accepted == "1 to 4"


LIMITS = {"MaxArraySize": "1001", "MaxJobCount": "10000"}


@pytest.mark.parametrize(
    ("options", "array", "mend"),
    [
        (LIMITS, None, None),
        (LIMITS, 1001, None),
        (LIMITS, 1002, "submit 2 sweeps of at most 1001 points"),
        (
            {**LIMITS, "MaxArraySize": "100000"},
            25000,
            "submit 3 sweeps of at most 10000 points, one after the other",
        ),
        ({**LIMITS, "SchedulerParameters": "max_array_tasks=10"}, 11, "submit 2 sweeps of at most 10 points"),
        ({**LIMITS, "MaxArraySize": "0"}, 1, "submit each point by itself"),
        ({}, 10**6, None),
    ],
)
def test_a_sweep_over_the_limits_of_an_array_is_impossible(
    options: dict[str, str], array: int | None, mend: str | None
) -> None:
    """Indices stay below MaxArraySize and tasks within MaxJobCount; a plugin of the site changes neither."""
    for more in ({}, {"JobSubmitPlugins": "lua"}):
        config = ClusterConfig("lab", (22, 5, 8), {**options, **more})
        found = {
            item.code: item for item in preflight(Experiment(), replace(CLUSTER, config=config), array=array)
        }
        if mend is None:
            assert found == {}
            continue
        finding = found["sweep.size"]
        assert (finding.verdict, finding.key, finding.advice) == (Verdict.IMPOSSIBLE, "the sweep", mend)
        assert mend in str(finding)
        assert all(f"{name}={options[name]}" in finding.message for name in ("MaxArraySize", "MaxJobCount"))


def test_keys_are_written_as_they_are_mounted() -> None:
    """In another Hydra app the sections lie under ``hydra.launcher``: every override there says so."""
    experiment = Experiment(
        resources=Resources(nodes=5, gres="gpu:h100:1"),
        topology=Topology(switches=1),
        mount="hydra.launcher.",
    )
    found = {item.code: item for item in preflight(experiment, CLUSTER)}
    assert found["gres.type"].key == "hydra.launcher.resources.gres"
    assert found["gres.type"].override == "hydra.launcher.resources.gres=gpu:a100:1"
    assert found["switches.span"].override == "hydra.launcher.topology.switches=null"
    unseen = Experiment(unseen="resources.h5", mount="hydra.launcher.")
    assert "hydra" not in str(preflight(unseen, CLUSTER)[0]), "neither a file nor a trainer's key is ours"


@pytest.mark.parametrize("option", ["JobSubmitPlugins", "CliFilterPlugins"])
def test_a_rewriting_plugin_leaves_nothing_impossible(option: str) -> None:
    """A job_submit or cli_filter plugin may route the job elsewhere: then we warn and never stop."""
    cluster = replace(CLUSTER, config=ClusterConfig("lab", (22, 5, 8), {option: "lua"}))
    found = check(cluster, partition="nope", nodes=1)
    assert found["partition.unknown"].verdict is Verdict.UNKNOWN
    assert "lua" in found["partition.unknown"].message


def test_an_unknown_partition_is_mended_by_a_like_one_or_the_default() -> None:
    """A name that is like none is no reason to send a job to whatever comes first."""
    cluster = replace(CLUSTER, partitions=(replace(HIGH, name="cloud"), replace(LOW, name="main")))
    assert check(cluster, partition="low")["partition.unknown"].override == "resources.partition=main"
    assert check(cluster, partition="clud")["partition.unknown"].override == "resources.partition=cloud"


def test_a_partition_list_is_an_or() -> None:
    """``low,high`` may run where either accepts it: only what both refuse is a finding."""
    assert "time.limit" not in check(partition="low,high", time="2-00:00:00")
    unknown = check(partition="high,lwo", time="2-00:00:00")["partition.unknown"]
    assert unknown.override == "'resources.partition=\"high,low\"'", "the others stay"
    assert "nodes.count" in check(partition="low,high", nodes=9)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (Payload("trainer", ["-m", "trainer"]), "only saves and requeues"),
        (Payload("command", ["./a.out"]), "ends a command that does not catch it"),
        (Payload("function", ["app.py"]), "ends a task that does not catch it"),
    ],
)
def test_a_signal_ahead_of_the_whole_limit_is_said(payload: Payload, said: str) -> None:
    """A lead longer than the limit makes a trainer save and requeue for ever, and kills a program; sbatch takes it silently."""
    requeue = Requeue(signal="USR1", signal_lead=900)
    experiment = Experiment(resources=Resources(time="5"), requeue=requeue, payload=payload)
    found = {item.code: item for item in preflight(experiment, CLUSTER)}["signal.lead"]
    assert found.verdict is Verdict.UNKNOWN, "nothing waits, and nothing is refused"
    assert found.override == "requeue.signal_lead=75"
    assert said in found.message


def test_no_default_partition_is_said() -> None:
    """Without a default partition and without one asked for, the names to choose from are given."""
    cluster = replace(CLUSTER, partitions=(HIGH,))
    assert check(cluster)["partition.default"].override == "resources.partition=high"
