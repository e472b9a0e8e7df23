"""Hydra's config files and overrides become an experiment, or one clear error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmkit import load_experiment
from slurmkit.config.explain import check_choices
from slurmkit.config.schema import Resources
from slurmkit.errors import ConfigError
from slurmkit.paths import data_dir

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "path", sorted((data_dir("conf") / "experiment").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_experiment_composes(path: Path) -> None:
    """Each experiment that we ship is one that the schema accepts."""
    assert load_experiment([f"experiment={path.stem}"]).name == path.stem


def test_overrides_arrive_typed() -> None:
    """Overrides reach the frozen dataclasses with Slurm's names; 90 stays the text that Slurm reads as minutes."""
    experiment = load_experiment(
        [
            "experiment=gpt_ddp",
            "resources.nodes=4",
            "resources.time=90",
            "resources.extra.nice=5",
            "env.vars.A='b,c'",
        ]
    )
    assert isinstance(experiment.resources, Resources)
    assert (
        experiment.resources.nodes,
        experiment.resources.time,
        experiment.resources.extra,
        experiment.env.vars,
    ) == (4, "90", {"nice": 5}, {"A": "b,c"})
    assert experiment.topology.switches == 1
    assert experiment.config["model"]["_target_"] == "trainer.models.gpt.GPT"


def test_the_trainer_is_started_with_the_same_words() -> None:
    """What was typed is what the ranks compose again, quotes and all."""
    words = ["experiment=digits", 'name="a,b $(c)"']
    assert load_experiment(words).payload.command == ["-m", "trainer", *words]


@pytest.mark.parametrize(
    ("override", "said", "hint"),
    [
        ("resources.nods=2", "resources.nods", "resources.nodes"),
        ("resources=two_nods", "one_node, two_nodes", "resources=two_nodes"),
        ("experiment=gpt_dp", "digits, gpt_ddp", "experiment=gpt_ddp"),
        ("trainer.stepz=3", "trainer.stepz", "trainer.steps"),
        ("model.layrs=2", "model.layrs", "model.layers"),
        ("foo=1", "foo", "resources"),
        ("resources.nodes=two", "resources.nodes", "resources"),
        ("resources.nodes=1,2", "resources.nodes", "resources"),
        ("resources.nodes=0", "resources.nodes", "resources.nodes=1"),
        ("x=[1", "x=[1", "quote"),
        ("nonsense", "nonsense", "key=value"),
        ("resources.time=90m", "90m", "1:30:00"),
        ("payload=command", "payload.command", "payload.command="),
    ],
)
def test_a_wrong_override_is_one_line_and_a_hint(override: str, said: str, hint: str) -> None:
    """The error names the override at fault; the hint names the nearest key or what is accepted."""
    with pytest.raises(ConfigError) as caught:
        load_experiment(["experiment=gpt_ddp", override])
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message


def test_a_folder_of_ones_own_is_searched(tmp_path: Path) -> None:
    """``--config-dir`` adds a person's own experiments to ours, and the ranks get the same flag."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nname: mine\nresources: {nodes: 3}\n"
    )
    experiment = load_experiment(["experiment=mine"], config_dir=tmp_path)
    assert (experiment.name, experiment.resources.nodes) == ("mine", 3)
    assert experiment.payload.command == ["-m", "trainer", "--config-dir", str(tmp_path), "experiment=mine"]


def test_a_missing_folder_is_named() -> None:
    """A ``--config-dir`` that is not there is said, and not searched in silence."""
    with pytest.raises(ConfigError, match="/nowhere/conf"):
        load_experiment(config_dir="/nowhere/conf")


def test_a_choice_that_does_not_exist_is_refused() -> None:
    """A misspelt config in a sweep fails on the login node, naming the options, and not in one of its tasks."""
    options = {"optim": ["adamw", "sgd"]}
    points = [["optim=adamw", "lr=1"], ["optim=adamm", "lr=1"]]
    with pytest.raises(ConfigError, match="adamw, sgd") as caught:
        check_choices(points, lambda group: options.get(group, []))
    assert "optim=adamw" in caught.value.hint
    check_choices(points[:1], lambda group: options.get(group, []))
