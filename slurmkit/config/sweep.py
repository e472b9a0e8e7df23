"""Whether the points of a sweep can be composed, and run as one job array, at a cost that does not grow with them."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from slurmkit.config.schema import ASKED
from slurmkit.config.written import key_of
from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from slurmkit.config.schema import Experiment

__all__ = ["check_sweep"]


def check_sweep(
    points: Sequence[Sequence[str]],
    base: Experiment,
    compose_one: Callable[[Sequence[str]], tuple[Experiment, Collection[str]]],
) -> None:
    """Compose the points that can tell: the first, the last, and the first of every choice of a config group.

    Hydra judges, and not a list of ours: only it knows of ``hydra.searchpath``, of folders in folders, of
    choices of several configs, and what else they choose. A key that is no group (``optim.lr``) makes another
    job only through an interpolation, which the first and the last of its values show.

    Args:
        points: one list of overrides a point.
        base: what the job array is made of: the experiment without any of them.
        compose_one: composes a point; returns its experiment and the names of all groups.

    Raises:
        ConfigError: for a point that needs another job than the array is.
    """
    if not points:
        return
    experiment, groups = compose_one(points[0])
    _refuse_other_job(points[0], experiment, base)
    good = set(points[0])
    names = {key_of(group) for group in groups}

    def tells(key: str) -> bool:
        """Whether a key chooses configs, or is one of those (``resources.nodes``) that all points share."""
        return key in names or (key.startswith(base.mount) and _top(key.removeprefix(base.mount)) in ASKED)

    for point in _telling(points, tells):
        new = [word for word in point if word not in good] or point
        _refuse_other_job(new, compose_one(point)[0], base)
        good.update(point)


def _top(key: str) -> str:
    return key.partition(".")[0]


def _telling(points: Sequence[Sequence[str]], tells: Callable[[str], bool]) -> list[Sequence[str]]:
    """One point a choice that is not in the first point: of every group the first, then the second ...; and the last."""
    seen = set(points[0])
    found: dict[str, list[Sequence[str]]] = {}
    for point in points[1:]:
        for item in point:
            if item not in seen and tells(key_of(item)):
                found.setdefault(key_of(item), []).append(point)
        seen.update(point)
    turns = itertools.zip_longest(*found.values())
    telling = [point for turn in turns for point in turn if point is not None]
    return telling if points[-1] in (points[0], *telling) else [*telling, points[-1]]


def _refuse_other_job(words: Sequence[str], experiment: Experiment, base: Experiment) -> None:
    """Refuse a point that wants another job.

    Args:
        words: of the point, those that may be why.
        experiment: the point's.
        base: the array's.
    """
    have, want = _shared(base), _shared(experiment)
    other = [key for key in {**want, **have} if want.get(key) != have.get(key)]
    if not other:
        return
    key, mount = other[0], base.mount
    exact = [word for word in words if key == key_of(word) or key.startswith(f"{key_of(word)}.")]
    word = " ".join(exact or words)
    also = f" (also {', '.join(mount + name for name in other[1:])})" if len(other) > 1 else ""
    raise ConfigError(
        f"{word}: {mount}{key} would be {_said(want.get(key))}, and the one job array of a sweep has "
        f"{_said(have.get(key))} for all points{also}",
        f"submit once for each: {word}; or give {mount}{key} one value for all points",
    )


def _said(value: Any) -> str:
    return "unset" if value is None else repr(value)


def _shared(experiment: Experiment) -> dict[str, Any]:
    """The dotted keys of what an array has in common; the command only where it is not made of the overrides."""
    tree = {name: value for name, value in asdict(experiment).items() if name in ASKED}
    if experiment.payload.kind != "command":
        del tree["payload"]["command"]
    return dict(_leaves(tree, ""))


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
