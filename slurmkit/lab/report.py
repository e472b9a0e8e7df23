"""What a lab says of itself: a short status, and everything at once for a failed test."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmkit.errors import LabError
from slurmkit.lab.config import LabShape, release_name
from slurmkit.lab.processes import tail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmkit.lab.record import Record

__all__ = ["LabStatus", "answer", "diagnose", "node_states", "read_status"]

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
        nodes: how many are in each state; None if slurmctld does not answer.
        jobs: how many are in each state; None if slurmctld does not answer.
        trouble: what is wrong, to be shown or raised: the daemon at fault, its last words, the way out.
    """

    shape: LabShape
    root: str
    release: str
    daemons: Mapping[str, bool]
    nodes: Mapping[str, int] | None
    jobs: Mapping[str, int] | None
    trouble: LabError | None = None

    @property
    def healthy(self) -> bool:
        """Whether every daemon is alive and slurmctld answers."""
        return self.trouble is None

    def as_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "name": self.shape.name,
            "root": self.root,
            "release": self.release,
            "healthy": self.healthy,
            "daemons": dict(self.daemons),
            "nodes": self.nodes,
            "jobs": self.jobs,
        }

    def __str__(self) -> str:
        dead = [name for name, alive in self.daemons.items() if not alive]
        alive = f"{len(self.daemons) - len(dead)} of {len(self.daemons)} alive"
        return "\n".join(
            [
                f"lab      {self.shape.name}: Slurm {self.release}, {self.shape}",
                f"folder   {self.root}",
                f"daemons  {alive}{'; dead: ' if dead else ''}{', '.join(dead)}",
                f"nodes    {_counted(self.nodes)}",
                f"jobs     {_counted(self.jobs)}",
            ]
        )


def _counted(states: Mapping[str, int] | None) -> str:
    if states is None:
        return "unknown: slurmctld does not answer"
    return ", ".join(f"{count} {state}" for state, count in states.items()) or "none"


def node_states(shape: LabShape) -> tuple[str, ...]:
    """The question for the state of each slurmd's node: ``extra`` may have added others, which nobody starts."""
    nodes = ",".join(shape.node_names)
    return ("sinfo", "--noheader", "--Node", "--partition=low", f"--nodes={nodes}", "--format=%T")


def read_status(lab: Record) -> LabStatus:
    """Ask a lab how it is. A slurmctld that hangs costs the time of one question."""
    daemons = {daemon.name: daemon.alive for daemon in lab.daemons}
    nodes = jobs = None
    if daemons.get("slurmctld"):
        nodes = _states(lab, *node_states(lab.spec.shape))
    if nodes is not None:
        jobs = _states(lab, "squeue", "--noheader", "--format=%T")
    return LabStatus(
        lab.spec.shape,
        lab.spec.root,
        release_name(lab.spec.release),
        daemons,
        nodes,
        jobs,
        _trouble(lab, answers=jobs is not None),
    )


def _states(lab: Record, *argv: str) -> Mapping[str, int] | None:
    said = answer(lab, *argv)
    return None if said is None else Counter(said.lower().split())


def _trouble(lab: Record, *, answers: bool) -> LabError | None:
    """Find the daemon at fault: the first one in the order of their start takes the later ones with it."""
    way_out = f"slurmkit lab down --name {lab.name}, then up again"
    if not lab.complete:
        return LabError(f"lab {lab.name} is being started, or its start was cut off", way_out)
    for daemon in lab.daemons:
        if not daemon.alive:
            what = "is dead"
        elif daemon.name == "slurmctld" and not answers:
            what = f"lives and does not answer within {_ANSWER_TIMEOUT} s"
        else:
            continue
        return LabError(
            f"{daemon.name} of lab {lab.name} {what}",
            f"{way_out}; its last words are below",
            tail(daemon.log),
        )
    return None


def diagnose(lab: Record) -> str:
    """All that explains a failure: daemons, nodes, jobs, and the tail of each log."""
    commands = (["sinfo", "--Node", "--long"], ["squeue", "--long"], ["scontrol", "show", "job"])
    parts = [str(read_status(lab))]
    parts += [f"$ {' '.join(argv)}\n{answer(lab, *argv) or ''}" for argv in commands]
    for daemon in lab.daemons:
        lines = _FEW_LINES if daemon.alive and daemon.name.startswith("slurmd ") else _MANY_LINES
        parts.append(f"== {daemon.name}: {daemon.log}\n{tail(daemon.log, lines)}")
    return "\n\n".join(parts)


def answer(lab: Record, *argv: str) -> str | None:
    """What a command prints in a lab; None if it fails, or if it gets no answer within 10 s."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env=lab.env, timeout=_ANSWER_TIMEOUT
        )
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return None
    return None if done.returncode else done.stdout
