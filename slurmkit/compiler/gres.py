"""Generic resources against what Slurm takes and what the nodes have. Pure."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

from slurmkit.compiler.finding import Finding, Verdict
from slurmkit.config.schema import each_gpu
from slurmkit.units import Gres, parse_gres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slurmkit.cluster.model import Node, Partition
    from slurmkit.config.schema import Experiment

__all__ = ["asked_gres", "gres_findings", "mixed_gres"]

#: A resource's name and its type, which may be empty.
_Kind = tuple[str, str]

#: The keys of ``Resources`` that ask for generic resources.
_KEYS = ("gres", "gpus_per_node", "gpus_per_task")


def asked_gres(experiment: Experiment) -> list[tuple[str, Gres]]:
    """Everything asked a node, with the key that asks for it; what is asked twice is one sum."""
    tasks = experiment.resources.ntasks_per_node
    return [
        (f"resources.{key}", Gres(*kind, count * (tasks if key == "gpus_per_task" else 1)))
        for key in _KEYS
        for kind, count in _sums(experiment, key).items()
    ]


def _sums(experiment: Experiment, key: str) -> dict[_Kind, int]:
    """What one key asks for, by kind: a node, or a task where the key says so."""
    text = getattr(experiment.resources, key)
    sums: dict[_Kind, int] = {}
    for item in parse_gres(text if key == "gres" else each_gpu(text)) if text is not None else ():
        if item.count:
            kind = (item.name, item.type)
            sums[kind] = sums.get(kind, 0) + item.count
    return sums


def mixed_gres(experiment: Experiment) -> Iterator[Finding]:
    """The same resource with a type and without one, in one key or in several: sbatch refuses such a job."""
    typed = _types(experiment)
    for key, bare in asked_gres(experiment):
        if bare.type or bare.name not in typed:
            continue
        other, kind = typed[bare.name]
        where = "" if other == key else f" of {other.removeprefix('resources.')}"
        yield Finding(
            "gres.mixed",
            Verdict.IMPOSSIBLE,
            key,
            f"got {bare.name} without a type beside {_written(kind)}{where}, which Slurm refuses in one job",
            "a type for each of them, or for none",
            _mend(experiment, key, lambda asked: asked),
            subject=bare.name,
        )


def _types(experiment: Experiment) -> dict[str, tuple[str, _Kind]]:
    """The key and the first kind with a type, by the name of the resource."""
    return {
        item.name: (key, (item.name, item.type))
        for key, item in reversed(asked_gres(experiment))
        if item.type
    }


def _written(kind: _Kind) -> str:
    return ":".join(kind).rstrip(":")


def _mend(
    experiment: Experiment,
    key: str,
    fitting: Callable[[_Kind], _Kind | None],
    most: Callable[[_Kind], int] = lambda _: sys.maxsize,
) -> tuple[str, str]:
    """The override that mends all that is wrong with one key, and leaves the rest of its list as it is.

    Args:
        experiment: what is asked.
        key: such as ``resources.gres``.
        fitting: the kind to ask for in the place of one; ``None`` for none at all.
        most: how many of a kind a node has.
    """
    name, resources = key.removeprefix("resources."), experiment.resources
    typed, sums = _types(experiment), dict[_Kind, int]()
    for asked, count in _sums(experiment, name).items():
        kind = fitting(asked if asked[1] or asked[0] not in typed else typed[asked[0]][1])
        if kind is not None:
            sums[kind] = sums.get(kind, 0) + count
    each = resources.ntasks_per_node if name == "gpus_per_task" else 1
    if any(most(kind) < each for kind in sums):  # there is not one for each task
        able = min(most(kind) // count for kind, count in sums.items())
        return "resources.ntasks_per_node", str(max(1, able))
    words = [f"{_written(kind)}:{min(most(kind) // each, count)}" for kind, count in sums.items()]
    return key, ",".join(word if name == "gres" else word.removeprefix("gpu:") for word in words) or "null"


def gres_findings(experiment: Experiment, partition: Partition, nodes: Sequence[Node]) -> Iterator[Finding]:
    """What the nodes of a partition cannot give."""
    present = sorted({_written((item.name, item.type)) for node in nodes for item in node.gres})

    def most(kind: _Kind) -> int:
        return max(node.gres_count(*kind) for node in nodes)

    def fitting(kind: _Kind) -> _Kind | None:
        """The kind itself where nodes have it, else the nearest of the same name."""
        if most(kind):
            return kind
        same = {name.lower(): name for name in present if name.partition(":")[0] == kind[0]}
        near = difflib.get_close_matches(_written(kind).lower(), same, 1, 0.0)
        if not near:
            return None
        name, _, type_ = same[near[0]].partition(":")
        return name, type_

    for key, asked in asked_gres(experiment):
        kind = (asked.name, asked.type)
        wanted, there = _written(kind), most(kind)
        able = sum(node.gres_count(*kind) >= asked.count for node in nodes)
        if there == 0:
            same = next((name for name in present if name.lower() == wanted.lower()), "")
            note = f" (it has {same}: Slurm tells capital letters apart)" if same else ""
            yield Finding(
                "gres.type",
                Verdict.IMPOSSIBLE,
                key,
                f"no node of {partition.name} has {wanted}{note}",
                ", ".join(present) or "no gres at all",
                _mend(experiment, key, fitting, most),
                subject=wanted,
            )
        elif asked.count > there:
            yield Finding(
                "gres.count",
                Verdict.IMPOSSIBLE,
                key,
                f"got {asked.count} of {wanted} a node; no node of {partition.name} has more than {there}",
                f"1 to {there}",
                _mend(experiment, key, fitting, most),
                subject=wanted,
            )
        elif able < experiment.resources.nodes <= len(nodes):
            yield Finding(
                "gres.nodes",
                Verdict.IMPOSSIBLE,
                "resources.nodes",
                f"{experiment.resources.nodes} nodes with {asked.count} of {wanted} are asked; {partition.name} has {able}",
                f"1 to {able}",
                ("resources.nodes", str(able)),
                subject=wanted,
            )
