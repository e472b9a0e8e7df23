"""What the trainer's duties cost a step: its loop beside a bare DDP loop of the same model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from trainer.data import prepare

from .figures import ROOT, BenchError, Figure, Section, ratio
from .step_rank import BLOCK, RESULT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PAIRS, STEPS, RANKS = 12, 40, 2
_TRAINING = ["experiment=gpt_ddp", "model.layers=4", "trainer.batch_size=4"]
_ENDS = 2
_FOREIGN = ("SLURM", "GLOO", "PYTHON", "OMP_", "TORCHELASTIC", "RANK", "WORLD_SIZE")
_TEXT = (
    f"{RANKS} ranks of one thread each, gloo, and the GPT and batch sized for steps of about 50 ms. In the same processes "
    f"and process group, blocks of {STEPS} steps in turns: the trainer's own loop with all of its duties (each step the "
    "agreement of the ranks on signals, loss and sample order, the learning rate, a line of metrics; now and then a line on "
    "stdout; no checkpoint falls into a block), and a bare loop of load, forward, backward, clip and optimizer step on a "
    "second copy of the model. Loader (one worker process a rank), DDP, optimizer and kernels are the same on both sides, "
    "so that the ratio is what the duties cost. Time runs from barrier to barrier. Each block of the trainer is compared "
    "with the mean of the bare blocks before and after it; so is, for the noise of the comparison itself, each bare block "
    "with its neighbours of the same kind. One block of each to warm up is not counted."
)


def measure(folder: Path, runs: int | None) -> Section:
    """Run the ranks, and read what rank 0 wrote."""
    work = folder / "steps"
    work.mkdir()
    prepare(work / "data")
    pairs = runs or PAIRS
    # The first block of each warms up; one step more lets the last bare block follow the last of ours.
    steps = STEPS * (pairs + 1) + 1
    argv = [sys.executable, "-m", "tests.bench.step_rank", *_TRAINING, f"trainer.steps={steps}"]
    result = work / "seconds.json"
    ranks = []
    try:
        for rank in range(RANKS):
            with (work / f"log-{rank}").open("w") as log:
                ranks.append(
                    subprocess.Popen(
                        argv,
                        cwd=work,
                        env=_environment(rank, work, result),
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        codes = [process.wait(timeout=600) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    if any(codes):
        logs = "\n".join((work / f"log-{rank}").read_text()[-4000:] for rank in range(RANKS))
        raise BenchError(f"the ranks ended with {codes}:\n{logs}")
    seconds = json.loads(result.read_text())
    (bare, bare_cpu), (ours, ours_cpu) = (
        zip(*seconds[side][1:], strict=True) for side in ("bare", "trainer")
    )
    figures = [
        Figure("A step of the bare loop", tuple(1000 * value / STEPS for value in bare), "ms"),
        Figure("A step of the trainer", tuple(1000 * value / STEPS for value in ours), "ms"),
        ratio("**Trainer / bare**", ours, _around(bare), 1.03),
        ratio("Trainer / bare, CPU time of rank 0", ours_cpu, _around(bare_cpu)),
    ]
    if len(bare) > _ENDS:
        figures.append(ratio("Bare / bare", bare[1:-1], _mean(bare, bare[_ENDS:])))
    return Section("Step time of the trainer", _TEXT, tuple(figures))


def _around(bare: Sequence[float]) -> list[float]:
    """What a bare block would have taken in the place of each block of the trainer."""
    return _mean(bare, bare[1:])


def _mean(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return [(one + other) / 2 for one, other in zip(before, after, strict=False)]


def _environment(rank: int, work: Path, result: Path) -> dict[str, str]:
    """What srun would say to a rank; no job id, so that nobody asks a Slurm."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)} | {
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(RANKS),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": str(RANKS),
        "SLURM_CPUS_PER_TASK": "1",
        "SLURMKIT_RUN_DIR": str(work / "run"),
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
        BLOCK: str(STEPS),
        RESULT: str(result),
    }
