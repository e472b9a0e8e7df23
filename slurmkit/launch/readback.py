"""What was asked and what Slurm took: a site's plugins may change a job between the two. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmkit.units import format_memory, parse_duration, parse_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurmkit.compiler.directives import Directives

__all__ = ["differences"]


def _seconds(text: str) -> object:
    return parse_duration(text)


def _mib(text: str) -> object:
    return format_memory(parse_memory(text.partition(".")[0] if "." in text else text))


def _gres(text: str) -> object:
    return frozenset(
        part.removeprefix("gres/").removeprefix("gres:").replace("=", ":") for part in text.split(",") if part
    )


def _switches(text: str) -> object:
    count, _, wait = text.partition("@")
    return count, parse_duration(wait) if wait else None


#: Option of sbatch → field of ``scontrol show job``, and how to compare the two spellings.
_FIELDS: dict[str, tuple[str, Callable[[str], object]]] = {
    "job-name": ("JobName", str),
    "partition": ("Partition", lambda text: frozenset(text.split(","))),
    "account": ("Account", str.lower),
    "qos": ("QOS", str.lower),
    "nodes": ("NumNodes", lambda text: text.partition("-")[0]),
    "cpus-per-task": ("CPUs/Task", str),
    "ntasks-per-node": ("NtasksPerN:B:S:C", lambda text: text.partition(":")[0]),
    "mem": ("MinMemoryNode", _mib),
    "mem-per-cpu": ("MinMemoryCPU", _mib),
    "time": ("TimeLimit", _seconds),
    "gres": ("TresPerNode", _gres),
    "constraint": ("Features", str),
    "switches": ("Switches", _switches),
    "comment": ("Comment", str),
}


def differences(directives: Directives, job: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Every option that Slurm took otherwise than it was asked.

    Args:
        directives: the options of the script.
        job: the record of ``scontrol show job``.

    Returns:
        One ``{"option", "asked", "got"}`` each. Fields that this release does not show are left out.
    """
    found = []
    for option, (field, norm) in _FIELDS.items():
        asked, got = directives.get(option), job.get(field)
        if asked is not None and got is not None and not _same(norm, asked, got):
            found.append({"option": f"--{option}", "asked": asked, "got": got})
    asked_requeue = "requeue" in directives
    if "Requeue" in job and (job["Requeue"] == "1") is not asked_requeue:
        found.append(
            {
                "option": "--requeue" if asked_requeue else "--no-requeue",
                "asked": "yes",
                "got": f"Requeue={job['Requeue']}",
            }
        )
    return tuple(found)


def _same(norm: Callable[[str], object], asked: str, got: str) -> bool:
    try:
        return norm(asked) == norm(got)
    except Exception:  # noqa: BLE001 - a spelling that one side does not read is a difference to show
        return asked == got
