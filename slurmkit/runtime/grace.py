"""Does Slurm itself bring back a job that ends in the grace of its preemption? Since 24.05 it does.

Before that nobody did: whoever wants to go on has to ask for a requeue. Since then a requeue of one's own is one
too many. slurmctld notes that the job is in its grace, and the note goes only with the requeue that it makes at
the job's end: asked for one before that, it keeps the note, and requeues the next life, however well that ends.
A program that was preempted once then runs twice more (measured on 24.11.5; 26.05.5 does not).

But Slurm counts its own requeues as failures (in BatchFlag, from 1 on), and holds the job at number
``MaxBatchRequeue``, until an admin releases it (measured on 24.11.5 and 26.05.5; one of our own does not count).
So it is left to make the first ones alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurmkit.errors import SlurmRefusedError, SlurmUnavailableError
from slurmkit.runtime.requeue import ask, run_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmkit.runtime.requeue import Runner

__all__ = ["brings_back"]

_SINCE = (24, 5)
_MAX_BATCH_REQUEUE = 5  # Slurm's default
#: Of the bound, the one at which the job is held, and one more that may follow from a requeue of our own.
_SPARED = 2
_SETTING = re.compile(r"^(\w+) *= (.*?) *$", re.MULTILINE)
_MODE = re.compile(r"(?:^|\s)PreemptMode=(\S+)")


def brings_back(job: Mapping[str, str], run: Runner = run_command) -> bool:
    """Whether this job, in its grace, is requeued by its end alone, with whatever exit code. When in doubt not.

    A slurmctld that does not answer leaves it in doubt: the grace may be short, and a requeue too many costs a life
    that ends at once, one too few the run.

    Args:
        job: the fields of ``scontrol show job``; it may be requeued.
        run: runs Slurm's commands; tests inject a fake.
    """
    try:
        config = dict(_SETTING.findall(ask(["scontrol", "show", "config"], run)))
        release = tuple(map(int, re.findall(r"\d+", config.get("SLURM_VERSION", ""))))
        counted = _number(job.get("BatchFlag"), 1)
        bound = _number(config.get("MaxBatchRequeue"), _MAX_BATCH_REQUEUE)
        if release < _SINCE or counted + _SPARED > bound:
            return False
        return "REQUEUE" in _preempt_mode(job, config, run).split(",")
    except (SlurmRefusedError, SlurmUnavailableError):
        return False


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdecimal() else otherwise


def _preempt_mode(job: Mapping[str, str], config: Mapping[str, str], run: Runner) -> str:
    """How Slurm preempts this job: as its partition says, or its QOS, or else the whole cluster."""
    kind = config.get("PreemptType", "").rpartition("/")[2]
    places = {
        "partition_prio": ["partition", job.get("Partition", "")],
        "qos": ["assoc_mgr", f"qos={job.get('QOS', '')}", "flags=qos"],
    }
    if kind not in places:
        return ""
    said = _MODE.search(ask(["scontrol", "--all", "--oneliner", "show", *places[kind]], run))
    if said is None:
        return ""
    # A QOS that says nothing of its own is shown as OFF.
    return config.get("PreemptMode", "") if kind == "qos" and said[1] == "OFF" else said[1]
