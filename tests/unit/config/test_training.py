"""The defaults of the trainer, and the schedule of the learning rate, which decides every step of every run."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from omegaconf import OmegaConf

from slurmkit import load_experiment
from slurmkit.config.training import DataConfig, OptimConfig, Settings, TrainerConfig
from slurmkit.paths import data_dir


@pytest.mark.parametrize(
    ("changes", "step", "expected"),
    [
        ({}, 1, 0.25),
        ({}, 2, 0.5),
        ({}, 3, 0.75),
        ({}, 4, 1.0),
        ({}, 5, 0.1 + 0.9 * 0.5 * (1 + 0.9876883405951378)),
        ({}, 14, 0.55),  # half way down the cosine
        ({}, 24, 0.1),
        ({}, 99, 0.1),  # a run that was made shorter
        ({"warmup": 0}, 12, 0.55),
        ({"floor": 0.0}, 24, 0.0),
        ({"decay": False}, 2, 0.5),
        ({"decay": False}, 24, 1.0),
    ],
)
def test_the_learning_rate_of_a_step(changes: dict[str, float], step: int, expected: float) -> None:
    """Linear up over ``warmup`` steps, half a cosine down to ``floor``, and flat after the last step."""
    config = OptimConfig(**{"lr": 1.0, "warmup": 4, "floor": 0.1, **changes})  # type: ignore[arg-type]
    assert config.lr_at(step, 24) == pytest.approx(expected)


def test_what_nobody_says_is_the_same_in_python_and_in_a_file() -> None:
    """``OptimConfig()`` is ``conf/optim/adamw.yaml``, and what our apps compose for the loop is ``TrainerConfig()``."""
    assert OmegaConf.load(data_dir("conf") / "optim" / "adamw.yaml") == asdict(OptimConfig())
    config = load_experiment().config
    assert config["optim"] == asdict(OptimConfig())
    assert config["trainer"] == asdict(TrainerConfig())


def test_a_home_is_not_a_folder_called_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    """``trainer.run_dir=~/x`` is below the home, as ``data.path`` and ``trainer.checkpoint.root`` are."""
    monkeypatch.setenv("HOME", "/home/ada")
    own = {"model": {"_target_": "m.Net"}, "optim": {}, "data": DataConfig()}
    assert Settings(name="a", trainer=TrainerConfig(run_dir="~/x"), **own).run_dir == "/home/ada/x"
    assert Settings(name="a b", trainer=TrainerConfig(), **own).run_dir == "runs/local/a_b"
