"""The schedule of the learning rate: a table, since it decides every step of every run."""

from __future__ import annotations

import pytest

from slurmkit.config.training import OptimConfig


@pytest.mark.parametrize(
    ("changes", "step", "expected"),
    [
        ({}, 1, 0.25),
        ({}, 2, 0.5),
        ({}, 3, 0.75),
        ({}, 4, 1.0),
        ({}, 5, 0.1 + 0.9 * 0.5 * (1 + 0.9876883405951378)),
        ({}, 14, 0.55),  # half way down the cosine
        ({}, 24, 0.1),
        ({}, 99, 0.1),  # a run that was made shorter
        ({"warmup": 0}, 12, 0.55),
        ({"floor": 0.0}, 24, 0.0),
        ({"decay": False}, 2, 0.5),
        ({"decay": False}, 24, 1.0),
    ],
)
def test_the_learning_rate_of_a_step(changes: dict[str, float], step: int, expected: float) -> None:
    """Linear up over ``warmup`` steps, half a cosine down to ``floor``, and flat after the last step."""
    config = OptimConfig(**{"lr": 1.0, "warmup": 4, "floor": 0.1, **changes})  # type: ignore[arg-type]
    assert config.lr_at(step, 24) == pytest.approx(expected)
