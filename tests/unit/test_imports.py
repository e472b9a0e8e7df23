"""The house's rule: imports go one way."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

#: Room → the rooms that it may import. What is not listed may not be imported.
_FLOOR = {"errors", "units", "paths"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "units": {"errors"},
    "paths": {"errors"},
    "runtime": _FLOOR,
    "config": {*_FLOOR, "runtime"},
    "cluster": {*_FLOOR, "runtime", "config"},
    "compiler": {*_FLOOR, "runtime", "config", "cluster", "__init__"},
    "launch": {*_FLOOR, "runtime", "config", "cluster", "compiler", "__init__"},
    "lab": _FLOOR,
    "hooks": {*_FLOOR, "runtime"},
    "cli": {*_FLOOR, "runtime", "config", "cluster", "compiler", "launch", "lab", "hooks", "__init__"},
    "_plugins": {*_FLOOR, "runtime", "config", "cluster", "compiler", "launch", "__init__"},
    "trainer": {*_FLOOR, "runtime", "config"},
}
#: Rooms that run where no third-party package is: inside hooks and on a bare node.
STDLIB_ONLY = {"errors", "units", "paths", "runtime", "lab", "hooks"}
STDLIB = {"slurmkit", "__future__"}


def _files() -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / "slurmkit").rglob("*.py")):
        parts = path.relative_to(ROOT / "slurmkit").parts
        room = parts[0].removesuffix(".py")
        if room != "__init__":
            yield room, path
    for path in sorted((ROOT / "trainer").rglob("*.py")):
        yield "trainer", path


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every import of a file, those inside functions too; ``from slurmkit import x`` counts as the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "slurmkit":
                rooms = {path.stem for path in (ROOT / "slurmkit").iterdir()}
                yield from (
                    (node.lineno, f"slurmkit.{alias.name}" if alias.name in rooms else "slurmkit.__init__")
                    for alias in node.names
                )
            else:
                yield node.lineno, node.module


@pytest.mark.parametrize(
    ("room", "path"), [pytest.param(room, path, id=str(path.relative_to(ROOT))) for room, path in _files()]
)
def test_imports_go_one_way(room: str, path: Path) -> None:
    """Every file imports only from the rooms below its own, even inside functions."""
    for line, module in _imports(path):
        top, _, rest = module.partition(".")
        if top == "trainer":
            assert room == "trainer", f"{path}:{line}: {room} imports the trainer"
        if top == "slurmkit":
            target = rest.partition(".")[0] or "__init__"
            assert target == room or target in ALLOWED[room], (
                f"{path}:{line}: {room} may not import slurmkit.{target}"
            )


@pytest.mark.parametrize(
    ("room", "path"),
    [
        pytest.param(room, path, id=str(path.relative_to(ROOT)))
        for room, path in _files()
        if room != "trainer"
    ],
)
def test_the_toolkit_imports_no_torch(room: str, path: Path) -> None:
    """Slurmkit runs on login nodes and in hooks, where there is no torch; some rooms have the standard library alone."""
    import sys  # noqa: PLC0415

    for line, module in _imports(path):
        top = module.partition(".")[0]
        assert top != "torch", f"{path}:{line} imports torch"
        if room in STDLIB_ONLY:
            assert top in STDLIB or top in sys.stdlib_module_names, (
                f"{path}:{line}: {room} imports {module}, which is not in the standard library"
            )


def test_every_room_is_known() -> None:
    """A new package gets its place in the order before anything is written into it."""
    assert {room for room, _ in _files()} <= set(ALLOWED)
