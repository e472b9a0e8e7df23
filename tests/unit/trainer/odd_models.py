"""Models that behave badly in one way each, and an optimizer with running values among its defaults."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class NoGradient(nn.Module):
    """The loss is finite, its gradient is not: the square root of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(Tensor([0.5]))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        del targets
        return (self.weight * 0 * inputs.mean()).abs().sqrt().sum() + 1


class Vector(nn.Module):
    """Gives a loss of each sample where the mean is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(64, 1)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.line(inputs)[:, 0] - targets


class Counting(nn.Module):
    """Keeps running values, one of which is never saved."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.line = nn.Linear(64, 1)
        self.register_buffer("passes", Tensor([0.0]), persistent=False)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.passes += 1
        return (self.line(self.norm(inputs))[:, 0] - targets).square().mean()


class Narrow(nn.Module):
    """Takes a key of its own alone."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.line = nn.Linear(width, 1)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return (self.line(inputs)[:, 0] - targets).square().mean()


class Needy(Narrow):
    """Has a key without a default."""

    def __init__(self, width: int) -> None:
        super().__init__(width)


class Unbuilt(nn.Module):
    """Ends in its constructor, whatever it is given."""

    def __init__(self, **_keys: object) -> None:
        super().__init__()
        raise RuntimeError("no weights")


class Bare(nn.Module):
    """Has nothing to train."""

    def __init__(self, **_keys: object) -> None:
        super().__init__()

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return inputs.mean() + targets.sum()


class Frozen(Narrow):
    """Has parameters, and trains none."""

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Lazy(Bare):
    """Learns its shapes from the first batch, which is too late."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.LazyLinear(1)


class Spare(Narrow):
    """Has a layer that the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(2, 2)


class Pair(Narrow):
    """Gives the loss and something else."""

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        loss = super().forward(inputs, targets)
        return loss, loss


class Moody(Narrow):
    """Leaves a layer out in some passes, on some ranks; the first two passes are those of the start.

    Args:
        out: in which passes, from the start on.
        rank: on which rank alone; on all of them if negative.
        pause: seconds of each pass.
    """

    def __init__(self, out: Sequence[int] = range(9, 1000), rank: int = -1, pause: float = 0) -> None:
        super().__init__()
        self.second = nn.Linear(64, 1)
        self.passes = 0
        self.out = set(out) if rank < 0 or str(rank) == os.environ["SLURM_PROCID"] else set()
        self.pause = pause

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.passes += 1
        time.sleep(self.pause)
        loss = super().forward(inputs, targets)
        return loss if self.passes in self.out else loss + self.second(inputs).square().mean()


class View(Narrow):
    """Keeps views of one memory: a part, the same in another shape, and a whole beside a tied one."""

    def __init__(self) -> None:
        super().__init__()
        table = torch.arange(12.0)
        self.register_buffer("front", table[:5])
        self.register_buffer("table", table)
        self.register_buffer("square", table.view(3, 4))
        self.register_buffer("same", table)


class Extra(Narrow):
    """Has state that is no tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"seen": 3}

    def set_extra_state(self, state: object) -> None:
        del state


class Sparse(Narrow):
    """Has a buffer of a kind that safetensors does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("holes", torch.eye(3).to_sparse())


class Counted(torch.optim.SGD):
    """Counts its steps in its group, as Schedule-Free does, and passes on keywords that it does not name."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 0.1, **more: float) -> None:
        super().__init__(params, lr, **more)  # type: ignore[arg-type]
        self.defaults["k"] = 0
        for group in self.param_groups:
            group.setdefault("k", 0)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            group["k"] += 1
