"""How verbs speak to a terminal and to a pipe."""

from __future__ import annotations

import io
import sys

import pytest

from slurmkit.cli.output import note, print_rows, print_script

EVIL = "a\x1b]0;owned\x07\x9bb\u202ec"
HARMLESS = r"a\x1b]0;owned\x07\x9bb\u202ec"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_no_name_speaks_to_the_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    """Escapes in names and reasons are written out, in rows and in notes; brackets are no markup."""
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    print_rows(("POINT", "REASON"), [(0, EVIL), (1, "[bold]n[1-3]")])
    note(EVIL)
    for text in (out.getvalue(), err.getvalue()):
        assert HARMLESS in text
        assert not any(character in text for character in "\x1b\x07\x9b\u202e")
    assert "[bold]n[1-3]" in out.getvalue()


def test_a_header_is_no_data(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets the rows alone, each on a line of its own with tabs between; a terminal sees a header above."""
    print_rows(("POINT", "REASON"), [(0, "a\tb\nc")])
    assert capsys.readouterr().out == "0\ta b c\n"
    monkeypatch.setattr(sys, "stdout", Terminal())
    print_rows(("POINT", "REASON"), [(0, "x")])
    assert sys.stdout.getvalue().split() == ["POINT", "REASON", "0", "x"]


def test_a_script_is_exact_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """``compile > job.sbatch`` writes each byte of the script, and shows it without harm on a terminal."""
    script = f"#!/bin/bash\n\techo '{EVIL}'\n"
    for stream, shown in ((io.StringIO(), script), (Terminal(), script.replace(EVIL, HARMLESS))):
        monkeypatch.setattr(sys, "stdout", stream)
        print_script(script)
        assert stream.getvalue() == shown
