"""``hydra/sweeper=slurmkit``: a grid over the overrides that composes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hydra.plugins.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.plugins.launcher import Launcher
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

__all__ = ["SlurmkitSweeper"]


class SlurmkitSweeper(Sweeper):
    """Hands all points to the launcher at once; each is composed where it runs, on its node."""

    def __init__(self) -> None:
        self._launcher: Launcher | None = None
        self._context: HydraContext | None = None
        self._config: DictConfig | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before ``sweep``."""
        from hydra.core.plugins import Plugins  # noqa: PLC0415 - Hydra scans plugins at every start

        self._context, self._config = hydra_context, config
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Split the command line into points and launch them as one batch."""
        from hydra_plugins.slurmkit_plugin.launching import reported  # noqa: PLC0415
        from omegaconf import OmegaConf  # noqa: PLC0415

        from slurmkit.config.base60 import refuse_base60  # noqa: PLC0415
        from slurmkit.config.explain import explained, keys_of  # noqa: PLC0415
        from slurmkit.config.load import check_trainer  # noqa: PLC0415
        from slurmkit.config.sweep import check_sweep  # noqa: PLC0415
        from slurmkit.launch.sweep import split_overrides  # noqa: PLC0415

        assert self._launcher is not None  # noqa: S101 - Hydra's contract
        assert self._context is not None  # noqa: S101
        assert self._config is not None  # noqa: S101
        config, loader = self._config, self._context.config_loader
        kind = config.hydra.launcher.get("payload", "function")

        def compose(point: Sequence[str]) -> DictConfig:
            words = [*fixed, *point]
            with explained(words, lambda _: keys_of(config), loader.get_group_options):
                composed = loader.load_sweep_config(config, words)
                if kind == "trainer":
                    resources: Any = OmegaConf.to_object(composed.hydra.launcher.resources)
                    check_trainer(composed, resources)
            return composed

        with reported():
            fixed, points = split_overrides(arguments, ours=kind != "function", loader=loader)
            under = "hydra.launcher." if kind == "function" else ""
            refuse_base60(loader, config, [*config.hydra.overrides.hydra, *fixed], under)
            check_sweep(points, compose)
        return [self._launcher.launch(points, initial_job_idx=0)]
