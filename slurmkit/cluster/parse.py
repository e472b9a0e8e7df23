"""Slurm's ``key=value`` text into values. Pure: text in, values out, for every release from 22.05."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from typing import TYPE_CHECKING

from ClusterShell.NodeSet import NodeSet

from slurmkit.cluster.fabric import Fabric, Switch
from slurmkit.cluster.model import ClusterConfig, Node, Partition
from slurmkit.runtime import requeue
from slurmkit.units import UNLIMITED, parse_duration, read_gres

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "expand",
    "parse_config",
    "parse_fabric",
    "parse_job",
    "parse_nodes",
    "parse_partitions",
    "parse_records",
    "parse_time",
]

# Slurm's keys start with a capital letter; the ones inside TRES lists ("cpu=8,mem=16G") do not.
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_:/]*)=")
# What a job's owner may write anything into: each ends where a field of Slurm's own begins.
_NAME = re.compile(r"(?<!\S)JobName=(.*?) (?=UserId=\S+\(\d+\) GroupId=)")
_COMMENT = re.compile(r"(?<!\S)Comment=(.*)\s+(?=StdErr=)")


def parse_records(text: str) -> list[dict[str, str]]:
    """Read ``scontrol --oneliner show node|partition|topology``: one record a line. Jobs: ``parse_job``.

    Values may hold spaces (``Reason=bad disk``): a value ends where the next capitalised key begins. The
    first value of a key counts: what a person can write (``Reason=was State=DOWN``) comes last.
    """
    return [_record(line) for line in text.splitlines() if "=" in line]


def _record(line: str) -> dict[str, str]:
    found = list(_KEY.finditer(line))
    ends = [match.start() for match in found[1:]] + [len(line)]
    record: dict[str, str] = {}
    for match, end in zip(found, ends, strict=True):
        record.setdefault(match[1], line[match.end() : end].strip())
    return record


def parse_job(text: str) -> dict[str, str]:
    """Read ``scontrol --oneliner show job`` of one job (of an array: its first record).

    The fields are ``runtime.requeue.parse_job``'s, and whole with them what it cuts out or off: the name and
    the comment, which may look like fields themselves.

    Returns:
        The fields; none where the text shows no job.
    """
    line = next((row for row in text.splitlines() if row.startswith("JobId=")), "")
    name = _NAME.search(line)
    comment = _COMMENT.search(line, name.end() if name else 0)
    found = {"JobName": name, "Comment": comment}
    return requeue.parse_job(line) | {key: match[1].strip() for key, match in found.items() if match}


def parse_time(text: str) -> float:
    """A point in time as Slurm's commands write it, in this machine's own time zone, in seconds since the epoch; 0 for none."""
    with contextlib.suppress(ValueError):  # Unknown, N/A
        return datetime.fromisoformat(text).timestamp()
    return 0.0


def expand(hostlist: str) -> tuple[str, ...]:
    """The names in a host list, in order; none for ``(null)``."""
    return () if hostlist in {"", "(null)"} else tuple(NodeSet(hostlist))


def parse_nodes(records: Iterable[Mapping[str, str]]) -> tuple[Node, ...]:
    """Nodes from ``show node`` records."""
    return tuple(_node(record) for record in records if "NodeName" in record)


def _node(record: Mapping[str, str]) -> Node:
    gres, unread = read_gres(record.get("Gres", ""))
    return Node(
        name=record["NodeName"],
        states=frozenset(record.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING").split("+")),
        cpus=int(record.get("CPUTot", 0)),
        memory=int(record.get("RealMemory", 0)),
        gres=gres,
        partitions=tuple(filter(None, record.get("Partitions", "").split(","))),
        unread_gres=unread,
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
