"""``python -m trainer``, with the time of each stage of its start written down."""

# ruff: noqa: PLC0415 - the stages are the imports

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from slurmkit.runtime.records import append_json

#: In the folder of the point: a line of each rank of a life, at its first step.
STAMPS = "stamps.jsonl"


def _process_started() -> float:
    """When the kernel made this process; clock ticks are 10 ms long."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


class _Stamps:
    def __init__(self) -> None:
        self.times = {"process": _process_started()}

    def note(self, stage: str) -> None:
        self.times.setdefault(stage, time.time())

    def write(self) -> None:
        restart = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        append_json(Path(os.environ["SLURMKIT_POINT_DIR"]) / STAMPS, {"restart": restart, **self.times})


def main() -> int:
    stamps = _Stamps()
    from trainer import __main__ as entry

    compose: Any = entry.compose

    def composed(*args: Any) -> Any:
        settings = compose(*args)
        stamps.note("composed")
        from trainer import loop

        stamps.note("imported")
        _stamp(loop, stamps)
        return settings

    entry.compose = composed
    return entry.main()


def _stamp(loop: Any, stamps: _Stamps) -> None:
    joined = loop.joined

    def prepared(*args: Any) -> Any:
        stamps.note("prepared")
        return joined(*args)

    class Trainer(loop.ClusterAwareTrainer):
        def run(self) -> int:
            stamps.note("joined")
            return super().run()

        def _train_step(self) -> Any:
            stamps.note("ready")
            report = super()._train_step()
            if "stepped" not in stamps.times:
                stamps.note("stepped")
                stamps.write()
            return report

    loop.joined, loop.ClusterAwareTrainer = prepared, Trainer


if __name__ == "__main__":
    sys.exit(main())
