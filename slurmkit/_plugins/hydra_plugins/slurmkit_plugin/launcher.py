"""``hydra/launcher=slurmkit``: any Hydra app's multirun as one job array, through our compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

__all__ = ["SlurmkitLauncher"]

#: Sweepers that read no results: under these a multirun returns once it is submitted.
_WANT_NO_VALUES = frozenset({"BasicSweeper", "SlurmkitSweeper"})


class SlurmkitLauncher(Launcher):
    """Submits the points that a sweeper hands over.

    Args:
        wait: whether to wait for the jobs; when ``None``, only under a sweeper that reads results.
        **_options: the rest of ``hydra.launcher``, which is read from the config.
    """

    def __init__(self, wait: bool | None = None, **_options: Any) -> None:
        self._wait = wait
        self._context: HydraContext | None = None
        self._config: DictConfig | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before ``launch``."""
        del task_function  # each point starts the app again
        self._context, self._config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit one job array, one task a point.

        Points count from 0 in every run folder: a sweeper's later batch is a run of its own.

        Returns:
            Nothing (``[]``) without waiting; else one ``JobReturn`` a point.
        """
        del initial_job_idx
        from hydra_plugins.slurmkit_plugin import launching  # noqa: PLC0415 - Hydra scans plugins at every start

        assert self._config is not None  # noqa: S101 - Hydra's contract
        assert self._context is not None  # noqa: S101
        sweeper = str(self._config.hydra.sweeper._target_).rpartition(".")[2]
        wants_values = sweeper not in _WANT_NO_VALUES
        wait = wants_values if self._wait is None else self._wait
        loader = self._context.config_loader
        return launching.launch(self._config, loader, job_overrides, wait=wait, wants_values=wants_values)
