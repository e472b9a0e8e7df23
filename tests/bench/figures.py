"""What a measurement gives: figures with every value that was seen, and whether a target was met."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Figure:
    """One thing that was measured again and again."""

    name: str
    values: tuple[float, ...]
    unit: str = "s"
    """``s``, ``ms``, or ``x`` for a ratio."""
    target: float | None = None
    """The median has to be under it."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        return self.target is None or self.median < self.target


@dataclass(frozen=True)
class Section:
    """The figures of one kind of measurement, and in words how they were taken."""

    title: str
    text: str
    figures: tuple[Figure, ...]


class BenchError(Exception):
    """Something could not be measured."""


def ratio(name: str, over: list[float], under: list[float], target: float | None = None) -> Figure:
    """Pair by pair, so that what slows a machine down slows both of a pair."""
    return Figure(name, tuple(a / b for a, b in zip(over, under, strict=True)), "x", target)


def timed(argv: list[str], env: dict[str, str], cwd: Path, says: str = "") -> float:
    """Seconds of one process from its start to its end; it must succeed, and print what it should."""
    begin = time.perf_counter()
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode or says not in done.stdout:
        raise BenchError(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return seconds


def with_venv(env: dict[str, str]) -> dict[str, str]:
    """The environment in which ``slurmkit`` and ``python`` are those that run the bench, and bytecode is kept."""
    kept = {key: value for key, value in env.items() if not key.startswith("PYTHON")}
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"}
