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
