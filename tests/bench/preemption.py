"""How long a run takes to leave when it is preempted, and to come back."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

from slurmkit.lab.daemons import Lab
from slurmkit.runtime.records import read_json_lines
from tests.lab.polling import wait_until
from trainer.data import prepare
from trainer.events import METRICS

from .figures import ROOT, BenchError, Figure, Section, with_venv
from .stamped import STAMPS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

RUNS = 5
#: What the ranks train: the model of the demo.
_TRAINING = [
    "experiment=gpt_ddp",
    "model.layers=2",
    "data.context=64",
    "data.workers=0",
    "trainer.batch_size=16",
    "trainer.steps=1000000",
]
_TEXT = (
    "One run of 2 nodes with 2 ranks each in the partition `low` (the GPT of `make demo`, gloo), preempted again and again by "
    "a job in `high` that wants all nodes and ends at once. Signal and commit are rank 0's own clock; requeued means that "
    "`scontrol requeue` has returned. Of that, · marks the parts, which follow one another; of the ranks' stages each "
    "lasts until the last rank has passed it. Slurm lets a requeued job wait for cred_expire + 1 seconds, counted in whole "
    "seconds: the lab sets the least cred_expire that Slurm takes, 5; Slurm's own default is 120. All 4 ranks, their "
    "imports and the lab itself share the cores named above."
)
#: A line of bash in the batch script: which life it is (nothing for the first), and the time.
_CLOCK = 'date "+$SLURM_RESTART_COUNT %s.%N" >>$SLURMKIT_POINT_DIR/'
_RANKS = 4
_STAGES = ("composed", "imported", "prepared", "joined", "ready", "stepped")
#: Steps of a life before it is preempted.
_TRAINED = 10


def measure(folder: Path, runs: int | None) -> Section:
    """Preempt one run again and again."""
    work = folder / "preemption"
    work.mkdir()
    prepare(work / "data")
    lab = Lab.up("preempt", folder=folder / "labs")
    try:
        point = _submit(lab, work) / "points" / "0" / "0"
        try:
            cycles = [_cycle(lab, point, life) for life in range(runs or RUNS)]
        except BenchError as error:
            log = "\n".join(path.read_text()[-4000:] for path in work.rglob("*log*") if path.is_file())
            raise BenchError(f"{error}\n{log}\n{lab.diagnostics()}") from error
    finally:
        Lab.end("preempt", folder / "labs")
    names = max(cycles, key=len)
    figures = [Figure(name, tuple(cycle[name] for cycle in cycles if name in cycle)) for name in names]
    return Section("Preemption", _TEXT, tuple(figures))


def _submit(lab: Lab, work: Path) -> Path:
    command = [sys.executable, "-u", "-m", "tests.bench.stamped", *_TRAINING]
    overrides = [
        *_TRAINING,
        "payload=command",
        f"payload.command=[{','.join(map(_quoted, command))}]",
        f"+env.vars.PYTHONPATH={_quoted(str(ROOT))}",
        *(f"env.{when}=[{_quoted(_CLOCK + when)}]" for when in ("setup", "teardown")),
        "resources.partition=low",
        "resources.gres=gpu:a100:2",
        "resources.cpus_per_task=1",
        "resources.mem=2G",
    ]
    env = {**with_venv(lab.env), "SLURMKIT_RUNS_DIR": "runs"}
    done = subprocess.run(
        ["slurmkit", "submit", *overrides], env=env, cwd=work, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(done.stdout + done.stderr)
    return work / done.stdout.strip()


def wait(what: str, ready: Callable[[], T]) -> T:
    return wait_until(ready, 120, what, BenchError)


def _quoted(text: str) -> str:
    """For Hydra's grammar."""
    return "'" + text.replace("'", "\\'") + "'"


def _cycle(lab: Lab, point: Path, life: int) -> dict[str, float]:
    """Preempt one life, and wait for the first step of the next one."""

    def event(name: str) -> dict[str, Any] | None:
        lines = read_json_lines(point / "events.jsonl")
        return next((line for line in lines if line["event"] == name and line["restart"] == life), None)

    def passed(restart: int) -> dict[str, float] | None:
        """When the last rank of a life had passed each stage; None until all have."""
        lines = [line for line in read_json_lines(point / STAMPS) if line["restart"] == restart]
        if len(lines) < _RANKS:
            return None
        first = min(line["process"] for line in lines)
        return {stage: max(line[stage] for line in lines) for stage in _STAGES} | {"process": first}

    def trained(restart: int) -> int:
        return sum(line["restart"] == restart for line in read_json_lines(point / METRICS))

    wait("the first step", lambda: passed(life))
    wait("some steps", lambda: trained(life) >= _TRAINED)
    urgent = ["sbatch", "--partition=high", "--nodes=8", "--exclusive", "--time=1", "--output=/dev/null"]
    asked = time.time()
    lab.run([*urgent, "--wrap", "true"])
    requeue = wait("the run to requeue itself", lambda: event("requeue"))
    checkpoint, signal = event("checkpoint"), event("signal")
    if not checkpoint or not signal or "preempted" not in requeue["words"]:
        raise BenchError(f"no preemption: {requeue}, {checkpoint}, {signal}")
    begun = wait("the first step after the requeue", lambda: passed(life + 1))
    ended, started = _batch(point, "teardown").get(life), _batch(point, "setup")[life + 1]
    leaving = (
        {}
        if ended is None
        else {
            "· requeued to end of `srun`: ranks leave, interpreters exit": ended - requeue["time"],
            "· end of `srun` to next start of the batch script (Slurm)": started - ended,
        }
    )
    return {
        "Urgent job submitted to signal at rank 0 (Slurm)": signal["arrived"] - asked,
        "**Signal to committed checkpoint**": checkpoint["after_signal"],
        "Signal to requeued": requeue["time"] - signal["arrived"],
        "**Requeued to first step**": begun["stepped"] - requeue["time"],
        **leaving,
        "· batch script to first process (`srun`)": begun["process"] - started,
        "· interpreter, Hydra's config": begun["composed"] - begun["process"],
        "· `import torch` and the trainer": begun["imported"] - begun["composed"],
        "· `torch._dynamo`, which deterministic kernels and AdamW import": begun["prepared"]
        - begun["imported"],
        "· rendezvous": begun["joined"] - begun["prepared"],
        "· model, DDP's warm-up, checkpoint read back": begun["ready"] - begun["joined"],
        "· first step": begun["stepped"] - begun["ready"],
        "First process to first step": begun["stepped"] - begun["process"],
    }


def _batch(point: Path, when: str) -> dict[int, float]:
    """Times of the batch script by life; at the end a busy machine's script can be killed before it writes."""
    path = point / when
    words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {int(word[0]) if len(word) > 1 else 0: float(word[-1]) for word in words}
