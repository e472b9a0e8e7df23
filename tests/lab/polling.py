"""Wait for what a test expects: poll to a deadline, never sleep and hope."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_POLL = 0.05


def wait_until(
    predicate: Callable[[], T],
    timeout: float,
    what: str | Callable[[], str],
    error: type[Exception] = AssertionError,
) -> T:
    """Call a predicate until it returns something true.

    Args:
        predicate: is asked twenty times a second.
        timeout: seconds until the test fails.
        what: is waited for, for the failure; called then, where it is to tell how things are.
        error: is raised if the time is over; the report of a lab test adds the lab's diagnostics.

    Returns:
        The true value.
    """
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        if time.monotonic() > deadline:
            told = what if isinstance(what, str) else what()
            raise error(f"waited {timeout:.0f} s in vain for {told}; the last answer was {value!r}")
        time.sleep(_POLL)
    return value
