"""Several ranks as processes of this machine, in the clothes of a Slurm step."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmkit.runtime.records import read_json, read_json_lines
from trainer.events import loss_curve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

RUNNER = Path(__file__).with_name("runner.py")


def step_variables(rank: int, world: int, run_dir: Path, restart: int = 0) -> dict[str, str]:
    """What srun would say; no job id, so that nobody asks a Slurm."""
    variables = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(world),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": str(world),
        "SLURM_CPUS_PER_TASK": "1",
        "SLURMD_NODENAME": f"n{rank}",
        "SLURMKIT_RUN_DIR": str(run_dir),
    }
    return variables | ({"SLURM_RESTART_COUNT": str(restart)} if restart else {})


@dataclass
class Step:
    """The processes of one life, rank 0 first."""

    processes: list[subprocess.Popen[str]]
    run_dir: Path

    @property
    def point(self) -> Path:
        return self.run_dir / "points" / "0" / "0"

    def wait(self, timeout: float = 90) -> list[int]:
        deadline = time.monotonic() + timeout
        self.said = [
            process.communicate(timeout=max(1, deadline - time.monotonic())) for process in self.processes
        ]
        return [process.returncode for process in self.processes]

    def wait_step(self, step: int, timeout: float = 90) -> None:
        deadline = time.monotonic() + timeout
        while not any(line["step"] >= step for line in read_json_lines(self.point / "metrics.jsonl")):
            assert time.monotonic() < deadline, f"step {step} did not come"
            assert all(process.poll() is None for process in self.processes), self.wait()
            time.sleep(0.02)


@contextlib.contextmanager
def started(
    world: int,
    run_dir: Path,
    overrides: Sequence[str],
    *,
    restart: int = 0,
    pause: float = 0.0,
    limit: Callable[[], None] | None = None,
    per_rank: Sequence[Sequence[str]] = (),
) -> Iterator[Step]:
    """Start the ranks, and end whatever is left of them at the end."""
    root = RUNNER.parents[3]
    processes = []
    for rank in range(world):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "GLOO"))}
        own = [*overrides, *(per_rank[rank] if per_rank else [])]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-u", str(RUNNER), "trainer.rendezvous_seconds=60", *own],
                env=env
                | step_variables(rank, world, run_dir, restart)
                | {"PYTHONPATH": f"{root}:{root}/tests/lab", "TEST_PAUSE": str(pause)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=limit if rank == 0 else None,  # noqa: PLW1509 - one thread here
            )
        )
    try:
        yield Step(processes, run_dir)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def proof(run_dir: Path) -> dict[str, Any]:
    """What must be the same to the bit, however often the run was interrupted."""
    point = run_dir / "points" / "0" / "0"
    result = read_json(point / "result.json")
    assert result is not None
    keys = ("parameters_sha256", "samples", "steps", "loss")
    return {**{key: result[key] for key in keys}, "losses": loss_curve(point)}


def fed(run_dir: Path, world: int) -> list[int]:
    """The sample ids that the ranks were fed, in the order of the run; the newest life of a place counts."""
    places: dict[int, int] = {}
    for rank in range(world):
        for line in read_json_lines(run_dir / "points" / "0" / "0" / f"samples-{rank}.jsonl"):
            places.update({line["place"] + turn: one for turn, one in enumerate(line["ids"])})
    assert sorted(places) == list(range(len(places)))
    return [places[place] for place in sorted(places)]
