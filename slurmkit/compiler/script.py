"""The text of the batch script, from the template in ``sbatch_templates/``."""

from __future__ import annotations

import functools
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jinja2

from slurmkit.paths import data_dir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ScriptParts", "render_script"]


@dataclass(frozen=True)
class ScriptParts:
    """Everything that the template needs, as values that are not yet quoted for the shell."""

    name: str
    version: str
    directives: Sequence[str]
    """``#SBATCH`` options, already quoted for sbatch."""
    run_dir: str
    """The run folder, or an expression of the shell where ``by_hand``."""
    by_hand: bool
    array: bool
    points: bool
    """Whether each task of the array takes its overrides from a line of its own."""
    own_points: Sequence[str]
    """Those lines, where the script carries them itself."""
    python_path: Sequence[str]
    python: str
    argv: Sequence[str]
    """What the ranks run; without the interpreter where ``interpreted``."""
    interpreted: bool
    module: bool
    """Whether the interpreter is given ``-m``, and would look into the submission folder first."""
    hydra_function: bool
    """Whether each point is one task of a user's Hydra app, which writes into the point's folder."""
    unasked: Sequence[str]
    """Variables of a surrounding job that contradict what this one asks."""
    requeue: bool
    """Whether a preempted job comes back."""
    srun_args: Sequence[str] = ()
    setup: Sequence[str] = ()
    teardown: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def _environment() -> jinja2.Environment:
    """StrictUndefined: a misspelt name in a template is an error, never an empty line in a job."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("sbatch_templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{/*",  # the usual {# is how bash counts: ${#point[@]}
        comment_end_string="*/}",
        autoescape=False,  # noqa: S701 - bash, not HTML: every value goes through the quote filter
    )
    environment.filters["quote"] = shlex.quote
    environment.filters["comment"] = lambda text: re.sub(r"[^\x20-\x7e]", "?", text)
    return environment


def render_script(parts: ScriptParts) -> str:
    """The whole script."""
    return _environment().get_template("job.sbatch.j2").render(**vars(parts))
