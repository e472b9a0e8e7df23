"""The page says what was measured, and whether it was good enough."""

from __future__ import annotations

from .figures import Figure, Section, ratio
from .page import render


def test_a_row_has_median_spread_runs_and_verdict() -> None:
    """One row a figure; a missed target cannot be overlooked."""
    fast, slow = Figure("fast", (0.3, 0.1, 0.2), target=0.25), Figure("slow", (3.0, 9.0), target=1)
    page = render([Section("Start", "How.", (fast, slow))], {"CPU": "2 cores"}, "make bench")
    assert "    make bench\n" in page
    assert "| CPU | 2 cores |" in page
    assert "## Start\n\nHow.\n" in page
    assert "| fast | 0.200 s | 0.100 s to 0.300 s | 3 | under 0.25 s: met |" in page
    assert "| slow | 6.0 s | 3.0 s to 9.0 s | 2 | under 1 s: **missed** |" in page


def test_ratios_are_taken_pair_by_pair() -> None:
    """A drift that slows both of a pair leaves their ratio alone."""
    assert ratio("r", [2.0, 20.0], [1.0, 10.0]).values == (2.0, 2.0)
