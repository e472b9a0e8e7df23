"""Train without the Hydra app, from words such as ``model=mlp data=digits trainer.steps=10``."""

# ruff: noqa: PLC0415 - signals are caught before torch is imported, as in trainer/__main__.py

from __future__ import annotations

import os

from slurmkit.runtime.signals import catch_signals


def settings_of(overrides: list[str]):  # noqa: ANN201 - torch-free import of the schema below
    from omegaconf import OmegaConf

    from slurmkit.config.training import DataConfig, Settings, TrainerConfig
    from slurmkit.paths import data_dir

    groups = {"trainer": "default", "model": "mlp", "data": "digits", "optim": "adamw"}
    dots = []
    for override in overrides:
        key, _, value = override.partition("=")
        if key in groups:
            groups[key] = value
        else:
            dots.append(override)
    files = {key: OmegaConf.load(data_dir("conf") / key / f"{name}.yaml") for key, name in groups.items()}
    root = OmegaConf.create({"name": "by_hand", **{key: OmegaConf.create({}) for key in groups}})
    for key, file in files.items():
        root[key] = OmegaConf.merge(file)
    root = OmegaConf.merge(root, OmegaConf.from_dotlist(dots))
    OmegaConf.resolve(root)
    return Settings(
        name=root.name,
        trainer=_typed(TrainerConfig, root.trainer),
        model=OmegaConf.to_container(root.model),
        data=_typed(DataConfig, root.data),
        optim=OmegaConf.to_container(root.optim),
    )


def _typed(kind, node):  # noqa: ANN001, ANN202
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(node)
    if "checkpoint" in plain:
        from slurmkit.config.training import CheckpointConfig

        plain["checkpoint"] = CheckpointConfig(**plain["checkpoint"])
    return kind(**plain)


def run(words: list[str]) -> int:
    """Be one rank; the exit code."""
    with catch_signals() as flags:
        from slurmkit.runtime.jobenv import JobEnv
        from trainer.loop import train

        settings = settings_of(words)
        env = JobEnv.from_environ(os.environ, settings.run_dir)
        return train(settings, env, flags)
