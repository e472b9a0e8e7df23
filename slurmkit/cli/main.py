"""``slurmkit``: finds the verb, loads only that one, and turns errors into one line, a hint and an exit code."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from slurmkit import __version__
from slurmkit.cli.group import VerbGroup
from slurmkit.cli.output import note
from slurmkit.errors import SlurmkitError, UsageError

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
    "hooks": ("slurmkit.cli.hooks", "hooks_command", "Prolog and Epilog onto a node, and off it again."),
    "lab": ("slurmkit.cli.lab", "lab_command", "A real Slurm on this machine, in seconds."),
}


class _LazyGroup(VerbGroup):
    """A group that imports a verb when it is called."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a reader that has read enough is no failure: ``slurmkit logs RUN | head``."""
        result: Any = 0
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return result

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
    # Closed by the caller (`>&-`), they are None, and what is meant for stderr would go to stdout.
    sys.stdout, sys.stderr = (stream or _nowhere() for stream in (sys.stdout, sys.stderr))
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup it is ignored, and stays so
            signal.signal(number, signal.default_int_handler)  # all ways to end us clean up behind them
    code = run(words)
    for stream in (sys.stdout, sys.stderr):
        _flush_at_last(stream)
    sys.exit(code)


def _flush_at_last(stream: TextIO) -> None:
    """Where nobody listens any more Python would try again at its end, and 3.13 ends with 120 for that."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def run(words: list[str]) -> int:
    """Run one command line in this process.

    Args:
        words: what follows ``slurmkit``.

    Returns:
        The exit code. With ``--debug`` an error is raised as it is.
    """
    debug = (
        "--debug" in words[: next((index for index, word in enumerate(words) if word in _VERBS), len(words))]
    )
    try:
        result: Any = _slurmkit.main(args=words, prog_name="slurmkit", standalone_mode=False)
    except click.ClickException as error:
        shown = io.StringIO()  # it repeats what was typed
        error.show(shown)
        note(shown.getvalue().rstrip())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        note("slurmkit: interrupted")
        return 130
    except (SlurmkitError, OSError) as error:
        if debug:
            raise
        told = error if isinstance(error, SlurmkitError) else _of_the_system(error)
        note(told.report())
        return told.exit_code
    return result if isinstance(result, int) else 0


def _of_the_system(error: OSError) -> SlurmkitError:
    """What the system refused, as an error of ours: no file or folder of a person's is worth a traceback."""
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return UsageError("the current folder does not exist any more", "cd to one that does")
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    return SlurmkitError(f"{where}{error.strerror or error}", "see where it was with: slurmkit --debug …")
