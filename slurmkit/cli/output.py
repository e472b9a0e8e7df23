"""How verbs speak: data on stdout, notes on stderr, tables only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["note", "print_json", "print_rows"]


def note(text: str) -> None:
    """Say something to the person, on stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(payload: Mapping[str, Any]) -> None:
    """Print versioned JSON: the version rises when a field changes its meaning or goes."""
    print(json.dumps({"version": 1, **payload}, indent=1, default=str))


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows: a table on a terminal, else one line a row with tabs and no header."""
    texts = [[str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in texts:
            print("\t".join(row))
        return
    from rich.console import Console  # noqa: PLC0415 - 70 ms that plain output does not need
    from rich.table import Table  # noqa: PLC0415

    table = Table(*columns, box=None, pad_edge=False)
    for row in texts:
        table.add_row(*row)
    Console(no_color=bool(os.environ.get("NO_COLOR"))).print(table)
