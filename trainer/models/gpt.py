"""A small GPT: learned positions, pre-norm blocks, tied embedding."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["GPT"]


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=dropout)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        wide = functional.gelu(self.up(self.norm2(x)))
        return x + functional.dropout(self.down(wide), self.dropout, self.training)


class GPT(nn.Module):
    """Predicts the next token.

    Args:
        vocab: how many tokens there are; 256 for bytes.
        context: the longest sequence.
        layers: transformer blocks.
        heads: attention heads of a block; must divide width.
        width: numbers that stand for one token.
        dropout: the share that training leaves out.
    """

    def __init__(
        self,
        *,
        vocab: int = 256,
        context: int = 128,
        layers: int = 5,
        heads: int = 4,
        width: int = 128,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"model.width={width} is not a multiple of model.heads={heads}")
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(_Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def logits(self, inputs: Tensor) -> Tensor:
        """The unnormalised log probabilities of the next token at each place.

        Args:
            inputs: (batch, length) of token numbers.
        """
        places = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.dropout(self.tokens(inputs) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        return torch.as_tensor(self.head(self.norm(x)))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy in nats a token.

        Args:
            inputs: (batch, length) of token numbers.
            targets: the tokens that come next.
        """
        return functional.cross_entropy(self.logits(inputs).flatten(0, 1), targets.flatten())
