"""``python -m slurmkit.runtime.preempted``: bring a preempted job back whose payload could not do it itself.

The batch script asks after a payload that failed. In the grace of a preemption slurmctld signals the ranks
alone: a program that knows nothing of signals dies of it, and a trainer that is hit before Python has its
handlers does too. The end of the batch script would then be the end of the job, although it may be requeued.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from slurmkit.errors import ConfigError
from slurmkit.runtime.ending import Patience, end_life
from slurmkit.runtime.jobenv import JobEnv
from slurmkit.runtime.requeue import Cause, run_command
from slurmkit.runtime.signals import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmkit.runtime.requeue import Runner

__all__ = ["bring_back"]

#: Most payloads that fail were not preempted: where a node never reaches slurmctld, each of them waits so
#: long for nothing. A slurmctld that restarts is back by then.
_PATIENCE_SECONDS = 120.0


def bring_back(env: Mapping[str, str], run: Runner = run_command) -> str:
    """Requeue the job around this process if it is being preempted, and only then.

    Args:
        env: of the batch shell.
        run: runs Slurm's commands; tests inject a fake.

    Returns:
        What there is to say in the job's log; empty where nobody has preempted the job.
    """
    try:
        here = JobEnv.from_environ(env)
    except ConfigError as error:
        return f"{error}"
    ending = end_life(here.own_id, Stop.NONE, here.restart, run, patience=Patience(_PATIENCE_SECONDS))
    return ending.words if ending.cause in {Cause.PREEMPTED, None} else ""


if __name__ == "__main__":
    if words := bring_back(os.environ):
        print(f"slurmkit: {words}", file=sys.stderr)
