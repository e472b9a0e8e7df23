"""How verbs speak: data on stdout, notes on stderr, tables only on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["note", "print_json", "print_rows", "print_script", "visible"]


def visible(text: str) -> str:
    r"""The text with its control characters written out (``\x1b``): names are free text, and a terminal obeys them."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in text
    )


def note(text: str) -> None:
    """Say something to the person, on stderr, if it still listens: what is being done goes on."""
    with contextlib.suppress(OSError):
        print(visible(text), file=sys.stderr, flush=True)


def print_script(script: str) -> None:
    """Print a script: as it is where it goes into a file, and harmless on a terminal."""
    print(visible(script) if sys.stdout.isatty() else script, end="")


def print_json(payload: Mapping[str, Any]) -> None:
    """Print versioned JSON: the version rises when a field changes its meaning or goes."""
    print(json.dumps({"version": 1, **payload}, indent=1, default=str))


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows: a table with a header on a terminal, else the data alone, one line a row with tabs."""
    texts = [[visible(str(cell)).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in texts:
            print("\t".join(row))
        return
    from rich.console import Console  # noqa: PLC0415 - 70 ms that plain output does not need
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*columns, box=None, pad_edge=False, header_style="")
    for row in texts:
        table.add_row(*map(Text, row))  # as text, brackets are no markup
    Console(no_color=bool(os.environ.get("NO_COLOR"))).print(table)
