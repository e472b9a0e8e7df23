"""Several ranks as processes of this machine, in the clothes of a Slurm step.

They are forked from a server that has imported torch once: an import in each rank would be most of a test's
time. The command itself, with its own imports, is what ``test_stop.py`` and the lab tests start.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import runner
from polling import wait_until

from slurmkit.runtime.records import read_json, read_json_lines
from trainer.events import loss_curve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.process import BaseProcess
    from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["trainer.loop", "torch._dynamo", "omegaconf"])


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
class Rank:
    """One process, and the files that hold what it says."""

    process: BaseProcess
    out: Path
    err: Path

    def poll(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()

    def send_signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


@dataclass
class Step:
    """The processes of one life, rank 0 first."""

    processes: list[Rank]
    run_dir: Path
    said: list[tuple[str, str]] = field(default_factory=list)

    @property
    def point(self) -> Path:
        return self.run_dir / "points" / "0" / "0"

    def wait(self, timeout: float = 90) -> list[int]:
        """The exit codes; at the deadline the stacks of all ranks are part of the failure."""
        deadline = time.monotonic() + timeout
        for rank in self.processes:
            rank.process.join(max(0.0, deadline - time.monotonic()))
        late = [rank for rank in self.processes if rank.poll() is None]
        for rank in late:
            rank.send_signal(signal.SIGUSR2)
            with contextlib.suppress(AssertionError):
                wait_until(lambda rank=rank: "(most recent call first)" in rank.err.read_text(), 5, "a stack")
        self.said = [(rank.out.read_text(), rank.err.read_text()) for rank in self.processes]
        codes = [rank.poll() for rank in self.processes]
        assert not late, f"after {timeout} s the exit codes are {codes}\n" + "\n".join(
            f"-- rank {number}:\n{out}{err}" for number, (out, err) in enumerate(self.said)
        )
        return [code for code in codes if code is not None]

    def wait_step(self, step: int, timeout: float = 90) -> None:
        def there() -> bool:
            assert all(rank.poll() is None for rank in self.processes), (self.wait(), self.said)
            return any(line["step"] >= step for line in read_json_lines(self.point / "metrics.jsonl"))

        wait_until(there, timeout, f"step {step}")


@contextlib.contextmanager
def started(
    world: int,
    run_dir: Path,
    overrides: Sequence[str],
    *,
    restart: int = 0,
    pause: float = 0.0,
    file_limit: int = 0,
    per_rank: Sequence[Sequence[str]] = (),
) -> Iterator[Step]:
    """Start the ranks, and end whatever is left of them at the end.

    ``file_limit`` is the largest file of rank 0 in bytes, a full disk for whoever writes more.
    """
    said = run_dir.with_name(f"said-{run_dir.name}-{restart}")
    said.mkdir(parents=True, exist_ok=True)
    base = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "GLOO"))}
    ranks = []
    for rank in range(world):
        words = ["trainer.rendezvous_seconds=60", *overrides, *(per_rank[rank] if per_rank else [])]
        env = base | step_variables(rank, world, run_dir, restart) | {"TEST_PAUSE": str(pause)}
        out, err = said / f"{rank}.out", said / f"{rank}.err"
        limit = 0 if rank else file_limit
        process = _SERVER.Process(target=_be_a_rank, args=(words, env, str(out), str(err), limit))
        for file in (out, err):
            file.write_text("")
        process.start()
        ranks.append(Rank(process, out, err))
    try:
        yield Step(ranks, run_dir)
    finally:
        for one in ranks:
            one.kill()
            one.process.join()
            one.process.close()


def _be_a_rank(words: list[str], env: dict[str, str], out: str, err: str, file_limit: int) -> None:
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(env)
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    sys.exit(runner.run(words))


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
