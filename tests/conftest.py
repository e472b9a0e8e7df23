"""What every test may use: golden files that say how they are renewed."""

from __future__ import annotations

import difflib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--renew-golden", action="store_true", help="write the golden files anew instead of comparing"
    )


def pytest_configure() -> None:
    """Ctrl-C works in all that tests start, also where a shell has started us in its background, deaf to it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def missing() -> Callable[[str], None]:
    """Skip a test for want of a program, saying which; under CI that fails, so that nothing is hidden."""

    def stop(reason: str) -> None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)

    return stop


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with ``tests/golden/<path>``; under ``--renew-golden`` write it."""

    def check(path: str, text: str) -> None:
        file = _GOLDEN / path
        if request.config.getoption("--renew-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return
        known = file.read_text(encoding="utf-8") if file.exists() else ""
        if known != text:
            diff = difflib.unified_diff(
                known.splitlines(), text.splitlines(), f"golden/{path}", "now", lineterm=""
            )
            command = f"python -m pytest {request.node.nodeid.partition('::')[0]} --renew-golden"
            pytest.fail(
                "\n".join(
                    [f"{path} is not what it was; if the change is right, renew it with: {command}", *diff]
                ),
                pytrace=False,
            )

    return check
