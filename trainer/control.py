"""How the ranks agree: one small all-reduce a step carries everything that all of them must know.

It runs on a process group of its own (gloo, in host memory), and nobody waits for it: the answer for one
step is read after the next step's work is done. So all ranks see the same signals at the same optimizer
step, and none is asked to stop while another is already in the next step's collective.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from slurmkit import errors
from slurmkit.errors import SlurmkitError
from slurmkit.runtime.signals import Stop
from trainer.trouble import of_system, shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Agreed", "Control", "Report"]

_CHUNK = 1 << 28
#: Longer steps than this wait for their own answer at once: a millisecond is nothing to them, and a
#: signal then takes effect one step earlier.
_LONG_STEP_SECONDS = 0.25
_SIGNALS = (Stop.USR1, Stop.TERM, Stop.INT)


@dataclass(frozen=True)
class Report:
    """What one rank says about one step."""

    step: int
    loss_sum: float
    """The mean loss of the rank times its samples; not finite where anything went wrong."""
    samples: int
    order: int
    """A checksum of (place, sample id) pairs; a sum, so it does not depend on how ranks share them."""
    stop: Stop = Stop.NONE
    save: bool = False
    trouble: bool = False
    """The rank cannot go on: once it is agreed, all of them ask why with :meth:`Control.together`."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Agreed:
    """What all ranks know about one step; the same on every rank, to the bit."""

    step: int
    loss: float
    samples: int
    order: int
    stop: Stop
    save: bool
    trouble: bool
    seconds: float


class Control:
    """The agreement of the ranks of one run.

    Args:
        rank: ours.
        world_size: how many.
        group: a gloo group of all ranks that nobody else uses.
    """

    def __init__(self, rank: int, world_size: int, group: Any) -> None:
        self.rank = rank
        self.world_size = world_size
        self._group = group
        self._pending: tuple[int, torch.Tensor, Any] | None = None
        self._long_steps = False

    def exchange(self, report: Report) -> list[Agreed]:
        """Send our report, and take what has been agreed meanwhile.

        Args:
            report: about the step that is just done.

        Returns:
            The step before as a rule; nothing at the first step; this one too where steps are long.
        """
        done = self.drain()
        numbers = [
            report.loss_sum,
            float(report.samples),
            float(report.order),
            float(report.save),
            float(report.trouble),
            report.seconds,
            *(float(one in report.stop) for one in _SIGNALS),
        ]
        tensor = torch.tensor(numbers, dtype=torch.float64)
        work = dist.all_reduce(tensor, group=self._group, async_op=True)
        self._pending = (report.step, tensor, work)
        # From agreed numbers alone, so that all ranks decide alike.
        return [*done, *self.drain()] if self._long_steps else done

    def drain(self) -> list[Agreed]:
        """Wait for the answer that is under way, if there is one."""
        if self._pending is None:
            return []
        step, tensor, work = self._pending
        self._pending = None
        work.wait()
        loss_sum, samples, order, save, trouble, seconds, *signals = tensor.tolist()
        stop = Stop.NONE
        for one, count in zip(_SIGNALS, signals, strict=True):
            if count:
                stop |= one
        mean = seconds / self.world_size
        self._long_steps = mean > _LONG_STEP_SECONDS
        loss = loss_sum / samples
        return [Agreed(step, loss, int(samples), int(order), stop, bool(save), bool(trouble), mean)]

    def broadcast(self, data: bytes | None) -> bytes:
        """Send bytes of rank 0 to all ranks.

        Args:
            data: on rank 0; ignored elsewhere.
        """
        content = bytearray(data or b"")
        size = torch.tensor([len(content)], dtype=torch.int64)
        dist.broadcast(size, src=0, group=self._group)
        if self.rank:
            content = bytearray(int(size))
        for start in range(0, len(content), _CHUNK):
            count = min(_CHUNK, len(content) - start)
            part = torch.frombuffer(content, dtype=torch.uint8, count=count, offset=start)
            dist.broadcast(part, src=0, group=self._group)
        return bytes(content)

    def gather(self, data: bytes) -> list[bytes]:
        """Bytes of every rank, in order of ranks, on every rank. No pickle on the way.

        Args:
            data: ours.
        """
        sizes = torch.zeros(self.world_size, dtype=torch.int64)
        sizes[self.rank] = len(data)
        dist.all_reduce(sizes, group=self._group)
        longest = int(sizes.max())
        if not longest:
            return [b""] * self.world_size
        own = torch.zeros(longest, dtype=torch.uint8)
        if data:
            own[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.world_size)]
        dist.all_gather(parts, own, group=self._group)
        return [part[:size].numpy().tobytes() for part, size in zip(parts, sizes.tolist(), strict=True)]

    @contextlib.contextmanager
    def together(self, nodes: Sequence[str]) -> Iterator[None]:
        """What goes wrong on one rank in the block is raised on all, so that none waits for it for ever.

        Args:
            nodes: the node of each rank, to say where it went wrong.

        Raises:
            SlurmkitError: that of the lowest rank in trouble, of the same class, on every rank.
        """
        own: SlurmkitError | None = None
        try:
            yield
        except SlurmkitError as error:
            own = error
        except OSError as error:
            own = of_system(error)
        said = "" if own is None else json.dumps([type(own).__name__, own.message, own.hint])
        troubles = [(rank, text) for rank, text in enumerate(self.gather(said.encode())) if text]
        if not troubles:
            return
        rank, text = troubles[0]
        kind, message, hint = json.loads(text)
        where = "" if rank == 0 else f"rank {rank} on {nodes[rank]}: "
        make: Callable[[str, str], SlurmkitError] = getattr(errors, kind, SlurmkitError)
        raise shared(make(where + message, hint)) from own
