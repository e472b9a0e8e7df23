"""Training runs on the lab: submit one, look at it, compare two."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from command import slurmkit
from polling import wait_until
from tiny import TINY_RUN

from slurmkit.launch.ledger import Run
from slurmkit.runtime.records import read_json, read_json_lines
from slurmkit.runtime.requeue import parse_job
from trainer.events import loss_curve

if TYPE_CHECKING:
    from slurmkit.lab.daemons import Lab

HERE = Path(__file__).parent

_FAILED = {"FAILED", "CANCELLED", "TIMEOUT"}
#: 2 nodes of 2 ranks, small enough that a step is a few milliseconds.
SMALL = [
    "resources=two_nodes",
    "resources.partition=low",
    "resources.gres=gpu:a100:2",
    "requeue.signal_lead=20",
    *TINY_RUN,
    "data.workers=1",
    "trainer.rendezvous_seconds=120",
]
#: One rank a node: what a promise needs that does not speak of ranks that share a node.
TWO_RANKS = ["resources.ntasks_per_node=1", "resources.gres=gpu:a100:1"]


@dataclass
class RunHandle:
    """One submitted run."""

    lab: Lab
    job: str
    dir: Path
    _seen: dict[str, str] = field(default_factory=dict)
    _asked: float = -1.0

    @property
    def point(self) -> Path:
        return self.dir / "points" / "0" / "0"

    @property
    def log(self) -> str:
        path = self.point / "log"
        return path.read_text() if path.exists() else ""

    def state(self) -> dict[str, str]:
        return parse_job(self.lab.run(["scontrol", "--oneliner", "show", "job", self.job]).stdout)

    def seldom(self) -> dict[str, str]:
        """The state for whoever polls: asked once a second, since each question is a process."""
        if time.monotonic() > self._asked + 1:
            self._seen, self._asked = self.state(), time.monotonic()
        return self._seen

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in read_json_lines(self.point / "events.jsonl") if event["event"] == kind]

    def last_step(self) -> int:
        lines = read_json_lines(self.point / "metrics.jsonl")
        return int(lines[-1]["step"]) if lines else 0

    def result(self) -> dict[str, Any] | None:
        return read_json(self.point / "result.json")

    def wait_step(self, step: int, timeout: float = 120) -> None:
        wait_until(
            lambda: self.last_step() >= step, timeout, f"step {step} of job {self.job}; its log:\n{self.log}"
        )

    def wait_finished(self, timeout: float = 150) -> dict[str, Any]:
        def ended() -> bool:
            return self.result() is not None or self.seldom().get("JobState") in _FAILED

        wait_until(ended, timeout, f"job {self.job} to finish")
        result = self.result()
        assert result is not None, f"{self.state()}\n{self.log}"
        wait_until(
            lambda: self.seldom().get("JobState") == "COMPLETED", 30, f"job {self.job} to be COMPLETED"
        )
        return result

    def wait_state(self, *states: str, timeout: float = 60) -> dict[str, str]:
        return wait_until(
            lambda: job if (job := self.seldom()).get("JobState") in states else None,
            timeout,
            f"job {self.job} to be {' or '.join(states)}",
        )

    def rank_pids(self) -> list[int]:
        """The processes of the ranks, without their loader workers."""
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                environ = (folder / "environ").read_bytes().split(b"\0")
                argv = (folder / "cmdline").read_bytes().split(b"\0")
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                parent_argv = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
            except (OSError, IndexError):
                continue
            ours = f"SLURMKIT_RUN_DIR={self.dir}".encode() in environ
            if (
                ours
                and Path(os.fsdecode(argv[0])).name.startswith("python")
                and b"trainer" in argv
                and argv != parent_argv
            ):
                found.append(int(folder.name))
        return found

    def proof(self) -> dict[str, Any]:
        """What must be the same to the bit, however often the run was interrupted."""
        result = self.result()
        assert result is not None, self.log
        return {
            "parameters": result["parameters_sha256"],
            "samples": result["samples"],
            "steps": result["steps"],
            "losses": loss_curve(self.point),
        }


def submit_run(lab: Lab, overrides: list[str], folder: Path, *, pause: float = 0.0) -> RunHandle:
    """Submit one run of 2 nodes with 2 ranks each, as a person does: from a folder with a model of its own."""
    folder.mkdir(parents=True)
    shutil.copy(HERE / "paused.py", folder)
    words = [*SMALL, f"name={folder.name}", f"env.vars.TEST_PAUSE='{pause}'", *overrides]
    path = Path(slurmkit(lab, folder, "submit", *words).stdout.strip())
    return RunHandle(lab, Run(path).attempts()[-1].job_id, path)


def submit_again(run: RunHandle) -> RunHandle:
    """Submit the script of a run once more, by hand: the same folder, another job, which does not rest."""
    words = ["sbatch", "--parsable", "--export=ALL,TEST_AWAKE=1", str(run.dir / "job.sbatch")]
    job = run.lab.run(words).stdout.strip()
    return RunHandle(run.lab, job, run.dir)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
