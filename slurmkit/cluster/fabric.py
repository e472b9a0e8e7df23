"""The switches between the nodes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Fabric", "Switch"]


@dataclass(frozen=True)
class Switch:
    """One switch of a tree; level 0 is a leaf. ``nodes`` are all that lie below it."""

    name: str
    level: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Fabric:
    """A tree of switches, or no switches at all (a flat cluster)."""

    switches: tuple[Switch, ...] = ()

    @property
    def leaves(self) -> tuple[Switch, ...]:
        """The switches that nodes are plugged into, in Slurm's order."""
        return tuple(switch for switch in self.switches if switch.level == 0)

    def largest_leaves(self, among: frozenset[str], count: int) -> int:
        """How many of the nodes ``among`` the ``count`` fullest leaves hold together."""
        sizes = sorted((len(among.intersection(leaf.nodes)) for leaf in self.leaves), reverse=True)
        return sum(sizes[:count])
