"""The state of a run: taken apart into tensors and JSON, put back to the bit, and never a pickle."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from odd_models import View

from slurmkit.config.training import OptimConfig
from slurmkit.errors import CheckpointError
from trainer import state
from trainer.build import build_optimizer
from trainer.checkpoint import STATE, TENSORS
from trainer.models.gpt import GPT

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

CPU = torch.device("cpu")


def small(optim: Any = None) -> tuple[GPT, Optimizer]:
    model = GPT(vocab=16, context=8, layers=1, heads=2, width=8)
    return model, build_optimizer(optim or OptimConfig(), model)


def train(model: GPT, optimizer: Optimizer, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        tokens = torch.randint(0, 16, (4, 9))
        loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def drawn() -> tuple[float, float]:
    return random.random(), np.random.rand()  # noqa: NPY002, S311


def saved(model: nn.Module, optimizer: Optimizer) -> dict[str, bytes]:
    return state.pack(model, optimizer, [state.random_state(CPU)], {"step": 3})


@pytest.mark.parametrize(
    "optim",
    [
        OptimConfig(),
        {"name": "sgd", "lr": 0.1, "beta1": 0.9},
        {"_target_": "torch.optim.NAdam", "lr": 0.001},
        {"_target_": "torch.optim.Adagrad", "lr": 0.01},
    ],
)
def test_training_goes_on_to_the_bit(optim: Any) -> None:
    """Model, optimizer and random numbers come back so that the next steps are the same to the bit."""
    state.seed_everything(1)
    model, optimizer = small(optim)
    train(model, optimizer, 3)
    files = saved(model, optimizer)
    expected = train(model, optimizer, 4), state.digest_of(model), drawn()

    state.seed_everything(99)
    other, fresh = small(optim)
    tensors, facts = state.unpack(files)
    state.restore_model(other, tensors)
    state.restore_optimizer(fresh, tensors, facts)
    assert state.restore_random_state(facts, tensors, 0, CPU)
    found = train(other, fresh, 4), state.digest_of(other), drawn()
    assert found == expected
    assert facts["step"] == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (OptimConfig(), OptimConfig(weight_decay=0.5, beta1=0.5, beta2=0.6)),
        ({"_target_": "torch.optim.NAdam", "lr": 0.1}, {"_target_": "torch.optim.NAdam", "lr": 0.001}),
    ],
)
def test_what_the_config_says_now_wins(before: Any, after: Any) -> None:
    """A resumed run takes weight decay, betas and learning rate of its config, and the moments of the old."""
    model, optimizer = small(before)
    train(model, optimizer, 2)
    tensors, facts = state.unpack(saved(model, optimizer))
    other, fresh = small(after)
    asked = [{key: value for key, value in group.items() if key != "params"} for group in fresh.param_groups]
    state.restore_model(other, tensors)
    state.restore_optimizer(fresh, tensors, facts)
    now = [{key: value for key, value in group.items() if key != "params"} for group in fresh.param_groups]
    assert now == asked
    old = optimizer.state[optimizer.param_groups[0]["params"][0]]["exp_avg"]
    assert torch.equal(fresh.state[fresh.param_groups[0]["params"][0]]["exp_avg"], old)


def test_what_an_optimizer_keeps_in_a_group_is_state() -> None:
    """What is no argument of the optimizer comes back, also where it has a default; arguments do not.

    Schedule-Free and Prodigy keep running values among their defaults, such as a count of steps.
    """
    before, after = ({"_target_": "odd_models.Counted", "lr": lr, "momentum": lr} for lr in (0.1, 0.2))
    model, optimizer = small(before)
    train(model, optimizer, 3)
    optimizer.param_groups[0]["found"] = 7
    tensors, facts = state.unpack(saved(model, optimizer))
    _, fresh = small(after)
    state.restore_optimizer(fresh, tensors, facts)
    group = fresh.param_groups[0]
    assert (group["k"], group["found"]) == (3, 7)
    assert (group["lr"], group["momentum"]) == (0.2, 0.2)


def test_moments_keep_their_type() -> None:
    """Float32 moments of bfloat16 parameters come back to the bit, which torch would round."""
    model, optimizer = small()
    train(model, optimizer, 1)
    model.to(torch.bfloat16)
    kept = [optimizer.state[value]["exp_avg"] for value in model.parameters()]
    tensors, facts = state.unpack(saved(model, optimizer))
    other, fresh = small()
    other.to(torch.bfloat16)
    state.restore_optimizer(fresh, tensors, facts)
    found = [fresh.state[value]["exp_avg"] for value in other.parameters()]
    assert {value.dtype for value in found} == {torch.float32}
    assert all(map(torch.equal, kept, found))


def test_views_of_one_memory_are_written_each() -> None:
    """A buffer that is part of another one, or the same in another shape, is saved and comes back."""
    model = View()
    optimizer = build_optimizer(OptimConfig(), model)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    tensors, facts = state.unpack(saved(model, optimizer))
    assert facts["aliases"] == {"model/same": "model/table"}
    other = View()
    for value in other.buffers():
        value.zero_()
    state.restore_model(other, tensors)
    assert all(torch.equal(value, expected[name]) for name, value in other.state_dict().items())


def test_tied_parameters_are_written_once() -> None:
    """The embedding and the head of the GPT are one tensor: safetensors would refuse two names for it."""
    model, optimizer = small()
    tensors, facts = state.unpack(saved(model, optimizer))
    assert facts["aliases"] == {"model/head.weight": "model/tokens.weight"}
    assert torch.equal(tensors["model/head.weight"], model.head.weight)


def test_a_rank_that_was_not_there_has_no_random_state() -> None:
    """With more ranks than before the new ones are told that there is nothing for them."""
    model, optimizer = small()
    tensors, facts = state.unpack(saved(model, optimizer))
    assert not state.restore_random_state(facts, tensors, 1, CPU)


class _Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_planted_pickle_is_not_run(tmp_path: Path) -> None:
    """A pickle in the place of the tensors is an error of the checkpoint, and its payload does not run."""
    trap = tmp_path / "trap"
    for data in (pickle.dumps(_Payload(trap)), pickle.dumps(_Payload(trap), protocol=0)):
        with pytest.raises(CheckpointError, match="not what this trainer writes"):
            state.unpack({TENSORS: data, STATE: b'{"aliases": {}}'})
        with pytest.raises(CheckpointError):
            state.unpack({TENSORS: b"", STATE: data})
    assert not trap.exists()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"aliases": []}',
        b'{"aliases": {"a": "nope"}}',
        b'{"aliases": {"a": []}}',
    ],
)
def test_a_state_of_another_shape_is_an_error_of_the_checkpoint(text: bytes) -> None:
    """JSON or not: what this trainer does not write is said to be that."""
    files = {**saved(*small(OptimConfig())), state.STATE: text}
    with pytest.raises(CheckpointError, match="is not what this trainer writes"):
        state.unpack(files)


def test_what_is_no_json_is_refused_at_the_save() -> None:
    """An optimizer that keeps an object cannot be saved without pickle, and the save says so."""
    model, optimizer = small()
    optimizer.param_groups[0]["hook"] = object()
    with pytest.raises(CheckpointError, match="AdamW keeps something that is no plain JSON"):
        saved(model, optimizer)


def test_other_code_is_an_error_of_the_checkpoint() -> None:
    """A model or optimizer whose code changed is one line, and not a traceback."""
    model, optimizer = small()
    tensors, facts = state.unpack(saved(model, optimizer))
    wider = GPT(vocab=16, context=8, layers=2, heads=2, width=8)
    with pytest.raises(CheckpointError, match="the model in the checkpoint does not fit"):
        state.restore_model(wider, tensors)
    with pytest.raises(CheckpointError, match="the optimizer in the checkpoint does not fit"):
        state.restore_optimizer(build_optimizer(OptimConfig(), wider), tensors, facts)


def test_the_state_is_readable() -> None:
    """state.json is plain JSON with what a person looks for."""
    model, optimizer = small()
    document = json.loads(saved(model, optimizer)[STATE])
    assert document["step"] == 3
    assert document["optimizer"]["groups"][0]["lr"] == 0.001
