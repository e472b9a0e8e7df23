"""The story that ``make demo`` tells, on a Slurm of its own: each step must happen, or the exit code is 1."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from slurmkit.errors import SlurmkitError
from slurmkit.lab.daemons import Lab
from slurmkit.runtime.records import read_json_lines
from tests.lab.guard import guard
from tests.lab.polling import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

STEPS = 120
#: A GPT that two cores train in a minute: the demo shows how a run lives, not how fast it is.
GPT = [
    "experiment=gpt_ddp",
    "resources.partition=low",
    "resources.gres=gpu:a100:2",
    "resources.mem=2G",
    "resources.cpus_per_task=1",
    "model.layers=2",
    "data.context=64",
    "data.workers=0",
    "trainer.batch_size=16",
    f"trainer.steps={STEPS}",
    "optim.lr=3e-3",
]
DIGITS = ["experiment=digits", "resources.mem=500M", "trainer.steps=200", "optim.lr=1e-3,3e-3,1e-2,3e-2"]


class StoryError(Exception):
    """A step did not happen."""


class Story:
    """Tells each step, and runs its commands."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**lab.env, "PATH": path, "SLURMKIT_RUNS_DIR": "runs"}
        self.start = time.monotonic()

    def tell(self, text: str) -> None:
        bold, plain = (
            ("\033[1m", "\033[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")
        )
        print(f"\n{bold}[{time.monotonic() - self.start:4.0f} s] {text}{plain}", flush=True)

    def run(self, *argv: str, show: bool = True) -> str:
        if show:
            print(f"  $ {' '.join(argv)}", flush=True)
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        if show:
            for line in (done.stderr + done.stdout).splitlines():
                print(f"    {line}")
        if done.returncode:
            raise StoryError(f"{' '.join(argv)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def show(self, *lines: str) -> None:
        for line in lines:
            print(f"    {line}", flush=True)


def wait(what: str, ready: Callable[[], T], seconds: float = 90) -> T:
    """Wait for what must come of a command."""
    return wait_until(ready, seconds, what, StoryError)


def train_through_a_preemption(story: Story) -> None:
    """One run in ``low``, a job in ``high`` that takes its nodes, and the end of both."""
    story.tell("The experiment as an sbatch script: complete, readable, checked against this cluster")
    story.run("slurmkit", "compile", *GPT)

    story.tell("Submitted: 2 nodes, 2 ranks each, in the partition that others may preempt")
    run = Path(story.run("slurmkit", "submit", *GPT).strip())
    point = run / "points" / "0" / "0"

    def metrics() -> list[dict[str, Any]]:
        return read_json_lines(point / "metrics.jsonl")

    def event(name: str) -> dict[str, Any] | None:
        return next((line for line in read_json_lines(point / "events.jsonl") if line["event"] == name), None)

    wait("the first 20 steps", lambda: len(metrics()) >= 20)
    first = metrics()[0]["loss"]
    story.show(
        f"step {metrics()[0]['step']}: loss {first:.3f}",
        f"step {metrics()[-1]['step']}: loss {metrics()[-1]['loss']:.3f}",
    )

    story.tell("Somebody more important wants all nodes: the run is preempted, saves, and requeues itself")
    story.run(
        "sbatch", "--partition=high", "--nodes=8", "--exclusive", "--output=/dev/null", "--wrap", "sleep 2"
    )
    requeue = wait("the run to save and requeue itself", lambda: event("requeue"))
    saved = event("checkpoint") or {}
    story.show(
        f"{requeue['words']}",
        f"saved step {saved.get('step')}, {saved.get('after_signal', 0):.2f} s after the signal",
    )
    story.run("squeue", "--format=%.6i %.10P %.12j %.10T %.6D %R")

    story.tell("The nodes are free again: the run comes back and goes on at the very next sample")
    resume = wait("the run to resume", lambda: event("resume"))
    story.show(
        f"restart {resume['restart']}: resumed after step {resume['step']}, at sample {resume['cursor']}"
    )
    if resume["step"] != requeue["step"]:
        raise StoryError(f"saved step {requeue['step']}, resumed step {resume['step']}")
    result = json.loads(wait("the run to finish", lambda: _read(point / "result.json")))
    story.run("slurmkit", "logs", "last")
    last = metrics()[-1]["loss"]
    if result["state"] != "finished" or last >= first:
        raise StoryError(f"the loss did not fall: {first} at the start, {last} at the end")
    story.show(f"finished: loss {first:.3f} at step 1, {last:.3f} at step {STEPS}, one preemption in between")


def sweep(story: Story) -> None:
    """A multirun of four points, as one job array."""
    story.tell("A Hydra multirun: four learning rates, one job array, back at the prompt at once")
    story.run("python", "-m", "trainer", "-m", *DIGITS)

    def states() -> list[str]:
        points = json.loads(story.run("slurmkit", "status", "last", "--json", show=False))["points"]
        return [point["state"] for point in points]

    wait("four points to complete", lambda: states() == ["COMPLETED"] * 4)
    story.run("slurmkit", "status", "last")
    run = Path(json.loads(story.run("slurmkit", "status", "last", "--json", show=False))["path"])
    for point, rate in enumerate(DIGITS[-1].partition("=")[2].split(",")):
        story.show(
            f"lr {rate}: loss {json.loads((run / 'points' / '0' / str(point) / 'result.json').read_text())['loss']:.4f}"
        )


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="slurmkit-demo-"))
    folder.chmod(0o755)  # every user may look at the lab
    labs = folder / "labs"
    labs.mkdir()
    guard(labs)
    start = time.monotonic()
    print(
        "[   0 s] A Slurm of 8 nodes, 4 GPUs each, under 2 leaf switches\n"
        f"  $ SLURMKIT_LAB_DIR={labs} slurmkit lab up --name demo",
        flush=True,
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    story = None
    try:
        lab = Lab.up("demo", folder=labs, note=lambda text: print(f"    {text}", flush=True))
        story = Story(lab, folder)
        story.run("sinfo")
        story.tell("Real text and real digits, from what Python packages ship, as HDF5")
        story.run("python", "-m", "trainer.data", "prepare")
        train_through_a_preemption(story)
        sweep(story)
    except (StoryError, SlurmkitError, KeyError, OSError) as error:
        print(f"\nThe story broke off: {error}", file=sys.stderr)
        if story is not None:
            print(story.lab.diagnostics(), file=sys.stderr)
            print(f"the runs are in {folder}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        return 130
    finally:
        Lab.end("demo", labs, note=lambda text: print(f"\n    {text}", flush=True))
    shutil.rmtree(folder)
    print(f"\nAll of it happened, in {time.monotonic() - start:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
