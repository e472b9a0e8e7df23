"""What a person writes as text on the command line arrives as written."""

from __future__ import annotations

import pytest

from slurmkit import load_experiment
from slurmkit.config.written import as_written, choices_as_written

#: Words that Hydra takes for numbers, a bool, null, or would be written back in another way.
WORDS = ["true", "False", "1e-3", "1_000", "null", "012", "1:30", ".5", "1.", "+5", "-0", "INF", "0.10", "8"]


def test_words_of_a_command_arrive_as_typed() -> None:
    """In a list of words every word is the text that it looks like, quoted or not."""
    typed = [*WORDS, "'true'", '"1e-3"', "a"]
    words = ["payload=command", f"payload.command=[prog, {', '.join(typed)} ]"]
    assert load_experiment(words).payload.command == ["prog", *WORDS, "true", "1e-3", "a"]


def test_variables_names_and_options_arrive_as_typed() -> None:
    """They are text, whatever Hydra would make of it; but ``true`` is a flag of sbatch, and ``null`` is no value."""
    words = [word for word in WORDS if word != "null"]
    each = ",".join(f"a{index}:{word}" for index, word in enumerate(words))
    found = load_experiment(
        ["name=1e-3", "env.vars.B=true", f"++env.vars={{{each}}}", f"+resources.extra={{{each}}}"]
    )
    assert found.name == "1e-3"
    assert found.env.vars == {"B": "true", **{f"a{index}": word for index, word in enumerate(words)}}
    flags = {"true": True, "False": False, "8": 8}
    assert list(found.resources.extra.values()) == [flags.get(word, word) for word in words]


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("env={vars:{A:1e-3},setup:[true]}", "env={vars:{A:'1e-3'},setup:['true']}"),
        ("hydra.launcher.env.vars.A=1e-3", "hydra.launcher.env.vars.A='1e-3'"),
        ("data.path=1_0", "data.path='1_0'"),
        ("trainer.checkpoint.root=1e3", "trainer.checkpoint.root='1e3'"),
        ("resources.mem=null", None),
        ("resources.nodes=1_0", None),
        ("resources.exclusive=true", None),
        ("trainer.checkpoint.seconds=1e3", None),
        ("optim.lr=1e-3", None),
        ("model.x=[1e-3,true]", None),
        ("env.vars.A=${oc.env:HOME,1e-3}", None),
        ("env.vars.A=str(1e-3)", None),
        ("~env.vars.A", None),
        ("resources=two_nodes", None),
        ("resources.time=1e1,2e1", None),
        ("env.vars.A=[1e-3", None),
        ("env", None),
        ("", None),
    ],
)
def test_only_text_is_quoted(typed: str, read: str | None) -> None:
    """What the schema has as a number, and what it does not know, is Hydra's to read; so is what is no grammar."""
    assert as_written([typed]) == [typed if read is None else read]


def test_another_apps_keys_are_its_own() -> None:
    """Under ``hydra/launcher=slurmkit`` an app's own ``name`` and ``env`` are left alone."""
    words = ["name=1e-3", "env.vars.A=1e-3", "hydra.launcher.name=1e-3"]
    assert as_written(words, "hydra.launcher.") == [*words[:2], "hydra.launcher.name='1e-3'"]


def test_the_ranks_get_the_words_that_were_typed() -> None:
    """Quotes that we add for Hydra are not in what the trainer composes again."""
    assert load_experiment(["name=1e-3"]).payload.command == ["-m", "trainer", "name=1e-3"]


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("+x=1e-3,1_0", ["1e-3", "1_0"]),
        ("x=${a}, 'b,c' ,[1, 2],{a: 1}", ["${a}", "'b,c'", "[1, 2]", "{a: 1}"]),
        ("x=range(0,3)", None),
        ("x=choice(1,2)", None),
        ("x=[1,2]", None),
        ("~x", None),
    ],
)
def test_values_of_a_sweep_stay_as_typed(override: str, values: list[str] | None) -> None:
    """A point's word is what was typed; functions are Hydra's to enumerate."""
    assert choices_as_written(override) == values
