"""A multilayer perceptron that classifies rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MLP"]


class MLP(nn.Module):
    """Two hidden layers.

    Args:
        inputs: numbers of one row.
        hidden: units of each hidden layer.
        classes: how many classes.
        dropout: the share of hidden units that training leaves out.
    """

    def __init__(self, inputs: int = 64, hidden: int = 128, classes: int = 10, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )

    def logits(self, inputs: Tensor) -> Tensor:
        """The unnormalised log probabilities of the classes.

        Args:
            inputs: (batch, inputs).
        """
        return torch.as_tensor(self.layers(inputs))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy.

        Args:
            inputs: (batch, inputs).
            targets: the class of each row.
        """
        return functional.cross_entropy(self.logits(inputs), targets)
