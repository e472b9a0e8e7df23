"""``slurmkit``: finds the verb, loads only that one, and turns errors into one line, a hint and an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

import click

from slurmkit import __version__
from slurmkit.errors import SlurmkitError

# Verb → (module, its command there, help). Help stands here so that `slurmkit --help` imports none of them.
_VERBS = {
    "compile": (
        "slurmkit.cli.compile",
        "compile_command",
        "Print the sbatch script of an experiment, and what stands in its way.",
    ),
    "submit": (
        "slurmkit.cli.submit",
        "submit_command",
        "Submit an experiment: one run, or with -m a sweep as one job array.",
    ),
    "status": ("slurmkit.cli.status", "status_command", "Show what has become of a run."),
    "logs": ("slurmkit.cli.logs", "logs_command", "Print a run's log."),
    "cancel": ("slurmkit.cli.cancel", "cancel_command", "End a run for good."),
    "lab": ("slurmkit.cli.lab", "lab_command", "A real Slurm on this machine, in seconds."),
}


class _LazyGroup(click.Group):
    """A group that imports a verb when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(_VERBS[cmd_name][0])
        command: click.Command = getattr(module, _VERBS[cmd_name][1])
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415 - only on the way to an error

            near = get_close_matches(args[0], _VERBS, 1)
            ctx.fail(
                f"no verb {args[0]!r}; "
                + (f"did you mean {near[0]}?" if near else f"accepted are {', '.join(_VERBS)}")
            )
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slurmkit")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def _slurmkit(*, debug: bool) -> None:
    """From a Hydra experiment to a running, requeueing job on Slurm.

    Data goes to stdout, notes to stderr. Exit codes: 0 good, 1 it failed, 2 usage or config, 3 preflight
    found an error, 4 Slurm cannot be reached, 130 on Ctrl-C.
    """
    del debug  # read in main, where it is needed before click parses


def main(argv: list[str] | None = None) -> None:
    """The console script's entry point; ends the process with the exit code."""
    words = sys.argv[1:] if argv is None else argv
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # all three ways to end us clean up behind them
    sys.exit(_run(words))


def _run(words: list[str]) -> int:
    debug = (
        "--debug" in words[: next((index for index, word in enumerate(words) if word in _VERBS), len(words))]
    )
    try:
        result: Any = _slurmkit.main(args=words, prog_name="slurmkit", standalone_mode=False)
    except SlurmkitError as error:
        if debug:
            raise
        print(error.report(), file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("slurmkit: interrupted", file=sys.stderr)
        return 130
    except FileNotFoundError as error:
        if error.filename is not None:
            raise
        print(
            "slurmkit: the current folder does not exist any more\n  hint: cd to one that does",
            file=sys.stderr,
        )
        return 2
    except BrokenPipeError:  # `slurmkit logs RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0
