"""What was asked and what Slurm took: a site's plugins may change a job between the two. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from slurmkit.cluster.parse import expand
from slurmkit.config.schema import each_gpu
from slurmkit.units import format_memory, parse_duration, parse_memory, parse_time_limit, read_gres

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurmkit.compiler.directives import Directives

__all__ = ["differences"]

#: Slurm's words for nothing.
_NOTHING = {"", "(null)", "N/A", "None", "Unknown"}


def _mib(text: str) -> object:
    return format_memory(parse_memory(text.partition(".")[0] if "." in text else text))


def _gres(text: str) -> object:
    """Sums by name and type; in newer releases ``TresPerTask`` holds CPUs, too."""
    sums: Counter[tuple[str, str]] = Counter()
    found, unread = read_gres(re.sub(r"(?:^|(?<=,))cpu[=:]\d+,?", "", text).strip(",").replace("=", ":"))
    for item in found:
        sums[item.name, item.type] += item.count
    return (dict(sums), unread)


def _per_gpu(text: str) -> object:
    """``gres:gpu:1024`` and ``gres/gpu=1024``: the number of one resource."""
    return text.replace("=", ":").rpartition(":")[2]


def _switches(text: str) -> object:
    count, _, wait = text.partition("@")
    return count, parse_duration(wait) if wait else None


def _hosts(text: str) -> object:
    return None if "/" in text else frozenset(expand(text))  # a file of names cannot be compared


def _set(text: str) -> object:
    return frozenset() if text in _NOTHING else frozenset(text.split(","))


def _licenses(text: str) -> object:
    return frozenset(item.removesuffix(":1") for item in text.split(",") if item not in _NOTHING)


def _time(text: str) -> object:
    """An absolute time; ``now+1hour`` cannot be compared, nor one that a held job has not yet."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d)(:\d\d)?)?", text)
    return f"{match[1]}T{match[2] or '00:00'}{match[3] or ':00'}" if match else None


def _mail(text: str) -> object:
    return None if "ALL" in text.upper() else _set(text.upper())  # Slurm writes ALL out, by release


#: Option of sbatch → field of ``scontrol show job``, and how to compare the two spellings (``None``: not at all).
_FIELDS: dict[str, tuple[str, Callable[[str], object]]] = {
    "job-name": ("JobName", str),
    "partition": ("Partition", _set),
    "account": ("Account", str.lower),
    "qos": ("QOS", str.lower),
    "nodes": ("NumNodes", lambda text: text.partition("-")[0]),
    "cpus-per-task": ("CPUs/Task", str),
    "cpus-per-gpu": ("CpusPerTres", _per_gpu),
    "ntasks-per-node": ("NtasksPerN:B:S:C", lambda text: text.partition(":")[0]),
    "mem": ("MinMemoryNode", _mib),
    "mem-per-cpu": ("MinMemoryCPU", _mib),
    "mem-per-gpu": ("MemPerTres", lambda text: _mib(str(_per_gpu(text)))),
    "time": ("TimeLimit", parse_time_limit),
    "gres": ("TresPerNode", _gres),
    "gpus-per-task": ("TresPerTask", _gres),
    "constraint": ("Features", str),
    "nodelist": ("ReqNodeList", _hosts),
    "exclude": ("ExcNodeList", _hosts),
    "exclusive": ("Exclusive", str.upper),
    "dependency": ("Dependency", str),
    "switches": ("Switches", _switches),
    "array": ("ArrayTaskThrottle", lambda text: text.rpartition("%")[2]),
    "comment": ("Comment", str),
    "wckey": ("WCKey", lambda text: text.lstrip("*")),
    "mail-type": ("MailType", _mail),
    "mail-user": ("MailUser", str),
    # What Slurm shows of resources.extra.
    "nice": ("Nice", str),
    "reservation": ("Reservation", _set),
    "licenses": ("Licenses", _licenses),
    "begin": ("EligibleTime", _time),
    "deadline": ("Deadline", _time),
    "tmp": ("MinTmpDiskNode", _mib),
    "contiguous": ("Contiguous", str),
}
#: What a bare flag is in the job's record.
_FLAGS = {"exclusive": "NODE", "contiguous": "1", "nice": "100"}


def differences(directives: Directives, job: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Every option that Slurm took otherwise than it was asked.

    Args:
        directives: the options of the script.
        job: the record of ``scontrol show job``.

    Returns:
        One ``{"option", "asked", "got"}`` each. Fields that this release does not show are left out.
    """
    asked = _as_shown(directives)
    if "OverSubscribe" in job and "Exclusive" not in job:  # which 26.05 tells apart, and no release before it
        shared = job["OverSubscribe"]
        job = {**job, "Exclusive": "NODE" if shared == "NO" else shared}
    if not job.get("ArrayTaskId", "0").isdecimal():  # the record of the array, which shows no throttle of 0
        job = {"ArrayTaskThrottle": "none", **job}
    found = []
    for option, (field, norm) in _FIELDS.items():
        want, got = asked.get(option), job.get(field)
        if want is not None and got is not None and not _same(option, norm, want, got):
            shown = directives.get(option) or want
            found.append({"option": f"--{option}", "asked": shown, "got": got})
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


def _as_shown(directives: Directives) -> dict[str, str]:
    """The options in the words of the record: flags have a value there, and GPUs a node are gres."""
    asked = {key: _FLAGS.get(key) if value is None else value for key, value in directives.items()}
    node = [asked.get("gres"), *map(each_gpu, filter(None, [asked.get("gpus-per-node")]))]
    asked["gres"] = ",".join(item for item in node if item) or None
    task = asked.get("gpus-per-task")
    asked["gpus-per-task"] = each_gpu(task) if task else None
    if "%" not in (asked.get("array") or ""):
        asked["array"] = None
    return {key: value for key, value in asked.items() if value is not None}


def _same(option: str, norm: Callable[[str], object], asked: str, got: str) -> bool:
    if option == "dependency":
        return _dependencies(got) <= _dependencies(asked)  # what is fulfilled already is shown no more
    try:
        want, have = norm(asked), norm(got)
    except Exception:  # noqa: BLE001 - a spelling that one side does not read is a difference to show
        return asked == got
    return want is None or have is None or want == have


def _dependencies(text: str) -> frozenset[tuple[str, str]]:
    """``afterok:1:2`` and ``afterok:1(unfulfilled),afterok:2_*(failed)``: one pair a job."""
    found = set()
    for item in re.split(r"[,?]", re.sub(r"\([a-z]*\)", "", text)):
        kind, *jobs = item.split(":")
        found |= {(kind, job.removesuffix("_*")) for job in jobs or [""] if kind not in _NOTHING}
    return frozenset(found)
