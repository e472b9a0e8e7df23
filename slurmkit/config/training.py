"""The config of the trainer as frozen dataclasses, without torch and Hydra: the login node reads it too."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field, fields
from typing import Any

from slurmkit.errors import ConfigError

__all__ = ["CheckpointConfig", "DataConfig", "OptimConfig", "Settings", "TrainerConfig", "check_batch"]


def _accept(key: str, value: Any, good: bool, accepted: str, override: str) -> None:
    if not good:
        raise ConfigError(
            f"{key}={value!r}: accepted is {accepted} (from the config)", hint=f"try {override}"
        )


def check_batch(batch_size: int, accumulate: int, ranks: int) -> None:
    """Refuse a global batch that has no sample for some pass of some rank.

    Args:
        batch_size: samples of one optimizer step over all ranks.
        accumulate: forward passes of one optimizer step.
        ranks: how many there are.

    Raises:
        ConfigError: naming the least that is accepted.
    """
    least = ranks * accumulate
    if batch_size < least:
        raise ConfigError(
            f"trainer.batch_size={batch_size}: accepted are {least} and more, a sample for each pass of each rank "
            f"({ranks} ranks, trainer.accumulate={accumulate})",
            hint=f"try trainer.batch_size={least}",
        )


@dataclass(frozen=True)
class CheckpointConfig:
    """When and where the state is saved. A run always saves at its end and when it is told to stop."""

    root: str = ""
    """A folder that all lives of the run see, ``~`` is a home; empty: ``checkpoints`` in the point's folder."""
    every: int = 0
    """Save each so many optimizer steps; 0: not by steps."""
    seconds: float = 600.0
    """Save when the last save is so long ago; 0: not by time."""
    keep: int = 3
    """How many checkpoints stay. More than one, so that a damaged one can be skipped."""

    def __post_init__(self) -> None:
        key = "trainer.checkpoint"
        _accept(
            f"{key}.every", self.every, self.every >= 0, "a number of steps, 0 for never", f"{key}.every=100"
        )
        _accept(
            f"{key}.seconds", self.seconds, self.seconds >= 0, "seconds, 0 for never", f"{key}.seconds=600"
        )
        _accept(f"{key}.keep", self.keep, self.keep >= 1, "a whole number from 1 up", f"{key}.keep=3")


@dataclass(frozen=True)
class TrainerConfig:
    """The loop: how far, how large a step, from which seed."""

    steps: int = 1000
    """Optimizer steps of the whole run, over all of its lives."""
    batch_size: int = 32
    """Samples of one optimizer step over all ranks together; at least one for each pass of each rank."""
    accumulate: int = 1
    """Forward and backward passes a rank makes for one optimizer step."""
    seed: int = 0
    """Decides the first parameters, the order of the samples and the random numbers of every rank."""
    device: str = "auto"
    """``auto`` (a GPU for each local rank where the node has them), ``cpu`` or ``cuda``."""
    deterministic: bool = True
    """Deterministic kernels where torch has one (it warns of the others): with them a resumed run is
    bit-identical. False may be faster on GPUs."""
    log_every: int = 10
    """A line on stdout each so many steps; 0: none."""
    log_samples: bool = False
    """Write the ids of the samples that each rank was fed to ``samples-<rank>.jsonl``."""
    rendezvous_seconds: float = 300.0
    """How long ranks wait for each other at the start."""
    run_dir: str = ""
    """The run folder of a run by hand, empty: ``runs/local/NAME``; a run of slurmkit has its own folder."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate"):
            value = getattr(self, name)
            _accept(f"trainer.{name}", value, value >= 1, "a whole number from 1 up", f"trainer.{name}=1")
        for name in ("seed", "log_every"):
            value = getattr(self, name)
            _accept(
                f"trainer.{name}", value, 0 <= value < 2**32, "a whole number from 0 up", f"trainer.{name}=0"
            )
        devices = ("auto", "cpu", "cuda")
        _accept(
            "trainer.device", self.device, self.device in devices, " or ".join(devices), "trainer.device=auto"
        )
        _accept(
            "trainer.rendezvous_seconds",
            self.rendezvous_seconds,
            self.rendezvous_seconds > 0,
            "a number of seconds above 0",
            "trainer.rendezvous_seconds=300",
        )


@dataclass(frozen=True)
class DataConfig:
    """Which HDF5 file, and how it becomes samples."""

    kind: str = "text"
    """``text``: a dataset ``tokens`` cut into blocks; ``table``: datasets ``x`` and ``y``, a row a sample."""
    path: str = "data/text.h5"
    """Relative to the working folder, else to where the job was submitted from."""
    context: int = 128
    """Tokens of one sample (``text`` alone)."""
    workers: int = 1
    """Loader processes of each rank; 0: the rank loads by itself."""

    def __post_init__(self) -> None:
        kinds = ("text", "table")
        _accept("data.kind", self.kind, self.kind in kinds, " or ".join(kinds), "data.kind=text")
        _accept("data.path", self.path, bool(self.path), "the path of an HDF5 file", "data.path=data/text.h5")
        _accept(
            "data.context", self.context, self.context >= 1, "a whole number from 1 up", "data.context=128"
        )
        _accept("data.workers", self.workers, self.workers >= 0, "a whole number from 0 up", "data.workers=1")


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer and its schedule: linear warm-up, then a half cosine down to ``floor`` times ``lr``."""

    name: str = "adamw"
    """``adamw`` or ``sgd``; any other with a ``_target_`` in the place of this group."""
    lr: float = 1e-3
    weight_decay: float = 0.01
    beta1: float = 0.9
    """Also the momentum of ``sgd``."""
    beta2: float = 0.95
    warmup: int = 20
    """Steps of linear warm-up."""
    decay: bool = True
    """Whether to follow the cosine after the warm-up, or to stay at ``lr``."""
    floor: float = 0.1
    """The fraction of ``lr`` at the last step."""
    clip: float = 1.0
    """The largest norm of the gradient; 0: not clipped."""

    def __post_init__(self) -> None:
        names = ("adamw", "sgd")
        _accept("optim.name", self.name, self.name in names, " or ".join(names), "optim.name=adamw")
        _accept("optim.lr", self.lr, 0 < self.lr < math.inf, "a number above 0", "optim.lr=1e-3")
        for name in ("weight_decay", "warmup", "clip"):
            value = getattr(self, name)
            _accept(f"optim.{name}", value, 0 <= value < math.inf, "a number from 0 up", f"optim.{name}=0")
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            _accept(f"optim.{name}", value, 0 <= value < 1, "a number from 0 to below 1", f"optim.{name}=0.9")
        _accept("optim.floor", self.floor, 0 <= self.floor <= 1, "a number from 0 to 1", "optim.floor=0.1")

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of one step: a pure function, so that no scheduler has a state to lose.

        Args:
            step: the optimizer step, the first is 1.
            steps: the steps of the whole run.
        """
        if step <= self.warmup:
            return self.lr * step / self.warmup
        if not self.decay:
            return self.lr
        done = min(1.0, (step - self.warmup) / max(1, steps - self.warmup))
        return self.lr * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done)))

    @classmethod
    def of(cls, value: Any) -> OptimConfig | None:
        """The typed form of the ``optim`` group.

        Args:
            value: an OptimConfig, or the group's mapping.

        Returns:
            None for a mapping with a ``_target_``, which is instantiated as it is.

        Raises:
            ConfigError: for a key that is not one of ours.
        """
        if value is None or isinstance(value, cls):
            return value or cls()
        mapping = dict(value)
        if "_target_" in mapping:
            return None
        known = {item.name: item.default for item in fields(cls)}
        for key, got in mapping.items():
            _accept(
                f"optim.{key}", got, key in known, f"one of {', '.join(known)}, or a _target_", "optim=adamw"
            )
            default = known[key]
            kinds = (int, float) if isinstance(default, (int, float)) else str
            same = isinstance(got, kinds) and isinstance(got, bool) is isinstance(default, bool)
            accepted = "a word" if kinds is str else "true or false" if default is True else "a number"
            _accept(f"optim.{key}", got, same, accepted, f"optim.{key}={default}")
        return cls(**mapping)


@dataclass(frozen=True)
class Settings:
    """All that ``trainer.loop.train`` wants to know."""

    name: str = "experiment"
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    model: Any = None
    """A mapping with a ``_target_``: a module whose ``forward(inputs, targets)`` is the mean loss."""
    data: DataConfig = field(default_factory=DataConfig)
    optim: Any = field(default_factory=OptimConfig)
    """An OptimConfig, its mapping, or a mapping with a ``_target_`` that is called with the parameters."""

    def __post_init__(self) -> None:
        good = isinstance(self.model, dict) and bool(self.model.get("_target_"))
        _accept("model", self.model, good, "a mapping with a _target_", "model=gpt or model=mlp")
        OptimConfig.of(self.optim)

    @property
    def run_dir(self) -> str:
        """The run folder of a run by hand: each name has its own, so that two experiments do not meet."""
        own = re.sub(r"[^\w.=,+-]", "_", self.name).strip(".") or "experiment"
        return os.path.expanduser(self.trainer.run_dir) or f"runs/local/{own}"  # noqa: PTH111 - text stays text
