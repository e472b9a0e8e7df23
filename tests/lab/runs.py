"""Training runs on the lab: submit one, look at it, compare two."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polling import wait_until

from slurmkit.runtime.records import read_json, read_json_lines
from slurmkit.runtime.requeue import parse_job
from trainer.events import loss_curve

if TYPE_CHECKING:
    from slurmkit.lab.daemons import Lab

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUNNER = HERE.parent / "unit" / "trainer" / "runner.py"

#: 2 nodes of 2 ranks, small enough that a step is a few milliseconds.
STEPS = 60
SMALL = [
    "model=gpt",
    "model._target_=paused.PausedGPT",
    "model.layers=2",
    "model.width=32",
    "data=text",
    "data.context=32",
    "data.workers=1",
    f"trainer.steps={STEPS}",
    "trainer.batch_size=16",
    "trainer.accumulate=2",
    "trainer.rendezvous_seconds=60",
]

SCRIPT = """\
#!/bin/bash
{directives}
export SLURMKIT_RUN_DIR={run_dir} SLURMKIT_POINT=0 SLURMKIT_POINT_DIR={point_dir}
export PYTHONPATH={pythonpath} TEST_PAUSE={pause}
srun --cpus-per-task=1 {command} &
pid=$!
trap 'kill -USR1 "$pid" 2>/dev/null' USR1
trap : TERM
wait "$pid"; code=$?
while [ "$code" -gt 128 ] && kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; done
wait "$pid" 2>/dev/null; last=$?
[ "$last" -ne 127 ] && code=$last
exit "$code"
"""


@dataclass
class RunHandle:
    """One submitted run."""

    lab: Lab
    job: str
    dir: Path

    @property
    def point(self) -> Path:
        return self.dir / "points" / "0" / "0"

    @property
    def log(self) -> str:
        path = self.dir / "log"
        return path.read_text() if path.exists() else ""

    def state(self) -> dict[str, str]:
        return parse_job(self.lab.run(["scontrol", "--oneliner", "show", "job", self.job]).stdout)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in read_json_lines(self.point / "events.jsonl") if event["event"] == kind]

    def last_step(self) -> int:
        lines = read_json_lines(self.point / "metrics.jsonl")
        return int(lines[-1]["step"]) if lines else 0

    def result(self) -> dict[str, Any] | None:
        return read_json(self.point / "result.json")

    def wait_step(self, step: int, timeout: float = 60) -> None:
        wait_until(
            lambda: self.last_step() >= step, timeout, f"step {step} of job {self.job}; its log:\n{self.log}"
        )

    def wait_finished(self, timeout: float = 90) -> dict[str, Any]:
        def ended() -> bool:
            return self.result() is not None or self.state().get("JobState") in {
                "FAILED",
                "CANCELLED",
                "TIMEOUT",
            }

        wait_until(ended, timeout, f"job {self.job} to finish")
        result = self.result()
        assert result is not None, f"{self.state()}\n{self.log}"
        wait_until(lambda: self.state().get("JobState") == "COMPLETED", 30, f"job {self.job} to be COMPLETED")
        return result

    def wait_state(self, *states: str, timeout: float = 60) -> dict[str, str]:
        return wait_until(
            lambda: job if (job := self.state()).get("JobState") in states else None,
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
                and argv[0] == os.fsencode(sys.executable)
                and os.fsencode(RUNNER) in argv
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


def submit_run(
    lab: Lab,
    overrides: list[str],
    folder: Path,
    *,
    options: dict[str, str] | None = None,
    pause: float = 0.0,
) -> RunHandle:
    """Submit one run of 2 nodes with 2 ranks each, in the shape of slurmkit's own script."""
    folder.mkdir(parents=True, exist_ok=True)
    directives = {
        "job-name": folder.name,
        "partition": "low",
        "nodes": "2",
        "ntasks-per-node": "2",
        "cpus-per-task": "1",
        "requeue": "",
        "open-mode": "append",
        "output": str(folder / "log"),
        "time": "10",
        "signal": "USR1@20",
        **(options or {}),
    }
    lines = [
        f"#SBATCH --{key}" + (f"={value}" if value else "")
        for key, value in directives.items()
        if value != "no"
    ]
    script = SCRIPT.format(
        directives="\n".join(lines),
        run_dir=folder,
        point_dir=folder / "points" / "0" / "0",
        pythonpath=f"{ROOT}:{HERE}",
        pause=pause,
        command=shlex.join([sys.executable, "-u", str(RUNNER), *SMALL, *overrides]),
    )
    path = folder / "job.sbatch"
    path.write_text(script)
    answer = lab.run(["sbatch", "--parsable", str(path)])
    return RunHandle(lab, answer.stdout.split(";")[0].strip(), folder)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
