"""Slurm's ``key=value`` text into values. Pure: text in, values out, for every release from 22.05."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ClusterShell.NodeSet import NodeSet

from slurmkit.cluster.fabric import Fabric, Switch
from slurmkit.cluster.model import ClusterConfig, Gres, Node, Partition
from slurmkit.units import UNLIMITED, parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "expand",
    "parse_config",
    "parse_fabric",
    "parse_gres",
    "parse_nodes",
    "parse_partitions",
    "parse_records",
]

# Slurm's keys start with a capital letter; the ones inside TRES lists ("cpu=8,mem=16G") do not.
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_:/]*)=")
_GRES = re.compile(
    r"(?P<name>[^:(,]+)(?::(?P<type>[^:(,]*[^:(,\d][^:(,]*))?(?::(?P<count>\d+)(?P<unit>[KMGT]?))?(?:\([^)]*\))?"
)
_UNIT = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def parse_records(text: str) -> list[dict[str, str]]:
    """Read ``scontrol --oneliner show …``: one record a line.

    Values may hold spaces (``Reason=bad disk``): a value ends where the next capitalised key begins.
    """
    return [_record(line) for line in text.splitlines() if "=" in line]


def _record(line: str) -> dict[str, str]:
    found = list(_KEY.finditer(line))
    ends = [match.start() for match in found[1:]] + [len(line)]
    return {match[1]: line[match.end() : end].strip() for match, end in zip(found, ends, strict=True)}


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Read a node's ``Gres=``: ``gpu:a100:8(S:0-1),shard:16`` and ``gpu:tesla:3(IDX:0,2-3)`` and ``(null)``."""
    if text in {"", "(null)", "N/A"}:
        return ()
    items = re.split(r",(?![^(]*\))", text)  # not the commas inside (IDX:0,2-3)
    matches = [_GRES.fullmatch(item.strip()) for item in items]
    return tuple(
        Gres(match["name"], match["type"] or "", int(match["count"] or 1) * _UNIT[match["unit"] or ""])
        for match in matches
        if match
    )


def expand(hostlist: str) -> tuple[str, ...]:
    """The names in a host list, in order; none for ``(null)``."""
    return () if hostlist in {"", "(null)"} else tuple(NodeSet(hostlist))


def parse_nodes(records: Iterable[Mapping[str, str]]) -> tuple[Node, ...]:
    """Nodes from ``show node`` records."""
    return tuple(
        Node(
            name=record["NodeName"],
            states=frozenset(record.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING").split("+")),
            cpus=int(record.get("CPUTot", 0)),
            memory=int(record.get("RealMemory", 0)),
            gres=parse_gres(record.get("Gres", "")),
            partitions=tuple(filter(None, record.get("Partitions", "").split(","))),
        )
        for record in records
        if "NodeName" in record
    )


def _limit(text: str) -> float:
    return float(text) if text.isdecimal() else UNLIMITED


def parse_partitions(records: Iterable[Mapping[str, str]]) -> tuple[Partition, ...]:
    """Partitions from ``show partition`` records."""
    return tuple(
        Partition(
            name=record["PartitionName"],
            default=record.get("Default") == "YES",
            state=record.get("State", "UP"),
            max_time=parse_duration(record.get("MaxTime", "UNLIMITED"), "MaxTime of the partition"),
            max_nodes=_limit(record.get("MaxNodes", "UNLIMITED")),
            preempt_mode=record.get("PreemptMode", "OFF"),
            grace_time=_limit(record.get("GraceTime", "0")),
            total_nodes=int(record.get("TotalNodes", 0)),
        )
        for record in records
        if "PartitionName" in record
    )


def parse_config(text: str) -> ClusterConfig:
    """``scontrol show config``: ``Key = value`` a line, the release in ``SLURM_VERSION``."""
    options: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            options[key.strip()] = value.strip()
    release = tuple(int(part) for part in re.findall(r"\d+", options.get("SLURM_VERSION", "")))
    return ClusterConfig(options.get("ClusterName", ""), release, options)


def parse_fabric(records: Iterable[Mapping[str, str]]) -> Fabric:
    """The tree from ``show topology`` records; a flat cluster has none."""
    return Fabric(
        tuple(
            Switch(record["SwitchName"], int(record.get("Level", 0)), expand(record.get("Nodes", "")))
            for record in records
            if "SwitchName" in record
        )
    )
