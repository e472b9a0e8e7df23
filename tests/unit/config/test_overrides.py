"""A sweep's overrides into points."""

from __future__ import annotations

import time

import pytest

from slurmkit.config.overrides import split_overrides, without_fixed
from slurmkit.errors import ConfigError


def test_the_last_key_varies_fastest() -> None:
    """Points come in the order of Hydra's own sweeper, and what has one value is no part of them."""
    fixed, points = split_overrides(["experiment=digits", "a=1,2", "b=x,y"])
    assert fixed == ["experiment=digits"]
    assert points == [["a=1", "b=x"], ["a=1", "b=y"], ["a=2", "b=x"], ["a=2", "b=y"]]


@pytest.mark.parametrize(
    ("override", "point"),
    [
        ('s="a,b"', None),
        ("s=[1,2]", None),
        ("s=range(0,3)", ["s=0"]),
        ("s='`id`','$(id)'", ["s='`id`'"]),
        ("s=[1,2],[3]", ["s=[1,2]"]),
        ("+s=1,2", ["+s=1"]),
        ("s=1e-3,1_0", ["s=1e-3"]),
        ("s=choice(true,0)", ["s=True"]),
        ("s=${a},\\${b}", ["s=${a}"]),
        ("s=[a, 1e-3],{b: 2}", ["s=[a, 1e-3]"]),
        ("~s=1", None),
    ],
)
def test_hydras_grammar_decides_what_is_a_sweep(override: str, point: list[str] | None) -> None:
    """Quoted commas, lists and backticks stay as written; only Hydra's own sweeps make points."""
    fixed, points = split_overrides([override])
    assert (fixed, points) == ([override], [[]]) if point is None else points[0] == point


@pytest.mark.parametrize(
    ("override", "said", "hint"),
    [
        ("a=interval(0,1)", "a: an interval has no grid of values", "name the values: a=1,2,3"),
        ("a=range(0,0)", "the sweep has no point", "such as range(0,3)"),
        ("a=glob(*)", "a: ConfigLoader is not set", "name the values: a=a,b"),
        (
            "hydra.launcher.wait=true,false",
            "hydra.launcher.wait: Hydra's own",
            "give hydra.launcher.wait one value",
        ),
        ("hydra/launcher=a,b", "hydra/launcher: Hydra's own", "give hydra/launcher one value"),
        ("a=[1", "no viable alternative at input '[1'", "quote what the shell"),
    ],
)
def test_what_no_array_can_hold_is_refused(override: str, said: str, hint: str) -> None:
    """Intervals have no grid; all points have one config of Hydra; an unreadable word is named."""
    with pytest.raises(ConfigError) as caught:
        split_overrides([override])
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_points_are_freed_of_what_they_share() -> None:
    """Hydra's own sweeper repeats every word in each point, in its own spelling: only what is swept stays."""
    typed = ["+a=1e-3", "b=1_0", "~c", "x=1", "x=2,3"]
    assert without_fixed([["+a=0.001", "b=10", "~c=null", "x=2"], ["x=3"]], typed) == [["x=2"], ["x=3"]]


def test_a_large_sweep_costs_nothing_per_point() -> None:
    """100,000 points are split in seconds, since nothing is composed."""
    start = time.monotonic()
    assert len(split_overrides(["a=range(0,1000)", "b=range(0,100)"])[1]) == 100_000
    assert time.monotonic() - start < 5
