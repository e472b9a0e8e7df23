"""Generic resources against what Slurm takes and what the nodes have. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from slurmkit.compiler.finding import Finding, Verdict
from slurmkit.config.schema import each_gpu
from slurmkit.units import Gres, parse_gres

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurmkit.cluster.model import Node, Partition
    from slurmkit.config.schema import Experiment

__all__ = ["asked_gres", "gres_findings", "mixed_gres"]


def asked_gres(experiment: Experiment) -> list[tuple[str, Gres]]:
    """Everything asked a node, with the key that asks for it; what is asked twice is one sum."""
    resources = experiment.resources
    sums: dict[tuple[str, str, str], int] = {}
    for key, times in (("gres", 1), ("gpus_per_node", 1), ("gpus_per_task", resources.ntasks_per_node)):
        text = getattr(resources, key)
        for item in parse_gres(text if key == "gres" else each_gpu(text)) if text is not None else ():
            place = (f"resources.{key}", item.name, item.type)
            sums[place] = sums.get(place, 0) + item.count * times
    return [(key, Gres(name, kind, count)) for (key, name, kind), count in sums.items() if count]


def mixed_gres(experiment: Experiment) -> Iterator[Finding]:
    """The same resource with a type and without one, in one key or in several: sbatch refuses such a job."""
    asked = asked_gres(experiment)
    for key, bare in asked:
        beside = [(at, item) for at, item in asked if item.name == bare.name and item.type and not bare.type]
        if not beside:
            continue
        other, typed = beside[0]
        wanted = f"{typed.name}:{typed.type}"
        where = "" if other == key else f" of {other}"
        yield Finding(
            "gres.mixed",
            Verdict.IMPOSSIBLE,
            key,
            f"got {bare.name} without a type beside {wanted}{where}, which Slurm refuses in one job",
            "a type for each of them, or for none",
            _typed_override(key, typed, experiment),
        )


def _typed_override(key: str, typed: Gres, experiment: Experiment) -> str:
    """The same request with a type where it has none."""
    name = key.removeprefix("resources.")
    text = getattr(experiment.resources, name)
    sums: dict[str, int] = {}
    for item in parse_gres(text if name == "gres" else each_gpu(text)):
        kind = item.type or (typed.type if item.name == typed.name else "")
        full = f"{item.name}:{kind}".rstrip(":")
        full = full if name == "gres" else full.removeprefix("gpu:")
        sums[full] = sums.get(full, 0) + item.count
    value = ",".join(f"{full}:{count}" for full, count in sums.items())
    return f"'{key}=\"{value}\"'" if "," in value else f"{key}={value}"


def gres_findings(experiment: Experiment, partition: Partition, nodes: Sequence[Node]) -> Iterator[Finding]:
    """What the nodes of a partition cannot give."""
    for key, asked in asked_gres(experiment):
        present = sorted({f"{item.name}:{item.type}".rstrip(":") for node in nodes for item in node.gres})
        most = max(node.gres_count(asked.name, asked.type) for node in nodes)
        wanted = f"{asked.name}:{asked.type}".rstrip(":")
        if most == 0:
            near = (difflib.get_close_matches(wanted, present, 1, 0.0) or [""])[0]
            same = next((name for name in present if name.lower() == wanted.lower()), "")
            note = f" (it has {same}: Slurm tells capital letters apart)" if same else ""
            if near:
                count = max(node.gres_count(*near.split(":")) for node in nodes)
                mend = f"{near}:{min(asked.count, count)}"
            else:
                mend = "null"
            value = mend.removeprefix("gpu:") if key != "resources.gres" else mend
            yield Finding(
                "gres.type",
                Verdict.IMPOSSIBLE,
                key,
                f"no node of {partition.name} has {wanted}{note}",
                ", ".join(present) or "no gres at all",
                f"{key}={value}",
            )
        elif asked.count > most:
            yield Finding(
                "gres.count",
                Verdict.IMPOSSIBLE,
                key,
                f"got {asked.count} of {wanted} a node; no node of {partition.name} has more than {most}",
                f"1 to {most}",
                _count_override(key, wanted, most, experiment),
            )
        else:
            able = sum(node.gres_count(asked.name, asked.type) >= asked.count for node in nodes)
            if able < experiment.resources.nodes <= len(nodes):
                yield Finding(
                    "gres.nodes",
                    Verdict.IMPOSSIBLE,
                    "resources.nodes",
                    f"{experiment.resources.nodes} nodes with {asked.count} of {wanted} are asked; {partition.name} has {able}",
                    f"1 to {able}",
                    f"resources.nodes={able}",
                )


def _count_override(key: str, wanted: str, most: int, experiment: Experiment) -> str:
    if key == "resources.gres":
        return f"{key}={wanted}:{most}"
    count = most // experiment.resources.ntasks_per_node if key == "resources.gpus_per_task" else most
    return f"{key}={':'.join([*wanted.split(':')[1:], str(max(count, 1))])}"
