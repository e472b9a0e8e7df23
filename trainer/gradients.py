"""Which parameters a loss leaves out: DDP would leave them, and their neighbours in a bucket, unsummed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from slurmkit.errors import SlurmkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn
    from torch.nn.parallel import DistributedDataParallel

__all__ = ["check_summed", "some", "without_gradient"]


def without_gradient(model: nn.Module, loss: Tensor) -> list[str]:
    """The parameters that take a gradient and get none from a loss.

    Args:
        model: the bare model.
        loss: of one pass.
    """
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    gradients = torch.autograd.grad(loss.sum(), list(named.values()), allow_unused=True)
    return [name for name, gradient in zip(named, gradients, strict=True) if gradient is None]


def check_summed(ddp: DistributedDataParallel, step: int) -> None:
    """After the last pass of a step: DDP has summed every gradient over the ranks.

    Asked of DDP itself, since a gradient of an earlier pass of the step looks as if it were one of this pass.

    Args:
        ddp: the model with DDP around it.
        step: the optimizer step, to name it.

    Raises:
        SlurmkitError: on this rank alone, at once: one that used the parameter waits in ``backward()`` for
            ours, so nothing can be agreed any more, and it is our end that frees it.
    """
    try:
        # Private, but the docstring of its twin in DDP says to call it here; torch is pinned, and tests see
        # to it that a newer one still answers.
        ddp.reducer._check_reducer_finalized()  # noqa: SLF001
    except RuntimeError as error:
        named = [name for name, value in ddp.module.named_parameters() if value.requires_grad]
        numbers = re.search(r"did not receive grad for rank \d+: ([\d ]+)", str(error))
        none = [named[int(one)] for one in numbers[1].split()] if numbers else ["some parameter"]
        raise SlurmkitError(
            f"in step {step} the loss does not depend on {some(none)}; not saved",
            hint="let every pass use every parameter, for example by adding 0 * parameter.sum() to the loss",
        ) from error


def some(names: Sequence[str]) -> str:
    """A list of names that stays readable.

    Args:
        names: any number of them.
    """
    shown = 4
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
