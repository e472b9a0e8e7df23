"""What stands between an experiment and this cluster. Pure: an experiment and a snapshot in, findings out."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from slurmkit.compiler.finding import Finding, Verdict, doubted
from slurmkit.compiler.gres import asked_gres, gres_findings, mixed_gres
from slurmkit.units import (
    UNLIMITED,
    format_duration,
    format_memory,
    parse_duration,
    parse_memory,
    parse_time_limit,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from slurmkit.cluster.model import ClusterSnapshot, Node, Partition
    from slurmkit.config.schema import Experiment

__all__ = ["Finding", "Verdict", "preflight"]

#: What a signal ahead of the time limit does to each kind of payload.
_SIGNALLED = {
    "trainer": "the run only saves and requeues",
    "command": "ends a command that does not catch it",
    "function": "ends a task that does not catch it",
}


def preflight(
    experiment: Experiment, snapshot: ClusterSnapshot, array: int | None = None
) -> tuple[Finding, ...]:
    """Compare what is asked with what the cluster has.

    Where a job_submit or cli_filter plugin is configured nothing about the job is *impossible*: the plugin
    may route it elsewhere, so such findings become *unknown*.

    Args:
        experiment: what is asked. Keys and overrides are written as they are where its sections are mounted.
        snapshot: the cluster.
        array: the size of the job array; ``None`` for a single run.
    """
    findings: Iterable[Finding] = _findings(experiment, snapshot)
    rewriters = snapshot.config.rewriters
    if rewriters:
        findings = doubted(findings, f"this site's {', '.join(rewriters)} may rewrite the job")
    return tuple(item.mounted(experiment.mount) for item in (*findings, *_array(array, snapshot)))


def _array(array: int | None, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """No plugin of a site can change the size of an array: this is certain."""
    limits = snapshot.config.array_limits
    most = min(limits.values(), default=0)
    if array is None or not limits or array <= most:
        return
    said = ", ".join(f"{name}={limit}" for name, limit in limits.items())
    mend = "submit each point by itself"
    if most:
        turns = ", one after the other" if limits.get("MaxJobCount", array) < array else ""
        mend = f"submit {-(-array // most)} sweeps of at most {most} points{turns}"
    yield Finding(
        "sweep.size",
        Verdict.IMPOSSIBLE,
        "the sweep",
        f"it has {array} points, and one job array holds {most} here ({said})",
        f"1 to {most} points" if most else "no job arrays at all",
        advice=mend,
    )


def _findings(experiment: Experiment, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    yield from mixed_gres(experiment)
    yield from _data(experiment)
    asked = experiment.resources.partition
    names = [name.strip() for name in asked.split(",")] if asked else [None]
    found = [snapshot.partition(name) for name in names]
    for name, partition in zip(names, found, strict=True):
        if partition is None:
            yield _unknown_partition(name, names, snapshot)
    partitions = [partition for partition in found if partition is not None]
    if not partitions:
        return
    # A list of partitions is an "or" in Slurm: a finding counts only if every partition has it.
    first, *others = (list(_partition_findings(experiment, snapshot, item)) for item in partitions)
    places = [{item.place for item in other} for other in others]
    yield from (item for item in first if all(item.place in other for other in places))


def _data(experiment: Experiment) -> Iterator[Finding]:
    """The nodes may see what the login node does not: nobody can tell from here."""
    if experiment.unseen:
        yield Finding(
            "data.unseen",
            Verdict.UNKNOWN,
            "data.path",
            f"{experiment.unseen} cannot be seen from here",
            "an HDF5 file that every node sees",
            advice="say where with data.path=FILE, or make it with: python -m trainer.data prepare",
        )


def _unknown_partition(name: str | None, names: Sequence[str | None], snapshot: ClusterSnapshot) -> Finding:
    known = [partition.name for partition in snapshot.partitions]
    if name is None:
        return Finding(
            "partition.default",
            Verdict.IMPOSSIBLE,
            "resources.partition",
            "none is asked for and this cluster has no default",
            ", ".join(known) or "none that you may see",
            ("resources.partition", known[0]) if known else None,
        )
    default = snapshot.partition(None)
    like = difflib.get_close_matches(name, known, 1) or [default.name if default else "", *known]
    near = next(filter(None, like), "")
    mended = dict.fromkeys(near if each == name else str(each) for each in names)
    return Finding(
        "partition.unknown",
        Verdict.IMPOSSIBLE,
        "resources.partition",
        f"got {name!r}, which this cluster does not have",
        ", ".join(known) or "none that you may see",
        ("resources.partition", ",".join(mended)) if near else None,
        subject=name,
    )


def _partition_findings(
    experiment: Experiment, snapshot: ClusterSnapshot, partition: Partition
) -> Iterator[Finding]:
    yield from _time(experiment, partition)
    if partition.state != "UP":
        yield Finding(
            "partition.state",
            Verdict.NOT_NOW,
            "resources.partition",
            f"{partition.name} is {partition.state}",
            "a partition that is UP",
            advice="choose another one, or let it wait",
        )
    yield from _node_limit(experiment, partition)
    nodes = snapshot.nodes_of(partition.name)
    total = max(partition.total_nodes, len(nodes))
    if 0 < total < experiment.resources.nodes:
        yield _too_many(experiment, f"{partition.name} has {total} nodes", total)
    if not nodes:
        yield Finding(
            "nodes.hidden",
            Verdict.UNKNOWN,
            "resources.nodes",
            f"the nodes of {partition.name} cannot be seen",
            "nothing is checked against them",
            advice="ask the site about PrivateData",
        )
        return
    found = _node_findings(experiment, snapshot, partition, nodes)
    if total > len(nodes):
        hidden = (
            f"{total - len(nodes)} of the {total} nodes of {partition.name} cannot be seen, "
            "as powered-down cloud nodes without PrivateData=cloud"
        )
        found = (replace(item, verdict=Verdict.UNKNOWN) for item in doubted(found, hidden))
    yield from found


def _node_findings(
    experiment: Experiment, snapshot: ClusterSnapshot, partition: Partition, nodes: Sequence[Node]
) -> Iterator[Finding]:
    yield from _nodes(experiment, partition, nodes)
    yield from _named_nodes(experiment, nodes)
    yield from _node_size(experiment, partition, nodes)
    unread = next((node for node in nodes if node.unread_gres), None)
    gres = gres_findings(experiment, partition, nodes)
    if unread is not None:
        gres = doubted(gres, f"Gres={','.join(unread.unread_gres)} of {unread.name} cannot be read")
    yield from gres
    yield from _switches(experiment, snapshot, nodes)


def _too_many(experiment: Experiment, there: str, most: int) -> Finding:
    return Finding(
        "nodes.count",
        Verdict.IMPOSSIBLE,
        "resources.nodes",
        f"got {experiment.resources.nodes}, and {there}",
        f"1 to {most}",
        ("resources.nodes", str(most)),
    )


def _time(experiment: Experiment, partition: Partition) -> Iterator[Finding]:
    asked = parse_time_limit(experiment.resources.time)
    if asked > partition.max_time:
        limit = format_duration(partition.max_time)
        yield Finding(
            "time.limit",
            Verdict.IMPOSSIBLE,
            "resources.time",
            f"got {format_duration(asked)}, over the limit of {partition.name}",
            f"up to {limit}",
            ("resources.time", limit),
        )
    lead = experiment.requeue.signal_lead
    if experiment.signal and asked != UNLIMITED and lead >= asked:
        yield Finding(
            "signal.lead",
            Verdict.UNKNOWN,
            "requeue.signal_lead",
            f"{lead} s ahead of a limit of {asked:.0f} s: the signal comes at once, and {_SIGNALLED[experiment.payload.kind]}",
            f"less than {asked:.0f}",
            ("requeue.signal_lead", str(int(asked) // 4)),
        )


def _node_limit(experiment: Experiment, partition: Partition) -> Iterator[Finding]:
    nodes = experiment.resources.nodes
    if nodes > partition.max_nodes:
        yield Finding(
            "nodes.limit",
            Verdict.IMPOSSIBLE,
            "resources.nodes",
            f"got {nodes}, over MaxNodes of {partition.name}",
            f"1 to {partition.max_nodes:.0f}",
            ("resources.nodes", f"{partition.max_nodes:.0f}"),
        )


def _nodes(experiment: Experiment, partition: Partition, nodes: Sequence[Node]) -> Iterator[Finding]:
    asked = experiment.resources.nodes
    usable = sum(node.usable for node in nodes)
    if len(nodes) < asked <= partition.total_nodes:
        yield _too_many(experiment, f"{len(nodes)} nodes of {partition.name} are seen", len(nodes))
    elif usable < asked <= len(nodes):
        yield Finding(
            "nodes.usable",
            Verdict.NOT_NOW,
            "resources.nodes",
            f"got {asked}; {len(nodes) - usable} of {len(nodes)} nodes of {partition.name} are down or drained",
            f"1 to {usable} now" if usable else "none now",
            ("resources.nodes", str(usable)) if usable else None,
            "the job waits until they are back; see why they are not with: sinfo --list-reasons",
        )


def _named_nodes(experiment: Experiment, nodes: Sequence[Node]) -> Iterator[Finding]:
    """The nodes that are asked for by name: the job gets all of them, or waits."""
    asked = experiment.resources.nodelist or ""
    if "/" in asked:  # a file of names
        return
    try:
        named = NodeSet(asked, resolver=RESOLVER_NOGROUP)
    except NodeSetException:  # sbatch says what is wrong with it
        return
    unfit = named & NodeSet.fromlist(
        (node.name for node in nodes if not node.usable), resolver=RESOLVER_NOGROUP
    )
    if unfit:
        yield Finding(
            "nodelist.usable",
            Verdict.NOT_NOW,
            "resources.nodelist",
            f"got {asked}; {unfit} {'are' if len(unfit) > 1 else 'is'} down or drained",
            "nodes that are up",
            advice="the job waits until they are back; see why they are not with: sinfo --list-reasons",
        )


def _cpus(experiment: Experiment, partition: Partition, most: int) -> Iterator[Finding]:
    """CPUs a node: of each task, or of each GPU."""
    resources = experiment.resources
    tasks, gpus = (
        resources.ntasks_per_node,
        sum(item.count for _, item in asked_gres(experiment) if item.name == "gpu"),
    )
    key, each, times, what = "cpus_per_task", resources.cpus_per_task or 1, tasks, "tasks"
    if resources.cpus_per_gpu is not None and gpus:
        key, each, times, what = "cpus_per_gpu", resources.cpus_per_gpu, gpus, "GPUs"
    if max(each * times, tasks) <= most:
        return
    if tasks > most:  # no number of CPUs a task mends that
        key, limit, message = "ntasks_per_node", most // each or most, f"{tasks} tasks a node need a CPU each"
    else:
        limit, message = most // times, f"{times} {what} of {each} CPUs a node make {each * times}"
    yield Finding(
        "cpus.count",
        Verdict.IMPOSSIBLE,
        f"resources.{key}",
        f"{message}; the largest node of {partition.name} has {most}",
        f"1 to {limit}",
        (f"resources.{key}", str(limit or "null")),
    )


def _node_size(experiment: Experiment, partition: Partition, nodes: Sequence[Node]) -> Iterator[Finding]:
    resources = experiment.resources
    yield from _cpus(experiment, partition, max(node.cpus for node in nodes))
    if resources.mem is not None:
        asked, memory = parse_memory(resources.mem), max(node.memory for node in nodes)
        if asked > memory:
            yield Finding(
                "mem.size",
                Verdict.IMPOSSIBLE,
                "resources.mem",
                f"got {resources.mem}; the largest node of {partition.name} has {format_memory(memory)}",
                f"up to {format_memory(memory)}",
                ("resources.mem", format_memory(memory)),
            )


def _switches(experiment: Experiment, snapshot: ClusterSnapshot, nodes: Sequence[Node]) -> Iterator[Finding]:
    count, asked = experiment.topology.switches, experiment.resources.nodes
    if count is None or not snapshot.fabric.leaves:
        return
    held = snapshot.fabric.largest_leaves(frozenset(node.name for node in nodes), count)
    if asked > held:
        wait = min(parse_duration(experiment.topology.wait), snapshot.config.max_switch_wait)
        there = f"which hold {held}" if held else "below which the partition has no node"
        yield Finding(
            "switches.span",
            Verdict.NOT_NOW,
            "topology.switches",
            f"{asked} nodes never fit under {count} leaf switch{'es' if count > 1 else ''} ({there}): the job waits {format_duration(wait)} for them, then spans more",
            f"1 to {held} nodes, or more switches" if held else "null",
            ("topology.switches", "null"),
        )
