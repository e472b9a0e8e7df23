"""The page of results: a pure function of what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .figures import Figure, Section

#: From here on milliseconds are of no interest.
_LARGE = 2
_ABOUT = (
    "Each figure is the median over its runs, with the smallest and the largest value seen. What is compared was run in "
    "turns, and ratios were taken pair by pair before their median. A target is met if the median is under it."
)


def render(sections: Sequence[Section], machine: Mapping[str, str], command: str) -> str:
    """The page as Markdown."""
    lines = ["# Benchmarks", "", "Written by", "", f"    {command}", "", _ABOUT, ""]
    lines += ["| Machine | |", "| --- | --- |", *(f"| {key} | {value} |" for key, value in machine.items())]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.text, ""]
        lines += ["| | Median | Min to max | Runs | Target |", "| --- | ---: | ---: | ---: | --- |"]
        lines += [_row(figure) for figure in section.figures]
    return "\n".join(lines) + "\n"


def _row(figure: Figure) -> str:
    cells = [
        figure.name,
        number(figure.median, figure.unit),
        f"{number(min(figure.values), figure.unit)} to {number(max(figure.values), figure.unit)}",
        str(len(figure.values)),
        "" if figure.target is None else f"under {target(figure)}: {'met' if figure.met else '**missed**'}",
    ]
    return f"| {' | '.join(cells)} |"


def target(figure: Figure) -> str:
    """What the median has to be under."""
    return f"{figure.target:g} {figure.unit.strip('x')}".strip()


def number(value: float, unit: str) -> str:
    """A value as a person reads it; a ratio has no unit."""
    digits = 1 if unit == "ms" or value >= _LARGE else 3
    return f"{value:.{digits}f} {unit.strip('x')}".strip()
