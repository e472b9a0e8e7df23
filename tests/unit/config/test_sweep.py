"""Whether the points of a sweep compose, at a bounded cost."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from slurmkit.config.sweep import MOST_COMPOSITIONS, check_sweep

if TYPE_CHECKING:
    from collections.abc import Sequence


class Composer:
    """Hydra as far as the check sees it: counts what it composes."""

    def __init__(self, *groups: str) -> None:
        self.points: list[list[str]] = []
        self.config = OmegaConf.create({"hydra": {"runtime": {"choices": dict.fromkeys(groups, "x")}}})

    def __call__(self, point: Sequence[str]) -> DictConfig:
        self.points.append(list(point))
        return self.config


def grid(**axes: Sequence[object]) -> list[list[str]]:
    keys = list(axes)
    return [
        [f"{key}={value}" for key, value in zip(keys, values, strict=True)]
        for values in itertools.product(*axes.values())
    ]


def test_every_choice_is_composed_and_every_value_is_not() -> None:
    """10,000 points of two models: two compositions, the second with the values of its first point."""
    compose = Composer("model", "optim")
    check_sweep(grid(model=["a", "b"], lr=range(5000)), compose)
    assert compose.points == [["model=a", "lr=0"], ["model=b", "lr=0"]]


def test_choices_are_seen_in_every_spelling() -> None:
    """Groups that are added, renamed by package or named from the top are groups, too."""
    for word in ("+model", "model@net", "/model"):
        compose = Composer("model@net" if "@" in word else "model")
        check_sweep([[f"{word}=a"], [f"{word}=b"], [f"{word}=b"]], compose)
        assert compose.points == [[f"{word}=a"], [f"{word}=b"]]


def test_the_cost_is_bounded_and_every_group_has_its_turn() -> None:
    """A thousand choices of one group do not crowd out the second choice of another."""
    compose = Composer("model", "optim")
    check_sweep(grid(optim=["x", "y"], model=range(1000)), compose)
    assert len(compose.points) == MOST_COMPOSITIONS
    assert ["optim=y", "model=0"] in compose.points


def test_no_points_are_no_error() -> None:
    """Nothing is composed for a sweep without points."""
    compose = Composer()
    check_sweep([], compose)
    assert compose.points == []
