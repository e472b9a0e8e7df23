"""What a lab says of itself: a short status, and everything at once for a failed test."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmkit.lab.config import LabShape, release_name
from slurmkit.lab.processes import tail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmkit.lab.record import Record

__all__ = ["LabStatus", "diagnose", "read_status"]

_ANSWER_TIMEOUT = 10
_FEW_LINES, _MANY_LINES = 5, 30


@dataclass(frozen=True)
class LabStatus:
    """Whether a lab is well.

    Attributes:
        shape: what was asked of it.
        root: its folder.
        release: of Slurm.
        daemons: whether each is alive.
        nodes: how many are in each state; none if slurmctld does not answer.
        jobs: how many are in each state.
    """

    shape: LabShape
    root: str
    release: str
    daemons: Mapping[str, bool]
    nodes: Mapping[str, int]
    jobs: Mapping[str, int]

    @property
    def healthy(self) -> bool:
        """Whether every daemon is alive."""
        return bool(self.daemons) and all(self.daemons.values())

    def as_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "name": self.shape.name,
            "root": self.root,
            "release": self.release,
            "healthy": self.healthy,
            "daemons": dict(self.daemons),
            "nodes": dict(self.nodes),
            "jobs": dict(self.jobs),
        }

    def __str__(self) -> str:
        dead = [name for name, alive in self.daemons.items() if not alive]
        alive = f"{len(self.daemons) - len(dead)} of {len(self.daemons)} alive"
        return "\n".join(
            [
                f"lab      {self.shape.name}: Slurm {self.release}, {self.shape}",
                f"folder   {self.root}",
                f"daemons  {alive}{'; dead: ' if dead else ''}{', '.join(dead)}",
                f"nodes    {_counted(self.nodes) or 'slurmctld does not answer'}",
                f"jobs     {_counted(self.jobs) or 'none'}",
            ]
        )


def _counted(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items())


def read_status(lab: Record) -> LabStatus:
    """Ask a lab how it is."""
    daemons = {daemon.name: daemon.alive for daemon in lab.daemons}
    nodes = jobs = ""
    if daemons.get("slurmctld"):
        nodes = _answer(lab, "sinfo", "--noheader", "--Node", "--partition=low", "--format=%T")
        jobs = _answer(lab, "squeue", "--noheader", "--format=%T")
    return LabStatus(
        lab.spec.shape,
        lab.spec.root,
        release_name(lab.spec.release),
        daemons,
        Counter(nodes.split()),
        Counter(state.lower() for state in jobs.split()),
    )


def diagnose(lab: Record) -> str:
    """All that explains a failure: daemons, nodes, jobs, and the tail of each log."""
    commands = (["sinfo", "--Node", "--long"], ["squeue", "--long"], ["scontrol", "show", "job"])
    parts = [str(read_status(lab))]
    parts += [f"$ {' '.join(argv)}\n{_answer(lab, *argv)}" for argv in commands]
    for daemon in lab.daemons:
        lines = _FEW_LINES if daemon.alive and daemon.name.startswith("slurmd ") else _MANY_LINES
        parts.append(f"== {daemon.name}: {daemon.log}\n{tail(daemon.log, lines)}")
    return "\n\n".join(parts)


def _answer(lab: Record, *argv: str) -> str:
    """What a command prints; a controller that does not answer gives nothing."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env=lab.env, timeout=_ANSWER_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout
