"""What is made of the config before the first step: model, optimizer, DDP, and proof that they fit the data."""

from __future__ import annotations

import contextlib
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from slurmkit.config.training import OptimConfig
from slurmkit.errors import CheckpointError, ConfigError, SlurmkitError
from trainer import state
from trainer.build import build_model, build_optimizer
from trainer.gradients import some, without_gradient
from trainer.samples import SampleOrder, shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from slurmkit.config.training import Settings
    from slurmkit.runtime.jobenv import JobEnv
    from trainer.distributed import Ranks
    from trainer.samples import Samples

__all__ = ["Made", "make", "try_out", "try_to_save", "untouched"]


@dataclass(frozen=True)
class Made:
    """What a rank steps with; the same on every rank, but for the parts of a batch that are its own."""

    parts: list[tuple[int, int]]
    order: SampleOrder
    model: nn.Module
    optimizer: Optimizer
    optim: OptimConfig | None
    """None where the optimizer is named by a ``_target_``."""
    ddp: DistributedDataParallel


def make(settings: Settings, env: JobEnv, ranks: Ranks, samples: Samples) -> Made:
    """Make it all from the run's seed, and prove that it can step.

    Random numbers are drawn on the way: seed or restore them afterwards.

    Args:
        settings: the config.
        env: this rank.
        ranks: all ranks, present.
        samples: the opened data.

    Raises:
        SlurmkitError: on every rank, if something cannot be made or does not fit the data.
    """
    config = settings.trainer
    state.seed_everything(config.seed)
    order = SampleOrder(config.seed, len(samples))
    with ranks.control.together(ranks.nodes):
        parts = shares(config.batch_size, config.accumulate, env.rank, env.world_size)
        model = build_model(settings.model).to(ranks.device)
        optimizer = build_optimizer(settings.optim, model)
        optim = OptimConfig.of(settings.optim)
        _, inputs, targets = samples.batch(order.at(*parts[0]))
        inputs, targets = inputs.to(ranks.device), targets.to(ranks.device)
        with untouched(model):
            try_out(settings, model, inputs, targets)
        if env.rank == 0:
            try_to_save(settings, model, optimizer)
    device_ids = [ranks.device] if ranks.device.type == "cuda" else None
    ddp = DistributedDataParallel(model, device_ids=device_ids)
    with untouched(model):
        # A throwaway pass: DDP notes in which order gradients come in the first backward pass, and regroups
        # its buckets by it at the start of the next forward pass (``_pre_forward``), which is that of the
        # first step. Without it the first step after a resume would differ in its last bits.
        ddp(inputs, targets).backward()
    optimizer.zero_grad(set_to_none=True)
    return Made(parts, order, model, optimizer, optim, ddp)


def try_out(settings: Settings, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """One pass forward and back on the first batch, before any other rank waits for this one in DDP.

    Args:
        settings: the config, to name its keys.
        model: the bare model.
        inputs: of the first batch.
        targets: of the first batch.

    Raises:
        ConfigError: with the model's own words.
    """
    named = f"model._target_={settings.model['_target_']} does not fit data.kind={settings.data.kind}"
    shapes = f"inputs {tuple(inputs.shape)} {inputs.dtype}, targets {tuple(targets.shape)} {targets.dtype}"
    try:
        loss: Any = model(inputs, targets)
        good = isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad
        unused = without_gradient(model, loss) if good else []
    except SlurmkitError:
        raise
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"{named}: {words} ({shapes})", hint=f"it was raised in {last.filename}:{last.lineno}"
        ) from error
    if not good:
        what = f"a tensor {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise ConfigError(
            f"{named}: forward(inputs, targets) gave {what}, accepted is the mean loss ({shapes})",
            hint="return one number that depends on the parameters",
        )
    if unused:
        raise ConfigError(
            f"{named}: the loss does not depend on {some(unused)}; accepted is a loss that uses every parameter",
            hint="leave them out, or freeze them with requires_grad_(False): DDP waits for a gradient of each",
        )


def try_to_save(settings: Settings, model: nn.Module, optimizer: Optimizer) -> None:
    """Take everything apart once as a save does: an emergency save must not be the first one to find out.

    Args:
        settings: the config, to name its keys.
        model: the bare model.
        optimizer: its optimizer.

    Raises:
        ConfigError: if a checkpoint cannot hold it.
    """
    try:
        state.pack(model, optimizer, [], {})
    except CheckpointError as error:
        target = settings.model["_target_"]
        raise ConfigError(
            f"model._target_={target} with its optimizer could not be saved: {error.message}", hint=error.hint
        ) from error


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Passes in the block leave no trace in parameters and buffers, also those that are never saved.

    Args:
        model: the bare model.
    """
    values = [*model.parameters(), *model.buffers()]
    before = [value.detach().clone() for value in values]
    yield
    with torch.no_grad():
        for value, old in zip(values, before, strict=True):
            value.copy_(old)
