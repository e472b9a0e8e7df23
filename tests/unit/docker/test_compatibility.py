"""How the page of compatibility is made of what the tests on the clusters left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from compatibility import PAGE, RELEASES, ROOT, Results, code_here, load, render

if TYPE_CHECKING:
    from pathlib import Path

LAB = "=========== 118 passed, 2 skipped in 301.10s (0:05:01) ==========="


def leave(folder: Path, *releases: str, complete: bool = True, lab: str = LAB, code: str = "") -> None:
    """What a run on each release leaves."""
    for release in releases:
        results = Results(release, f"{release}.5", "Debian", "2026-01-02", code, up=18, complete=complete)
        results.add("Sweeps", "passed")
        results.add("Sweeps", "failed" if release == "24.11" else "passed")
        results.add("Sweeps", "passed")
        if release != "22.05":
            results.differs(
                "Who requeues", f"it does, {release}", handled="slurmkit/runtime/ending.py:end_life"
            )
        results.save(folder)
        (folder / f"{release}.lab.log").write_text(f"...\n{lab}\n" if lab else "")


def test_a_feature_is_as_good_as_its_worst_test(tmp_path: Path) -> None:
    """One failed test of several says no, for that release alone; what differs stands beside the code for it."""
    leave(tmp_path, *RELEASES)
    page = render(load(tmp_path))
    assert "| Sweeps | yes | **no** | yes |" in page
    assert "| The lab tests, on nodes emulated in one container | 118 passed, 2 skipped |" in page
    row = "| Who requeues | - | it does, 24.11 | it does, 26.05 | `slurmkit/runtime/ending.py:end_life` |"
    assert row in page


def test_a_run_that_left_tests_out_writes_no_page(tmp_path: Path) -> None:
    """A missing release, a run of some tests, and lab tests that did not end are each named with the command that mends it."""
    leave(tmp_path, "22.05", "26.05")
    with pytest.raises(SystemExit, match=r"no run on 24\.11: make test-docker SLURM=24\.11"):
        load(tmp_path)
    for left in ({"complete": False}, {"lab": ""}, {"lab": "tests/lab/test_hydra.py ....   [ 38%]"}):
        leave(tmp_path, "24.11", **left)
        with pytest.raises(SystemExit, match=r"24\.11 left tests out"):
            load(tmp_path)


def test_a_page_is_of_one_commit(tmp_path: Path) -> None:
    """It names the commit that was tried; runs of different ones make no page."""
    leave(tmp_path, *RELEASES, code="1234abcd")
    assert "2026-01-02, of commit 1234abcd." in render(load(tmp_path))
    leave(tmp_path, "24.11", code="1234abcd-dirty")
    with pytest.raises(
        SystemExit, match=r"different code, 1234abcd, 1234abcd-dirty: make test-docker SLURM=all"
    ):
        load(tmp_path)
    assert re.fullmatch(r"([0-9a-f]{7,40}(-dirty)?)?", code_here())


def test_a_difference_names_code_that_is_there() -> None:
    """A place that was renamed, or never was, fails the test that notes the difference."""
    results = Results("22.05")
    ending = "slurmkit/runtime/ending.py"
    for nowhere in (ending, f"{ending}:no_such_name", f"{ending}:nd_life", f"{ending}:end_lif"):
        with pytest.raises(AssertionError, match="ending"):
            results.differs("topic", "seen", handled=nowhere)
    with pytest.raises(FileNotFoundError):
        results.differs("topic", "seen", handled="slurmkit/nowhere.py:name")


def test_what_a_release_is_built_without_is_not_there() -> None:
    """The test has passed, and what its user sees is no fault; a failure of the same feature weighs more."""
    results = Results("26.05")
    for outcome in ("absent", "passed"):
        results.add("PMIx", outcome)
    assert results.features == {"PMIx": "absent"}
    results.add("PMIx", "failed")
    assert results.features == {"PMIx": "failed"}


@pytest.mark.parametrize(
    "lacks", [{}, {"chosen": True}, {"files": set()}, {"left": {"test_core.py::test_it"}}, {"up": 0}]
)
def test_a_run_is_whole_only_if_nothing_was_left_out(lacks: dict[str, Any]) -> None:
    """By name, by Ctrl-C, by a file alone, or on a cluster that was there already: each is a part of a run."""
    results = Results("22.05", up=lacks.pop("up", 18))
    files = set((ROOT / "tests" / "docker").glob("test_*.py"))
    whole = not lacks and results.up > 0
    assert results.is_whole(**{"chosen": False, "files": files, "left": set(), **lacks}) is whole


def test_the_code_that_copes_is_there() -> None:
    """Every place that the tests on the clusters name is there, and so is every one that the page has."""
    text = "".join(path.read_text() for path in (ROOT / "tests" / "docker").glob("test_*.py"))
    named = set(re.findall(r"handled\b.*\"([\w/]+\.\w+:\w+)\"", text))
    assert len(named) > 5
    if PAGE.exists():
        named |= set(re.findall(r"`([\w/]+\.\w+:\w+)`", PAGE.read_text()))
    for place in sorted(named):
        Results("22.05").differs("topic", "seen", handled=place)
