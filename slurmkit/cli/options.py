"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["compose_options", "json_option", "run_argument"]

F = TypeVar("F", bound=Callable[..., Any])


def compose_options(command: F) -> F:
    """Hydra's own letters, and its overrides as they are."""
    command = click.argument("overrides", nargs=-1, type=click.UNPROCESSED)(command)
    command = click.option(
        "-cd",
        "--config-dir",
        type=click.Path(path_type=Path),
        help="A folder of your own configs, searched as well.",
    )(command)
    return click.option(
        "-cn", "--config-name", default="config", show_default=True, help="The primary config."
    )(command)


def run_argument(command: F) -> F:
    """RUN, and where runs are looked for: the words of ``find_point``."""
    command = click.option(
        "--runs-dir",
        type=click.Path(path_type=Path),
        default=Path("runs"),
        envvar="SLURMKIT_RUNS_DIR",  # as ``default_runs_dir``, which costs an import
        show_default=True,
        help="The folder of all runs.",
    )(command)
    return click.argument("run", metavar="RUN")(command)


def json_option(command: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print versioned JSON.")(command)
