"""Models that behave badly in one way each."""

from __future__ import annotations

from torch import Tensor, nn


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
    """Leaves a layer out from its tenth pass on."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(64, 1)
        self.passes = 0

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.passes += 1
        loss = super().forward(inputs, targets)
        return loss + self.second(inputs).square().mean() if self.passes < 10 else loss
