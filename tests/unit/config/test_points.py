"""The points of a sweep are composed as far as they can tell, and are of one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurmkit import load_experiment
from slurmkit.config import load
from slurmkit.config.load import check_points
from slurmkit.config.overrides import split_overrides
from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_the_points_of_a_sweep_are_checked(config_file: Callable[[str, str | bytes], Path]) -> None:
    """A misspelt choice or key, and a value that the trainer refuses, fail on the login node; Hydra judges the rest."""
    folder = config_file("model/sub/c", "_target_: a.B\n")
    check_points(
        [["model=gpt", "optim.lr=1"], ["model=sub/c", "optim.lr=2"]], ["data=text"], config_dir=folder
    )
    check_points([["optim=[adamw]"], ["optim=[sgd]"]], [])
    with pytest.raises(ConfigError, match="gpt, mlp"):
        check_points([["model=mlp"], ["model=gtp"]], [])
    for point, said in (("model=sub/d", "sub/d"), ("experiment=gpt", "digits, gpt_ddp")):
        with pytest.raises(ConfigError, match=said):
            check_points([[point]], [], config_dir=folder)
    with pytest.raises(ConfigError, match=r"optim\.lrr"):
        check_points([["optim.lrr=1"], ["optim.lrr=2"]], [])
    with pytest.raises(ConfigError, match=r"accepted are 4 and more"):
        check_points([["experiment=gpt_ddp"], ["experiment=digits"]], ["trainer.batch_size=3"])


@pytest.mark.parametrize("values", ["range(1,500)", "range(1,500,5)"])
@pytest.mark.parametrize("key", ["optim.lr", "trainer.seed", "model.dropout", "data.path"])
def test_a_sweep_over_values_composes_a_handful(
    key: str, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hydra composes what all points share, the first and the last, however many values there are."""
    composed = []
    compose = load._compose

    def counting(*args: Any) -> Any:
        composed.append(args)
        return compose(*args)

    monkeypatch.setattr(load, "_compose", counting)
    fixed, points = split_overrides(["experiment=digits", f"{key}={values}"])
    check_points(points, fixed)
    assert len(composed) == 3


@pytest.mark.parametrize(
    ("points", "fixed", "said", "hint"),
    [
        (
            [["experiment=digits"], ["experiment=gpt_ddp"]],
            ["name=both", "resources.time=10"],
            "experiment=gpt_ddp: resources.nodes would be 2, and the one job array of a sweep has 1",
            "submit once for each: experiment=gpt_ddp",
        ),
        (
            [["experiment=digits"], ["experiment=gpt_ddp"]],
            [],
            "experiment=digits: resources.time would be '10:00', and the one job array of a sweep has '1:00:00' for all points (also name)",
            "give resources.time one value",
        ),
        ([["resources=one_node"], ["resources=two_nodes"]], [], "resources=two_nodes: resources.nodes", "submit once"),
        ([["env.vars.X=1"], ["env.vars.X=2"]], [], "env.vars.X=1: env.vars.X would be '1'", "give env.vars.X one value"),
        ([["requeue=auto"], ["requeue=never"]], [], "requeue=never: requeue.enabled would be False", "submit once for each: requeue=never"),
        ([["optim.lr=1e-3"], ["optim.lr=3e-3"]], ["name=lr_${optim.lr}"], "optim.lr=3e-3: name would be 'lr_0.003'", "give name one value"),
        ([["payload.command=[a]"], ["payload.command=[b]"]], ["payload=command"], "payload.command: no value for all points", "submit once for each command"),
    ],
)  # fmt: skip
def test_points_that_need_different_jobs_are_refused(
    points: list[list[str]], fixed: list[str], said: str, hint: str
) -> None:
    """A sweep is one job array: what its tasks share must not hang on what is swept, not even through a group."""
    with pytest.raises(ConfigError) as caught:
        check_points(points, fixed)
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_what_a_point_has_in_a_file_is_read_as_well(experiment_file: Callable[..., Path]) -> None:
    """A preset that only a point chooses is looked at for what YAML would change."""
    folder = experiment_file("env: {vars: {A: 1e-3}}\n")
    with pytest.raises(ConfigError, match="1e-3 without quotes"):
        check_points([["model=mlp"], ["experiment=mine"]], [], config_dir=folder)


def test_a_choice_that_only_the_points_make_may_be_open(
    config_file: Callable[[str, str | bytes], Path],
) -> None:
    """``- model: ???`` in a root of one's own is complete once the sweep names the models."""
    folder = config_file("own", "defaults: [config, {override model: '???'}, _self_]\n")
    fixed = ["name=a"]
    assert load_experiment(fixed, "own", folder, whole=False).name == "a"
    check_points([["model=mlp"], ["model=gpt"]], [*fixed, "data=text"], "own", folder)


def test_groups_of_another_search_path_can_be_swept(config_file: Callable[[str, str | bytes], Path]) -> None:
    """``hydra.searchpath`` brings groups that only Hydra's own composition knows."""
    folder = config_file("model/far", "_target_: a.B\n")
    fixed = [f"hydra.searchpath=[file://{folder}]"]
    check_points([["model=mlp"], ["model=far"]], fixed)
    with pytest.raises(ConfigError, match="far"):
        check_points([["model=mlp"], ["model=fat"]], fixed)


def test_what_points_share_need_not_be_whole() -> None:
    """``-m resources.nodes=33 trainer.batch_size=33,66`` is sound, though 33 ranks cannot share the default batch."""
    with pytest.raises(ConfigError, match="33 and more"):
        load_experiment(["resources.nodes=33"])
    assert load_experiment(["resources.nodes=33", "data.path=???"], whole=False).resources.nodes == 33
    check_points([["trainer.batch_size=33"], ["trainer.batch_size=66"]], ["resources.nodes=33"])
