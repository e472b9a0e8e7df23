"""Become a shell or a command that talks to a lab."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NoReturn

from slurmkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmkit.lab.daemons import Lab

__all__ = ["enter"]

#: Tells a shell's prompt and people's scripts which lab they are in.
NAME_VARIABLE = "SLURMKIT_LAB"


def enter(lab: Lab, command: Sequence[str] = ()) -> NoReturn:
    """Replace this process by a command, or by the user's shell, in which Slurm's commands talk to the lab.

    Args:
        lab: a running one.
        command: its words; none means ``$SHELL``, with the lab's name in the prompt.

    Raises:
        UsageError: if there is no such command, or no such shell.
    """
    env = {**lab.env, NAME_VARIABLE: lab.name}
    argv = list(command)
    if not argv:
        argv = [env.get("SHELL") or "/bin/sh"]
        mark = f"({lab.name}) "
        if os.path.basename(argv[0]) == "bash":  # noqa: PTH119 - a word, not a path of ours
            # bash reads ~/.bashrc after the environment and sets PS1 there: mark it before each prompt.
            env["PROMPT_COMMAND"] = f'case $PS1 in "{mark}"*) ;; *) PS1="{mark}$PS1" ;; esac'
        else:
            env["PS1"] = f"{mark}$ "
    program = shutil.which(argv[0], path=env["PATH"])
    if program is None:
        where = "" if command else ", which SHELL names"
        hint = (
            "slurmkit lab shell -- COMMAND [ARGUMENT]..." if command else "SHELL=/bin/bash slurmkit lab shell"
        )
        raise UsageError(f"there is no command {argv[0]!r}{where}", hint)
    os.execve(program, argv, env)  # noqa: S606 - to become the command is the point
