"""Whether the points of a sweep compose and are of one job, at a cost that does not grow with their number."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from slurmkit.config.schema import Env, Experiment, Payload, Resources
from slurmkit.config.sweep import check_sweep
from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BASE = Experiment()


class Composer:
    """Hydra as far as the check sees it: keeps what it composes."""

    def __init__(
        self, *groups: str, make: Callable[[Sequence[str]], Experiment] = lambda _: Experiment()
    ) -> None:
        self.points: list[list[str]] = []
        self.groups = groups
        self.make = make

    def __call__(self, point: Sequence[str]) -> tuple[Experiment, Sequence[str]]:
        self.points.append(list(point))
        return self.make(point), self.groups


def grid(axes: dict[str, Sequence[object]]) -> list[list[str]]:
    keys = list(axes)
    return [
        [f"{key}={value}" for key, value in zip(keys, values, strict=True)]
        for values in itertools.product(*axes.values())
    ]


def test_every_choice_is_composed_and_every_value_is_not() -> None:
    """10,000 points of two models: the first point, the first of the other model, and the last.

    A key below a group's name (``optim.lr``) chooses nothing.
    """
    compose = Composer("model", "optim", "trainer")
    check_sweep(grid({"model": ["a", "b"], "optim.lr": range(5000)}), BASE, compose)
    a, b, last = (["model=a", "optim.lr=0"], ["model=b", "optim.lr=0"], ["model=b", "optim.lr=4999"])
    assert compose.points == [a, b, last]


def test_choices_are_seen_in_every_spelling() -> None:
    """Groups that are added, renamed by package or named from the top are groups, too."""
    for word in ("+model", "model@net", "/model"):
        compose = Composer("model@net" if "@" in word else "model")
        check_sweep([[f"{word}=a"], [f"{word}=b"], [f"{word}=b"]], BASE, compose)
        assert compose.points == [[f"{word}=a"], [f"{word}=b"]]


def test_the_cost_is_the_sum_of_the_choices_and_not_their_product() -> None:
    """Forty choices of one group and thirty of another are seventy compositions, and not twelve hundred."""
    compose = Composer("model", "optim")
    check_sweep(grid({"optim": range(30), "model": range(40)}), BASE, compose)
    assert len(compose.points) == 30 + 40
    assert len(compose.points) == len({tuple(point) for point in compose.points})


def test_no_points_are_no_error() -> None:
    """Nothing is composed for a sweep without points."""
    compose = Composer()
    check_sweep([], BASE, compose)
    assert compose.points == []


def asks_for(word: str, other: Experiment) -> Callable[[Sequence[str]], Experiment]:
    return lambda point: other if word in point else Experiment()


@pytest.mark.parametrize("other", ["x=b", "x=c"])
@pytest.mark.parametrize(
    ("experiment", "key", "have", "want"),
    [
        (Experiment(resources=Resources(nodes=2)), "resources.nodes", "1", "2"),
        (Experiment(resources=Resources(gres="gpu:2")), "resources.gres", "unset", "'gpu:2'"),
        (Experiment(env=Env(vars={"A": "1"})), "env.vars.A", "unset", "'1'"),
        (Experiment(name="b"), "name", "'experiment'", "'b'"),
        (Experiment(runs_dir="b"), "runs_dir", "'runs'", "'b'"),
        (Experiment(payload=Payload("command", ["a"])), "payload.kind", "'trainer'", "'command'"),
    ],
)
def test_a_choice_that_wants_another_job_is_refused(
    experiment: Experiment, key: str, have: str, want: str, other: str
) -> None:
    """All tasks of an array share these: the error names the word, the key, both values and the way out."""
    points = grid({"x": ["a", "b", "c"], "lr": [1, 2]})
    with pytest.raises(ConfigError) as caught:
        check_sweep(points, BASE, Composer("x", make=asks_for(other, experiment)))
    assert caught.value.message.startswith(f"{other}: {key} would be {want}")
    assert f"has {have} for all points" in caught.value.message
    assert f"submit once for each: {other}" in caught.value.hint


@pytest.mark.parametrize("values", [[1, 2], [1, 2, 1], [2, 1]])
def test_a_sweep_over_what_is_shared_is_the_same_error(values: list[int]) -> None:
    """``resources.nodes=1,2`` needs no group: every value of a shared key is composed until one differs."""

    def make(point: Sequence[str]) -> Experiment:
        return Experiment(resources=Resources(nodes=int(point[0].rpartition("=")[2])))

    points = [[f"resources.nodes={value}", "lr=1"] for value in values]
    with pytest.raises(ConfigError, match=r"^resources\.nodes=2: resources\.nodes would be 2"):
        check_sweep(points, BASE, Composer(make=make))


def test_a_key_that_is_shared_through_an_interpolation_is_found() -> None:
    """``name=run_${lr}`` differs in the last value of ``lr``, though the first is what the config has."""
    compose = Composer(make=asks_for("lr=3", Experiment(name="run_3")))
    with pytest.raises(ConfigError, match=r"^seed=1 lr=3: name would be 'run_3'"):
        check_sweep(grid({"seed": [0, 1], "lr": [1, 2, 3]}), BASE, compose)


def test_the_words_of_a_trainer_may_differ_and_those_of_a_command_not() -> None:
    """A trainer's command holds the point's own overrides; another command would be another job."""
    trainer = Experiment(payload=Payload("trainer", ["-m", "trainer", "lr=2"]))
    check_sweep([["lr=1"], ["lr=2"]], BASE, Composer(make=asks_for("lr=2", trainer)))
    command, other = (Experiment(payload=Payload("command", [word])) for word in "ab")
    compose = Composer(make=lambda point: command if point == ["lr=1"] else other)
    with pytest.raises(ConfigError, match=r"payload\.command would be \['b'\]"):
        check_sweep([["lr=1"], ["lr=2"]], command, compose)


def test_keys_are_named_where_they_are_mounted() -> None:
    """In another app the shared keys lie under ``hydra.launcher``."""
    base = Experiment(mount="hydra.launcher.")
    other = Experiment(resources=Resources(nodes=2), mount="hydra.launcher.")
    with pytest.raises(ConfigError, match=r"^exp=b: hydra\.launcher\.resources\.nodes would be 2"):
        check_sweep([["exp=a"], ["exp=b"]], base, Composer("exp", make=asks_for("exp=b", other)))


def test_another_apps_own_keys_are_its_own() -> None:
    """``env.id`` and ``name`` of another app are no sections of ours: forty values cost two compositions."""
    base = Experiment(mount="hydra.launcher.")
    for key in ("env.id", "name", "resources.kind"):
        compose = Composer("env", make=lambda _: base)
        check_sweep(grid({key: range(40)}), base, compose)
        assert compose.points == [[f"{key}=0"], [f"{key}=39"]]
    compose = Composer(make=lambda _: base)
    check_sweep(grid({"hydra.launcher.env.vars.A": range(3)}), base, compose)
    assert len(compose.points) == 3
