"""``hydra/sweeper=slurmkit``: a grid over the overrides that composes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hydra.plugins.sweeper import Sweeper

if TYPE_CHECKING:
    from hydra.plugins.launcher import Launcher
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

__all__ = ["SlurmkitSweeper"]


class SlurmkitSweeper(Sweeper):
    """Hands all points to the launcher at once; each is composed where it runs, on its node."""

    def __init__(self) -> None:
        self._launcher: Launcher | None = None
        self._context: HydraContext | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before ``sweep``."""
        from hydra.core.plugins import Plugins  # noqa: PLC0415 - Hydra scans plugins at every start

        self._context = hydra_context
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Split the command line into points and launch them as one batch."""
        from hydra_plugins.slurmkit_plugin.launching import reported  # noqa: PLC0415

        from slurmkit.config.overrides import split_overrides  # noqa: PLC0415

        assert self._launcher is not None  # noqa: S101 - Hydra's contract
        assert self._context is not None  # noqa: S101
        with reported():
            _, points = split_overrides(arguments, loader=self._context.config_loader)
        return [self._launcher.launch(points, initial_job_idx=0)]
