"""The cluster as read at one time, in plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurmkit.units import Gres

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmkit.cluster.fabric import Fabric

__all__ = ["ClusterConfig", "ClusterSnapshot", "Gres", "Node", "Partition"]

#: Base states and flags of a node that can take no job until somebody or something mends it.
_UNFIT = frozenset(
    {"DOWN", "ERROR", "FUTURE", "UNKNOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "MAINTENANCE", "INVALID_REG"}
)
#: Flags of a node that Slurm itself powers up or down: for so long it answers nobody.
_POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"})


@dataclass(frozen=True)
class Node:
    """One node; memory in MiB."""

    name: str
    states: frozenset[str]
    """The base state and its flags, such as ``IDLE`` and ``DRAIN``; unknown ones are kept by name."""
    cpus: int
    memory: int
    gres: tuple[Gres, ...] = ()
    partitions: tuple[str, ...] = ()
    unread_gres: tuple[str, ...] = ()
    """What of ``Gres=`` is written in no way that we know: the node may have more than ``gres`` says."""

    @property
    def usable(self) -> bool:
        """Whether the node runs jobs or will without anybody's help.

        A powered-down cloud node does, and one that is being powered up, which does not respond yet.
        """
        expected = {"NOT_RESPONDING"} if self.states & _POWER else set()
        return not self.states & _UNFIT - expected

    def gres_count(self, name: str, kind: str = "") -> int:
        """How many of ``name`` (of type ``kind``, or of any) the node has, in use or not."""
        return sum(item.count for item in self.gres if item.name == name and (not kind or item.type == kind))


@dataclass(frozen=True)
class Partition:
    """One partition; times in seconds, ``units.UNLIMITED`` where there is no limit."""

    name: str
    default: bool
    state: str
    max_time: float
    max_nodes: float
    total_nodes: int
    """All of its nodes, also those that cannot be seen (powered-down cloud nodes are hidden by default)."""


@dataclass(frozen=True)
class ClusterConfig:
    """The controller's settings that decide what happens to a job."""

    cluster: str
    release: tuple[int, ...]
    """Such as ``(22, 5, 8)``."""
    options: Mapping[str, str] = field(default_factory=dict)
    """``scontrol show config`` as it is."""

    def option(self, name: str) -> str:
        """A setting, or the empty text where it is unset, unknown to the release or ``(null)``."""
        value = self.options.get(name, "")
        return "" if value in {"(null)", "N/A"} else value

    def scheduler_parameter(self, name: str) -> str:
        """One value of ``SchedulerParameters``, or the empty text."""
        for item in self.option("SchedulerParameters").split(","):
            key, _, value = item.partition("=")
            if key.strip() == name:
                return value.strip() or "yes"
        return ""

    @property
    def max_switch_wait(self) -> int:
        """Seconds that ``--switches=N@t`` is honoured at most (Slurm's default is 300)."""
        value = self.scheduler_parameter("max_switch_wait")
        return int(value) if value.isdecimal() else 300

    @property
    def array_limits(self) -> Mapping[str, int]:
        """How many tasks a job array may have, by the name of each setting that bounds it."""
        found = {name: self.option(name) for name in ("MaxArraySize", "MaxJobCount")}
        found["max_array_tasks"] = self.scheduler_parameter("max_array_tasks")
        return {name: int(value) for name, value in found.items() if value.isdecimal()}

    @property
    def rewriters(self) -> tuple[str, ...]:
        """Plugins that may change a job between ``sbatch`` and the queue, such as ``job_submit/lua``."""
        kinds = {"job_submit": "JobSubmitPlugins", "cli_filter": "CliFilterPlugins"}
        return tuple(
            f"{kind}/{name.strip().removeprefix(f'{kind}/')}"
            for kind, option in kinds.items()
            for name in self.option(option).split(",")
            if name.strip() not in {"", "none"}
        )


@dataclass(frozen=True)
class ClusterSnapshot:
    """The whole cluster, and when it was read (seconds since the epoch)."""

    read_at: float
    config: ClusterConfig
    partitions: tuple[Partition, ...]
    nodes: tuple[Node, ...]
    """Empty where the user may not see them (``PrivateData=nodes``): unknown, not absent."""
    fabric: Fabric

    def partition(self, name: str | None) -> Partition | None:
        """The partition of that name, or the default one for ``None``."""
        for item in self.partitions:
            if item.name == name or (name is None and item.default):
                return item
        return None

    def nodes_of(self, partition: str) -> tuple[Node, ...]:
        """The nodes of a partition that can be seen."""
        return tuple(node for node in self.nodes if partition in node.partitions)
