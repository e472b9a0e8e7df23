"""Labs as a person starts and ends them, and what a lab leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.errors import MissingProgramError
from slurmkit.lab import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurmkit.lab.daemons import Lab

CLI = [sys.executable, "-c", "from slurmkit.cli.main import main; main()", "lab"]
# Every Linux has this one. It is not `nobody`, which Slurm takes as SlurmUser no more.
SOMEBODY = "daemon"
AS_SOMEBODY = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]


def traces(folder: Path) -> list[str]:
    """Processes, other than this one, that have to do with a folder.

    They have it in their command line or environment, stand in it, or have a file of it open.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            known = [command, (process / "environ").read_bytes()]
            known += [os.fsencode(link.readlink()) for link in [process / "cwd", *(process / "fd").iterdir()]]
        except OSError:
            continue
        if any(os.fsencode(folder) in text for text in known) and int(process.name) != os.getpid():
            found.append(f"{process.name} {command.decode(errors='replace')}")
    return found


def environ(folder: Path) -> Mapping[str, str]:
    """The environment of a person whose labs live in a folder."""
    return {**os.environ, "SLURMKIT_LAB_DIR": str(folder)}


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``slurmkit lab WORDS``."""
    return subprocess.run(
        [*CLI, *words], capture_output=True, text=True, check=False, env=environ(folder), timeout=60
    )


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """``slurmkit lab WORDS``, begun."""
    pipe = subprocess.PIPE
    return subprocess.Popen([*CLI, *words], env=environ(folder), stdout=pipe, stderr=pipe, text=True)


def need_programs(missing: Callable[[str], None], *, accounting: bool) -> None:
    """Skip a test for want of what a lab runs; under CI fail it."""
    try:
        machine.find_programs(accounting=accounting)
    except MissingProgramError as error:
        missing(f"{error}; {error.hint}")


def state(lab: Lab, job: str) -> str:
    return lab.run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]).stdout.strip()


def submit(lab: Lab, script: str, *options: str) -> str:
    done = lab.run(["sbatch", "--parsable", *options], stdin=f"#!/bin/bash\n{script}\n")
    return done.stdout.strip()
