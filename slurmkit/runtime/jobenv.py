"""Which process of which job this is, read from the environment once.

Three sources, the first that applies: torchrun's variables (they win, also inside a Slurm job, because
torchrun starts the ranks there), the variables of a Slurm step, nothing (one process run by hand). A
batch shell is no step: what it runs without srun is a world of one.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JobEnv", "point_folder"]

_POINTS_PER_FOLDER = 1000
_PER_NODE = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def point_folder(run_dir: Path, point: int) -> Path:
    """The folder of one point of a run.

    Args:
        run_dir: the run folder.
        point: the index of the point.
    """
    return run_dir / "points" / str(point // _POINTS_PER_FOLDER) / str(point)


@dataclass(frozen=True)
class JobEnv:
    """One process, its place among the others, and the job and run that it belongs to."""

    source: Literal["slurm", "torchrun", "none"] = "none"
    """Who started the ranks."""
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    node: str = ""
    """SLURMD_NODENAME, else the host name (emulated nodes share the host name)."""
    cluster: str = ""
    job_id: str = ""
    """The raw job id. Never act on it: for the last task of an array it names the whole array."""
    own_id: str = ""
    """The id that names exactly this job or array task (``12_3``); empty outside of Slurm."""
    step_id: str = ""
    restart: int = 0
    """How often Slurm has requeued the job (the variable is unset in the first life)."""
    run_dir: Path = field(default_factory=lambda: Path("runs/local"))
    point: int = 0
    point_dir: Path = field(default_factory=lambda: point_folder(Path("runs/local"), 0))
    cpus_per_task: int = 1
    submit_dir: Path = field(default_factory=Path)
    """Where the job was submitted from; the working folder outside of Slurm."""

    @property
    def in_slurm(self) -> bool:
        """Whether there is a Slurm job around this process."""
        return bool(self.own_id)

    def life(self) -> dict[str, str | int]:
        """What names this life of this job, for everything that it writes."""
        return {"cluster": self.cluster, "job": self.own_id, "restart": self.restart}

    @classmethod
    def from_environ(cls, env: Mapping[str, str], default_run_dir: str = "runs/local") -> JobEnv:
        """Read the environment.

        Args:
            env: usually ``os.environ``.
            default_run_dir: the run folder where the job does not name one (run by hand).

        Raises:
            ConfigError: if a variable is malformed or contradicts another one.
        """
        reader = _Reader(env)
        if "TORCHELASTIC_RUN_ID" in env or all(key in env for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR")):
            ranks = reader.torchrun()
        elif all(key in env for key in ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")):
            ranks = reader.step()
        else:
            ranks = _Ranks("none", 0, 1, 0, 1, 0)
        if ranks.rank >= ranks.world_size:
            raise ConfigError(
                f"rank {ranks.rank} of {ranks.world_size} ranks (from the variables of {ranks.source}): "
                f"accepted are 0 to {ranks.world_size - 1}",
                hint="variables of another step or job are in this environment: start the ranks with srun",
            )
        point = reader.count("SLURMKIT_POINT", 0)
        run_dir = Path(env.get("SLURMKIT_RUN_DIR") or default_run_dir).absolute()
        own_point_dir = env.get("SLURMKIT_POINT_DIR")
        job_id = env.get("SLURM_JOB_ID", "")
        submit_dir = env.get("SLURM_SUBMIT_DIR") if job_id else None
        return cls(
            source=ranks.source,
            rank=ranks.rank,
            world_size=ranks.world_size,
            local_rank=ranks.local_rank,
            local_world_size=ranks.local_world_size,
            node_rank=ranks.node_rank,
            node=env.get("SLURMD_NODENAME") or socket.gethostname(),
            cluster=env.get("SLURM_CLUSTER_NAME", ""),
            job_id=job_id,
            own_id=reader.own_id(),
            step_id=env.get("SLURM_STEP_ID", "") if ranks.source == "slurm" else "",
            restart=reader.count("SLURM_RESTART_COUNT", 0),
            run_dir=run_dir,
            point=point,
            point_dir=Path(own_point_dir).absolute() if own_point_dir else point_folder(run_dir, point),
            cpus_per_task=reader.cpus(ranks),
            submit_dir=Path(submit_dir) if submit_dir else Path.cwd(),
        )


@dataclass(frozen=True)
class _Ranks:
    source: Literal["slurm", "torchrun", "none"]
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int


class _Reader:
    """Typed look-ups in an environment, with errors that name the variable."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env

    def count(self, name: str, default: int | None = None, least: int = 0) -> int:
        text = self.env.get(name)
        if text is None or text == "":
            if default is None:
                raise ConfigError(
                    f"{name} is not set: accepted is a whole number from {least} up (from the environment)",
                    hint="start the ranks with srun or torchrun, which set all of them",
                )
            return default
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise ConfigError(
                f"{name}={text!r}: accepted is a whole number from {least} up (from the environment)"
            )
        return int(text)

    def torchrun(self) -> _Ranks:
        world = self.count("WORLD_SIZE", least=1)
        return _Ranks(
            "torchrun",
            self.count("RANK"),
            world,
            self.count("LOCAL_RANK", 0),
            self.count("LOCAL_WORLD_SIZE", 1, least=1),
            self.count("GROUP_RANK", 0),
        )

    def step(self) -> _Ranks:
        world = self.count("SLURM_STEP_NUM_TASKS", least=1)
        node_rank = self.count("SLURM_NODEID", 0)
        per_node = self.tasks_per_node("SLURM_STEP_TASKS_PER_NODE", world)
        if node_rank >= len(per_node):
            raise ConfigError(
                f"SLURM_NODEID={node_rank}: SLURM_STEP_TASKS_PER_NODE names {len(per_node)} nodes, "
                f"accepted are 0 to {len(per_node) - 1} (from the environment)"
            )
        return _Ranks(
            "slurm",
            self.count("SLURM_PROCID"),
            world,
            self.count("SLURM_LOCALID", 0),
            per_node[node_rank],
            node_rank,
        )

    def tasks_per_node(self, name: str, world: int) -> list[int]:
        text = self.env.get(name)
        if not text:
            return [world]
        counts: list[int] = []
        for part in text.split(","):
            match = _PER_NODE.fullmatch(part)
            if match is None:
                raise ConfigError(f"{name}={text!r}: accepted are counts such as '2', '4,2' or '2(x3),1'")
            counts += [int(match[1])] * int(match[2] or 1)
        return counts

    def own_id(self) -> str:
        array, task = self.env.get("SLURM_ARRAY_JOB_ID"), self.env.get("SLURM_ARRAY_TASK_ID")
        if array and task:
            return f"{array}_{self.count('SLURM_ARRAY_TASK_ID')}"
        return self.env.get("SLURM_JOB_ID", "")

    def cpus(self, ranks: _Ranks) -> int:
        if "SLURM_CPUS_PER_TASK" in self.env:
            return self.count("SLURM_CPUS_PER_TASK", 1, least=1)
        if ranks.source == "none" and not self.env.get("SLURM_JOB_ID"):
            return len(os.sched_getaffinity(0))
        return self.count("OMP_NUM_THREADS", 1, least=1) if ranks.source == "torchrun" else 1
