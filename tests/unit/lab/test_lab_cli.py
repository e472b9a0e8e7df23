"""What ``slurmkit lab`` says to what it does not know."""

from __future__ import annotations

import pytest

from slurmkit.cli.main import run
from slurmkit.errors import UsageError
from slurmkit.lab.config import LabShape, LabSpec
from slurmkit.lab.daemons import Lab
from slurmkit.lab.record import Record
from slurmkit.lab.shell import enter


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("foo", "no verb 'foo'; accepted are down, shell, status, up"),
        ("sttaus", "no verb 'sttaus'; did you mean status?"),
    ],
)
def test_an_unknown_verb_is_answered_with_those_there_are(
    verb: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with the verb that was meant or with all."""
    assert run(["lab", verb]) == 2
    assert capsys.readouterr().err.endswith(f"Error: {said}\n")


@pytest.mark.parametrize(
    ("command", "said", "hint"),
    [
        ((), "there is no command '/nonexistent', which SHELL names", "SHELL=/bin/bash slurmkit lab shell"),
        (("nope",), "there is no command 'nope'", "slurmkit lab shell -- COMMAND [ARGUMENT]..."),
    ],
)
def test_a_shell_that_is_not_there_is_told_by_its_variable(
    command: tuple[str, ...], said: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody typed $SHELL's value, so the error says where it comes from; a COMMAND was typed."""
    monkeypatch.setenv("SHELL", "/nonexistent")
    spec = LabSpec(shape=LabShape(gpus=0), root="/x", run="/x", release=(22, 5), user="a", port=20000)
    with pytest.raises(UsageError) as caught:
        enter(Lab(Record(spec)), command)
    assert (caught.value.message, caught.value.hint) == (said, hint)
