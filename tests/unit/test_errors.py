"""Errors are a feature."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from slurmkit import errors

ALL = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", ALL)
def test_errors_survive_pickling(kind: type[errors.SlurmkitError]) -> None:
    """Submitit and multiprocessing send exceptions between processes: nothing may get lost on the way."""
    error = pickle.loads(pickle.dumps(kind("got x", "type y", "line 1\nline 2")))  # noqa: S301 - our own bytes
    assert (type(error), error.message, error.hint, error.detail) == (
        kind,
        "got x",
        "type y",
        "line 1\nline 2",
    )
    assert str(error) == "got x"


def drawn() -> dict[str, tuple[str, int]]:
    """Name → its parent and exit code, as the docstring draws them; a child without a code has its parent's."""
    found: dict[str, tuple[str, int]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│ ├└─]*)(\w+Error)\b(?:\s+exit (\d+))?", line)
        if match:
            path = [*path[: len(match[1]) // 4], match[2]]
            parent = path[-2] if len(path) > 1 else "Exception"
            found[match[2]] = (parent, int(match[3] or found[parent][1]))
    return found


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """The drawing at the top of the module has every error, its parent and its exit code, and no other."""
    assert drawn() == {kind.__name__: (kind.__bases__[0].__name__, kind.exit_code) for kind in ALL}


def test_no_error_of_ours_is_defined_elsewhere() -> None:
    """The tree is every error: a kind of its own in some other file would be missing from it."""
    known = {kind.__name__ for kind in ALL}
    root = Path(__file__).parents[2]
    for path in [*(root / "slurmkit").rglob("*.py"), *(root / "trainer").rglob("*.py")]:
        if path != Path(errors.__file__):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
                ours = known.intersection(base.rpartition(".")[2] for base in bases)
                assert not ours, f"{path}:{node.lineno}: a kind of {ours}; define it in slurmkit/errors.py"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("UsageError", 2),
        ("ConfigError", 2),
        ("PreflightError", 3),
        ("SlurmUnavailableError", 4),
        ("SlurmRefusedError", 1),
    ],
)
def test_exit_codes_are_the_contract(kind: str, code: int) -> None:
    """Scripts around slurmkit tell a bad config from a bad plan from a dead controller by the exit code."""
    assert getattr(errors, kind).exit_code == code
