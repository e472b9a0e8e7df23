"""From the config to a model, an optimizer, the kind of kernels, and what makes two configs the same run."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import is_lazy

from slurmkit.config.training import OptimConfig
from slurmkit.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn
    from torch.optim import Optimizer

    from slurmkit.config.training import Settings
    from trainer.samples import Samples

__all__ = ["build_model", "build_optimizer", "check_identity", "deterministic", "identity_of"]


@contextlib.contextmanager
def deterministic(*, on: bool, cuda: bool = False) -> Iterator[None]:
    """Deterministic kernels inside the block, where torch has one; of the others it warns.

    Args:
        on: whether to.
        cuda: whether a GPU may be used. Attention is then pinned to torch's plain ("math") form: the
            backward passes of the fused ones add up in any order, and torch only warns of it.
    """
    if not on:
        yield
        return
    knobs: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = knobs.fill_uninitialized_memory
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS wants for it
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    knobs.fill_uninitialized_memory = False  # finds bugs, and costs time
    try:
        with sdpa_kernel(SDPBackend.MATH) if cuda else contextlib.nullcontext():
            yield
    finally:
        torch.use_deterministic_algorithms(mode=before, warn_only=warned)
        knobs.fill_uninitialized_memory = fill


def build_model(config: Any) -> nn.Module:
    """The model that a ``_target_`` names, in training mode.

    Args:
        config: a mapping with a ``_target_`` and its arguments.

    Raises:
        ConfigError: if it cannot be made.
    """
    model = _instantiate("model", config)
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(
            f"model._target_={config['_target_']} is a {type(model).__name__}, accepted is a torch.nn.Module",
            hint="its forward(inputs, targets) has to be the mean loss",
        )
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters) or any(map(is_lazy, parameters)):
        lazy = "parameters without a shape (a lazy layer)"
        what = "no parameters" if not parameters else "no parameter that takes a gradient"
        raise ConfigError(
            f"model._target_={config['_target_']} has {lazy if any(map(is_lazy, parameters)) else what}: "
            "accepted is a model with parameters to train",
            hint="make them in its __init__, as attributes that are torch.nn.Parameter or layers",
        )
    return model.train()


def build_optimizer(config: Any, model: nn.Module) -> Optimizer:
    """The optimizer of a config.

    Args:
        config: an OptimConfig, its mapping, or a mapping with a ``_target_``.
        model: whose parameters.

    Raises:
        ConfigError: if it cannot be made.
    """
    typed = OptimConfig.of(config)
    if typed is None:
        made = _instantiate("optim", config, params=model.parameters())
        if not isinstance(made, torch.optim.Optimizer):
            raise ConfigError(f"optim._target_={config['_target_']} is no torch.optim.Optimizer")
        return made
    if typed.name == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=typed.lr, momentum=typed.beta1, weight_decay=typed.weight_decay
        )
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": typed.weight_decay},
        {"params": others, "weight_decay": 0.0},  # gains and biases are not pulled to zero
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=typed.lr, betas=(typed.beta1, typed.beta2))


def _instantiate(key: str, config: Any, **more: Any) -> Any:
    config = dict(config)
    target = config["_target_"]
    if target == "???":
        raise ConfigError(
            f"{key}._target_: no value is set", hint=f"set {key}._target_=your_module.YourClass"
        )
    try:
        return instantiate(config, **more)
    except InstantiationException as error:
        words, hint = _why_not(key, config, error, more)
        raise ConfigError(f"{key}: {target} {words}", hint=hint) from error


def _why_not(
    key: str, config: dict[str, Any], error: InstantiationException, more: Mapping[str, Any]
) -> tuple[str, str]:
    """What a ``_target_`` lacks, and what to do about it."""
    if isinstance(error.__cause__, TypeError) and (keys := _keys_of(config["_target_"])) is not None:
        surplus = [word for word in config if not word.startswith("_") and word not in keys]
        if surplus:
            known = ", ".join(word for word in keys if word not in more)
            empty = "model=own" if key == "model" else f"'~{key}' +{key}._target_={config['_target_']}"
            return (
                f"does not take {', '.join(surplus)}; accepted are {known or 'no keys at all'}",
                f"look at the keys of {key} in the config; to begin with none of them: {empty}",
            )
        lacking = [word for word, needed in keys.items() if needed and word not in {*config, *more}]
        if lacking:
            return f"needs {', '.join(lacking)} too", f"set +{key}.{lacking[0]}=VALUE"
    cause: BaseException = error
    while cause.__cause__ is not None and isinstance(cause, (InstantiationException, ImportError)):
        cause = cause.__cause__
    last = next(reversed(traceback.extract_tb(cause.__traceback__)), None)
    words = " ".join(f"{type(cause).__name__}: {cause}".split())
    hint = f"look at the keys of {key} in the config"
    if isinstance(cause, ModuleNotFoundError):
        hint = _where_to_look(key, config["_target_"], cause.name or "")
    elif last is not None and "/hydra/" not in last.filename:
        hint += f"; it was raised in {last.filename}:{last.lineno}"
    return f"cannot be made: {words}", hint


def _where_to_look(key: str, target: str, missing: str) -> str:
    package = target.partition(".")[0]
    if missing == package:
        return (
            f"your own module has to be in the folder that you start from, or installed; here is {Path.cwd()}"
        )
    if missing.startswith(f"{package}."):
        return f"look at the spelling of {key}._target_"
    return f"{target} imports {missing}: install it where the ranks run"


def _keys_of(target: str) -> dict[str, bool] | None:
    """The keywords of a class or function, and whether it needs them; None where it takes any or does not tell."""
    try:
        parameters = inspect.signature(get_object(target)).parameters.values()
    except ValueError:  # written in C
        return None
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return None
    named = [one for one in parameters if one.kind is not inspect.Parameter.VAR_POSITIONAL]
    return {one.name: one.default is inspect.Parameter.empty for one in named}


def identity_of(settings: Settings, samples: Samples | None) -> dict[str, Any]:
    """What must not change between the lives of one run, as flat JSON.

    Steps, learning rate and the like may: a run can be made longer.

    Args:
        settings: the config.
        samples: the opened data; None leaves out what is known from it.
    """
    optim = OptimConfig.of(settings.optim)
    facts: dict[str, Any] = {
        "model": settings.model,
        "data": {"kind": settings.data.kind},
        "optim": {"name": optim.name if optim else settings.optim["_target_"]},
        "trainer": {"batch_size": settings.trainer.batch_size, "seed": settings.trainer.seed},
    }
    if samples is not None:
        facts["data"] |= {"samples": len(samples), "sha256": samples.digest}
    if settings.data.kind == "text":
        facts["data"]["context"] = settings.data.context
    flat: dict[str, Any] = json.loads(json.dumps(_flat(facts), default=str))
    return flat


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            result.update(_flat(item, f"{prefix}{key}."))
        else:
            result[f"{prefix}{key}"] = item
    return result


def check_identity(saved: Mapping[str, Any], ours: Mapping[str, Any], place: str) -> None:
    """Refuse a checkpoint or a result of another run.

    Args:
        saved: the identity that was written.
        ours: the identity of this config.
        place: what it was read from, such as ``the checkpoint PATH``.

    Raises:
        CheckpointError: names each key that differs.
    """
    keys = sorted(key for key in {*saved, *ours} if saved.get(key) != ours.get(key))
    if keys:
        changes = "; ".join(f"{key} was {saved.get(key)!r} and is {ours.get(key)!r}" for key in keys)
        raise CheckpointError(
            f"{place} belongs to another run: {changes}",
            hint="take the old values, or another run folder or trainer.checkpoint.root",
        )
