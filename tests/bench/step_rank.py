"""One rank of the comparison of step times: the trainer's own loop, with blocks of a bare DDP loop in between."""

# ruff: noqa: PLC0415 - as in stamped.py

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

#: Variables that say how long a block is, and where rank 0 writes the seconds of each block.
BLOCK, RESULT = "BENCH_BLOCK", "BENCH_RESULT"


def main() -> int:
    from trainer import __main__ as entry
    from trainer import loop

    loop.ClusterAwareTrainer = _trainer(loop)
    return entry.main()


def _clocks() -> list[float]:
    """The wall clock, and the CPU time of this process and its threads."""
    return [time.perf_counter(), time.process_time()]


def _since(began: list[float], now: list[float]) -> list[float]:
    return [after - before for before, after in zip(began, now, strict=True)]


def _trainer(loop: Any) -> Any:
    import torch.distributed as dist

    class Trainer(loop.ClusterAwareTrainer):
        """Before the first step of each block of ours, a block of the bare loop."""

        block = int(os.environ[BLOCK])

        def _train_step(self) -> Any:
            if self.step % self.block == 0:
                self._between()
            return super()._train_step()

        def _between(self) -> None:
            dist.barrier()
            now = _clocks()
            if self.step == 0:
                self.bare = _bare_loop(self)
                self.seconds: dict[str, list[list[float]]] = {"bare": [], "trainer": []}
                self.began = now
            else:
                self.seconds["trainer"].append(_since(self.began, now))
            began = _clocks()
            for _ in range(self.block):
                next(self.bare)
            dist.barrier()
            self.began = _clocks()
            self.seconds["bare"].append(_since(began, self.began))
            if self.step + 1 == self.config.steps:
                self.bare.close()
            if self.lead:
                Path(os.environ[RESULT]).write_text(json.dumps(self.seconds))

    return Trainer


def _bare_loop(trainer: Any) -> Generator[None, None, None]:
    """Load, forward, backward, clip, optimizer step: what every DDP script has, and nothing else."""
    from torch.nn.parallel import DistributedDataParallel
    from torch.nn.utils import clip_grad_norm_

    from trainer.build import build_model, build_optimizer
    from trainer.samples import Feed

    settings, config = trainer.settings, trainer.config
    model = build_model(settings.model)
    optimizer = build_optimizer(settings.optim, model)
    ddp = DistributedDataParallel(model)
    feed = Feed(
        trainer.samples,
        trainer.order,
        batch_size=config.batch_size,
        parts=trainer.parts,
        span=range(config.steps + trainer.block),
        workers=settings.data.workers,
    )
    try:
        while True:
            _, inputs, targets = next(feed)
            ddp(inputs, targets).backward()
            clip_grad_norm_(model.parameters(), trainer.optim.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            yield
    finally:
        feed.close()


if __name__ == "__main__":
    sys.exit(main())
