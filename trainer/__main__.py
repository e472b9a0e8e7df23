"""``python -m trainer OVERRIDES…``: train here; with ``-m``, submit a sweep as one job array.

Inside a job this is what every rank runs; by hand it trains on this machine, alone or under torchrun.
Hydra and torch are imported in the functions, since an import takes part of a second at least, and a signal
that comes before the handlers are there ends the rank.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from slurmkit.errors import SlurmkitError
from slurmkit.runtime.signals import SignalFlags, catch_signals

if TYPE_CHECKING:
    import argparse

    from slurmkit.config.training import Settings


def compose(overrides: list[str], config_name: str | None, config_dir: str | None) -> Settings:
    """The settings of the trainer from Hydra's config files and overrides."""
    from slurmkit.config.load import compose as compose_with
    from slurmkit.config.load import settings_of

    return compose_with(overrides, settings_of, config_name or "config", config_dir)


def _train(arguments: argparse.Namespace, flags: SignalFlags) -> int:
    """Train in this process; a mistake of the user is a line and a hint."""
    from slurmkit.runtime.jobenv import JobEnv

    try:
        settings = compose(arguments.overrides, arguments.config_name, arguments.config_dir)
        env = JobEnv.from_environ(os.environ, settings.run_dir)
        from trainer.loop import train  # torch costs seconds, a mistake in the config none

        return train(settings, env, flags)
    except SlurmkitError as error:
        print(error.report("trainer"), file=sys.stderr)
        return error.exit_code


def _sweep() -> None:
    """Hydra's own front: multirun, --cfg, --help. Points run as jobs, so its task never does."""
    import hydra

    from slurmkit.config.register import register_app
    from slurmkit.paths import data_dir

    register_app()
    hydra.main(version_base="1.3", config_path=str(data_dir("conf")), config_name="config")(_nothing)()


def _nothing(_config: object) -> None:
    pass


def main() -> int:
    """Run as one rank, unless Hydra is asked for more than that."""
    with catch_signals(last=True) as flags:
        from hydra._internal.utils import get_args_parser

        asked = get_args_parser().parse_args()
        fronts = ("multirun", "cfg", "help", "hydra_help", "info", "shell_completion")
        if not any(getattr(asked, front) for front in fronts):
            code = _train(asked, flags)
            gc.freeze()  # the interpreter would pick torch apart for a second, while a requeue or KillWait waits
            return code
        flags.last = False  # a sweep is a command like any other, and dies of a signal
    _sweep()
    return 0


if __name__ == "__main__":
    sys.exit(main())
