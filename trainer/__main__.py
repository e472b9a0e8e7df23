"""``python -m trainer OVERRIDES…``: train here; with ``-m``, submit a sweep as one job array.

Inside a job this is what every rank runs; by hand it trains on this machine, alone or under torchrun.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import hydra
from hydra._internal.utils import get_args_parser

from slurmkit.config.load import compose, settings_of
from slurmkit.config.register import register_app
from slurmkit.errors import SlurmkitError
from slurmkit.paths import data_dir
from slurmkit.runtime.jobenv import JobEnv
from slurmkit.runtime.signals import catch_signals

if TYPE_CHECKING:
    from omegaconf import DictConfig


def _train(overrides: list[str], config_name: str | None, config_dir: str | None) -> int:
    """Train in this process; a mistake of the user is a line and a hint."""
    try:
        with catch_signals(last=True) as flags:  # before torch is imported, and until the very end
            settings = compose(overrides, settings_of, config_name or "config", config_dir)
            env = JobEnv.from_environ(os.environ, settings.trainer.run_dir)
            from trainer.loop import train  # noqa: PLC0415 - torch costs seconds, a mistake in the config none

            return train(settings, env, flags)
    except SlurmkitError as error:
        print(error.report("trainer"), file=sys.stderr)
        return error.exit_code


@hydra.main(version_base="1.3", config_path=str(data_dir("conf")), config_name="config")
def _sweep(config: DictConfig) -> None:
    """Hydra's own front: multirun, --cfg, --help. Points run as jobs, so this body never does."""
    del config


def main() -> int:
    """Run as one rank, unless Hydra is asked for more than that."""
    arguments = get_args_parser().parse_args()
    if (
        arguments.multirun
        or arguments.cfg
        or arguments.help
        or arguments.hydra_help
        or arguments.info
        or arguments.shell_completion
    ):
        register_app()
        _sweep()
        return 0
    code = _train(arguments.overrides, arguments.config_name, arguments.config_dir)
    gc.freeze()  # the interpreter would pick torch apart for a second, while a requeue or KillWait waits for us
    return code


if __name__ == "__main__":
    sys.exit(main())
