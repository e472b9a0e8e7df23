"""Whether the hooks are as they should be: every fault is a line, and one line is exit code 1."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from slurmkit.hooks.advice import read_site
from slurmkit.hooks.files import SETTINGS
from slurmkit.hooks.install import install
from slurmkit.hooks.status import check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Break = tuple[str, "Callable[[Path, dict[str, str]], object]"]

FAULTS: dict[str, Break] = {
    "edited": ("prolog is not what slurmkit put there", lambda place, _: (place / "prolog").write_text("x")),
    "gone": ("record.bash is not there", lambda place, _: (place / "record.bash").unlink()),
    "mode": ("epilog has mode 0644", lambda place, _: (place / "epilog").chmod(0o644)),
    "setting": (
        "MAX_BYTES takes",
        lambda place, _: (place / SETTINGS).write_text(f"STATE_DIR={place.parent}/state\nMAX_BYTES=1\n"),
    ),
    "open folder": ("of the hooks: .*0777", lambda place, _: place.chmod(0o777)),
    "open state": ("of the records: .*0777", lambda place, _: (place.parent / "state").chmod(0o777)),
    "not named": ("no Epilog that runs", lambda _, options: options.update(Epilog="(null)")),
    "no flag": ("does not know PrologFlags=Alloc", lambda _, options: options.update(PrologFlags="(null)")),
    "no end": ("PrologEpilogTimeout=8", lambda _, options: options.update(PrologEpilogTimeout="65534")),
    "swept": ("drains nodes", lambda place, options: options.update(Epilog=f"{place}/*")),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    install(tmp_path / "ours", f"{tmp_path}/state")
    return tmp_path / "ours"


def options(place: Path) -> dict[str, str]:
    return {
        "Prolog": f"{place}/prolog",
        "Epilog": f"{place}/epilog",
        "PrologFlags": "Alloc",
        "PrologEpilogTimeout": "8",
    }


def test_all_is_well(place: Path) -> None:
    """No trouble where there is none; what slurm.conf lacks is not known where Slurm cannot be asked."""
    found = check(place, read_site(options(place), (22, 5)))
    assert (found.troubles, found.lines, found.runs) == ((), (), {"prolog": True, "epilog": True})
    unasked = check(place, None)
    assert (unasked.troubles, unasked.lines, unasked.runs) == ((), None, None)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told(place: Path, fault: str) -> None:
    """One line says where it is and what; nothing else is told."""
    said, damage = FAULTS[fault]
    settings = options(place)
    damage(place, settings)
    (trouble,) = check(place, read_site(settings, (22, 5))).troubles
    assert re.search(said, trouble), trouble
