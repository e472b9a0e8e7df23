"""A world of one rank, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import runner

from slurmkit.runtime.jobenv import JobEnv
from slurmkit.runtime.records import read_json_lines
from slurmkit.runtime.signals import SignalFlags
from trainer.loop import train

if TYPE_CHECKING:
    import signal
    from pathlib import Path


def train_here(data: Path, run_dir: Path, *overrides: str, flags: SignalFlags | None = None) -> int:
    """Train the MLP on the digits for 30 steps, if nothing else is asked for."""
    settings = runner.settings_of([f"data.path={data}/digits.h5", "trainer.steps=30", *overrides])
    env = JobEnv.from_environ({"SLURMKIT_RUN_DIR": str(run_dir), "SLURM_CPUS_PER_TASK": "1"})
    return train(settings, env, flags)


def lines(run_dir: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a file in the folder of the one point."""
    return read_json_lines(run_dir / "points" / "0" / "0" / name)


class After(SignalFlags):
    """Signals that come while step ``step`` is done: the loop asks once a step."""

    def __init__(self, step: int, *numbers: signal.Signals) -> None:
        super().__init__()
        self.left, self.numbers = step, numbers

    @property
    def stop(self) -> Any:
        self.left -= 1
        if not self.left:
            for number in self.numbers:
                self.note(number)
        return super().stop
