"""``python -m trainer OVERRIDES…``: train here; with ``-m``, submit a sweep as one job array.

Inside a job this is what every rank runs; by hand it trains on this machine, alone or under torchrun.
Hydra and torch are imported in the functions, since an import takes part of a second at least, and a signal
that comes before the handlers are there ends the rank.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from slurmkit.errors import SlurmkitError
from slurmkit.runtime.signals import SignalFlags, catch_signals
from trainer.extras import TRAINING, need

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
        need(*TRAINING)  # they cost seconds, a mistake in the config none
        from trainer.loop import train

        return train(settings, env, flags)
    except SlurmkitError as error:
        return _told(error)


def _told(error: SlurmkitError) -> int:
    print(error.report("trainer"), file=sys.stderr)
    return error.exit_code


def _let_hydra_parse() -> None:
    """Let Hydra make its parser on Python 3.14, which reads every help text at once: one of Hydra 1.3's is no text."""
    import argparse

    if hasattr(argparse.ArgumentParser, "_check_help"):
        argparse.ArgumentParser._check_help = lambda *_: None  # noqa: SLF001


def _sweep(asked: argparse.Namespace) -> None:
    """Hydra's own front: multirun, --cfg, --help. Points run as jobs, so its task never does."""
    import hydra

    from slurmkit.config.load import load_experiment
    from slurmkit.config.register import register_app
    from slurmkit.paths import data_dir

    register_app()
    if asked.multirun:
        # Hydra composes what all points share before it asks any code of ours: its own errors name no keys.
        own = [word for word in asked.overrides if not word.lstrip("+~").startswith(("hydra.", "hydra/"))]
        load_experiment(own, asked.config_name or "config", asked.config_dir, whole=False)
    hydra.main(version_base="1.3", config_path=str(data_dir("conf")), config_name="config")(_nothing)()


def _nothing(_config: object) -> None:
    pass


def _leave(code: int) -> NoReturn:
    """End the process here: taking torch apart costs the interpreter up to a second, in which a requeue waits.

    It could even wait for ever, for a rank that died (see :func:`trainer.distributed.joined`).
    """
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()  # noqa: SLF001 - what a model's libraries asked for
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _be_a_rank(arguments: argparse.Namespace, flags: SignalFlags) -> int:
    """Train; whatever is raised is told here, since nothing is waited for afterwards."""
    try:
        return _train(arguments, flags)
    except KeyboardInterrupt:  # the second one: a person does not wait for the save
        print("trainer: interrupted; steps since the last checkpoint are done again", file=sys.stderr)
        return 130
    except Exception:  # noqa: BLE001 - a bug, of ours or in the model: its traceback is what helps
        traceback.print_exc()
        return 1


def main() -> int:
    """Run as one rank, and end the process with it; or return, where Hydra is asked for more than that."""
    with catch_signals() as flags:  # a sweep is a command like any other: it dies of a signal
        from hydra._internal.utils import get_args_parser

        _let_hydra_parse()
        asked = get_args_parser().parse_args()
        fronts = ("multirun", "cfg", "help", "hydra_help", "info", "shell_completion")
        if not any(getattr(asked, front) for front in fronts):
            _leave(_be_a_rank(asked, flags))
    try:
        _sweep(asked)
    except SlurmkitError as error:
        return _told(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
