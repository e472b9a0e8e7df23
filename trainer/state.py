"""What a run is at the end of a step, taken apart into named tensors and plain JSON, and put back.

Model and optimizer are the same on every rank, so rank 0 writes them. Random states differ: each rank
sends its own as bytes.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.torch
import torch

from slurmkit.errors import CheckpointError
from slurmkit.runtime.records import mapping_from_json
from trainer.checkpoint import STATE, TENSORS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

__all__ = [
    "digest_of",
    "pack",
    "random_state",
    "restore_model",
    "restore_optimizer",
    "restore_random_state",
    "seed_everything",
    "unpack",
]

_HOLDS = "a checkpoint holds plain tensors, numbers, text, lists and mappings; no pickle"


def seed_everything(*numbers: int) -> None:
    """Seed Python, NumPy and torch (all devices) by some numbers, such as the run's seed and the rank.

    Args:
        numbers: whole numbers from 0 up.
    """
    words = np.random.SeedSequence(list(numbers)).generate_state(3)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))  # noqa: NPY002 - the global state that other libraries use
    torch.manual_seed(int(words[2]))


def random_state(device: torch.device) -> bytes:
    """The random state of this rank as JSON.

    Args:
        device: the rank's device; its generator is kept too.
    """
    version, numbers, gauss = random.getstate()
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    state = {
        "python": [version, list(numbers), gauss],
        "numpy": [name, np.asarray(keys).tolist(), *rest],
        "torch": base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode(),
    }
    if device.type == "cuda":
        cuda = torch.cuda.get_rng_state(device)
        state["cuda"] = base64.b64encode(cuda.numpy().tobytes()).decode()
    return json.dumps(state, separators=(",", ":")).encode()


def restore_random_state(
    facts: Mapping[str, Any], tensors: Mapping[str, Tensor], rank: int, device: torch.device
) -> bool:
    """Put the random state of one rank back.

    Args:
        facts: the JSON part of a checkpoint.
        tensors: its tensors.
        rank: whose state.
        device: the rank's device.

    Returns:
        False where the checkpoint has no such rank: it was written by fewer.
    """
    if rank >= len(facts["rng"]):
        return False
    state = facts["rng"][rank]
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(tensors[f"rng/{rank}/torch"].clone())
    cuda = tensors.get(f"rng/{rank}/cuda")
    if device.type == "cuda" and cuda is not None:
        torch.cuda.set_rng_state(cuda.clone(), device)
    return True


def pack(
    model: nn.Module, optimizer: Optimizer, random_states: Sequence[bytes], facts: Mapping[str, Any]
) -> dict[str, bytes]:
    """The files of a checkpoint.

    Args:
        model: the bare model, without DDP around it.
        optimizer: its optimizer.
        random_states: of every rank, from :func:`random_state`.
        facts: what else to keep, plain JSON.

    Raises:
        CheckpointError: if model or optimizer keep something that a checkpoint cannot hold.
    """
    tensors: dict[str, Tensor] = {f"model/{key}": value for key, value in model.state_dict().items()}
    states: list[dict[str, Any]] = []
    for rank, data in enumerate(random_states):
        state = json.loads(data)
        for key in ("torch", "cuda"):
            if key in state:
                raw = bytearray(base64.b64decode(state.pop(key)))
                tensors[f"rng/{rank}/{key}"] = torch.frombuffer(raw, dtype=torch.uint8)
        states.append(state)
    optim = optimizer.state_dict()
    plain: dict[str, dict[str, Any]] = {}
    for index, values in optim["state"].items():
        for key, value in values.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optim/{index}/{key}"] = value
            else:
                plain.setdefault(str(index), {})[key] = value
    data, same = _tensor_file(tensors)
    document = {
        **facts,
        "rng": states,
        "aliases": same,
        "optimizer": {"state": plain, "groups": optim["param_groups"]},
    }
    try:
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the optimizer {type(optimizer).__name__} keeps something that is no plain JSON: {error}",
            hint=_HOLDS,
        ) from error
    return {TENSORS: data, STATE: text.encode()}


def _tensor_file(tensors: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The file of the tensors, with tied ones once, and which name stands for which."""
    first: dict[tuple[Any, ...], str] = {}
    kept: dict[str, Tensor] = {}
    same: dict[str, str] = {}
    used: set[int] = set()
    name = ""
    try:
        for name, value in tensors.items():
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"a {type(value).__name__} is no tensor")  # noqa: TRY301
            key = (value.data_ptr(), value.dtype, tuple(value.shape), tuple(value.stride()))
            if value.numel() and key in first:
                same[name] = first[key]
                continue
            first[key] = name
            kept[name] = _alone(value, used)
        name = ""
        return safetensors.torch.save(kept), same
    except (TypeError, KeyError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise CheckpointError(f"{name or 'a tensor'} cannot be written: {words}", hint=_HOLDS) from error


def _alone(value: Tensor, used: set[int]) -> Tensor:
    """A tensor in host memory that it shares with no other: safetensors refuses views of one memory."""
    own = value.detach().to("cpu").contiguous()
    if own.untyped_storage().data_ptr() in used:
        own = own.clone()
    used.add(own.untyped_storage().data_ptr())
    return own


def unpack(files: Mapping[str, bytes]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the facts of a checkpoint.

    Args:
        files: its content by name, as :func:`pack` made it.

    Raises:
        CheckpointError: if it is something else, for example a pickle; that is never run.
    """
    try:
        facts = mapping_from_json(files[STATE])
        tensors = dict(safetensors.torch.load(files[TENSORS]))
        for name, original in facts["aliases"].items():
            tensors[name] = tensors[original]
    except (safetensors.SafetensorError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{TENSORS} or {STATE} is not what this trainer writes: {error}") from error
    return tensors, facts


def restore_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put parameters and buffers back, in place (DDP and the optimizer hold on to them).

    Args:
        model: the bare model.
        tensors: of a checkpoint.
    """
    own = {key[6:]: value for key, value in tensors.items() if key.startswith("model/")}
    try:
        model.load_state_dict(own)
    except RuntimeError as error:
        raise _other_code("model", error) from error


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Put the state of each parameter back. Learning rate, betas and the like stay those of the config.

    What a group keeps beside the arguments of its optimizer is state too, and comes back. Moments keep the
    type that they were saved with, also where that is finer than the parameter's.

    Args:
        optimizer: a fresh one for the same parameters.
        tensors: of a checkpoint.
        facts: its JSON part.
    """
    saved = facts["optimizer"]
    state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in saved["state"].items()}
    for name, value in tensors.items():
        if name.startswith("optim/"):
            _, index, key = name.split("/", 2)
            state.setdefault(int(index), {})[key] = value
    own = optimizer.state_dict()["param_groups"]
    before, now = ([group["params"] for group in groups] for groups in (saved["groups"], own))
    if before != now:
        sizes = f"its groups had {[*map(len, before)]} parameters and have {[*map(len, now)]}"
        raise _other_code("optimizer", ValueError(sizes))
    try:
        fixed = _arguments(optimizer)
        groups = [
            {**group, **{key: value for key, value in old.items() if key not in fixed}}
            for old, group in zip(saved["groups"], own, strict=True)
        ]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    except ValueError as error:
        raise _other_code("optimizer", error) from error
    _keep_types(optimizer, state)


def _arguments(optimizer: Optimizer) -> set[str]:
    """What the config says about an optimizer: of its ``defaults``, what it can be called with.

    Some optimizers (Schedule-Free, Prodigy) keep running values among their defaults. Of all classes, since a
    subclass may pass on keywords that it does not name.
    """
    known: set[str] = set()
    for kind in type(optimizer).__mro__:
        known.update(inspect.signature(kind.__init__).parameters)  # type: ignore[misc]
    return {"params"} | (known & {*optimizer.defaults})


def _keep_types(optimizer: Optimizer, saved: Mapping[int, Mapping[str, Any]]) -> None:
    """Undo a cast of torch to the type of the parameter: float32 moments of bfloat16 would lose bits."""
    parameters = [value for group in optimizer.param_groups for value in group["params"]]
    for index, values in saved.items():
        own = optimizer.state[parameters[index]]
        for key, value in values.items():
            if isinstance(value, torch.Tensor) and own[key].dtype != value.dtype:
                own[key] = value.to(own[key].device)


def _other_code(what: str, error: Exception) -> CheckpointError:
    words = " ".join(str(error).split())
    return CheckpointError(
        f"the {what} in the checkpoint does not fit: {words}",
        hint="the code changed since it was written: take the old code, or another run folder",
    )


def digest_of(model: nn.Module) -> str:
    """The sha256 of all parameters and buffers, to tell whether two runs ended alike to the bit.

    Args:
        model: the bare model.
    """
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
