"""What a rank says to people: a line on a log that may be full."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["say"]


def say(line: str, to: TextIO | None = None) -> None:
    """Print a line at once. Where the log cannot take it, it is lost, and the save and the requeue go on.

    Args:
        line: for people; what programs read is in ``events.jsonl``.
        to: stdout if None.
    """
    with contextlib.suppress(OSError):
        print(line, file=to or sys.stdout, flush=True)
