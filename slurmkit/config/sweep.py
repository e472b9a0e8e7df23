"""Whether the points of a sweep can be composed, at a cost that does not grow with their number."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from omegaconf import DictConfig

__all__ = ["MOST_COMPOSITIONS", "check_sweep"]

#: A composition takes 0.1 s.
MOST_COMPOSITIONS = 50


def check_sweep(
    points: Sequence[Sequence[str]],
    compose_one: Callable[[Sequence[str]], DictConfig],
    most: int = MOST_COMPOSITIONS,
) -> None:
    """Compose the first point, and for every config that is swept the first point that chooses it.

    Hydra judges, and not a list of ours: only it knows of ``hydra.searchpath``, of folders in folders and
    of choices of several configs. Keys that are no config groups (``optim.lr``) are composed once.

    Args:
        points: one list of overrides a point.
        compose_one: composes a point and returns the config with its ``hydra`` node; raises what it raises.
        most: how many compositions at the most; further choices are left to their tasks.
    """
    if not points:
        return
    config = compose_one(points[0])
    groups = {_group(str(key)) for key in config.hydra.runtime.choices}
    for point in _first_of_each_choice(points, groups)[: most - 1]:
        compose_one(point)


def _group(override: str) -> str:
    return override.partition("=")[0].lstrip("+~").partition("@")[0].strip("/")


def _first_of_each_choice(points: Sequence[Sequence[str]], groups: set[str]) -> list[Sequence[str]]:
    """One point a choice that is not in the first point: of every group the first, then the second ..."""
    seen = set(points[0])
    found: dict[str, list[Sequence[str]]] = {}
    for point in points[1:]:
        for item in point:
            if item not in seen and _group(item) in groups:
                found.setdefault(_group(item), []).append(point)
        seen.update(point)
    turns = itertools.zip_longest(*found.values())
    return [point for turn in turns for point in turn if point is not None]
