"""Slurm's spellings of durations, memory and generic resources, both ways.

``sbatch`` refuses ``90m``, ``16GiB`` and a blank after either, and reads ``30:00`` as thirty minutes; what it
would refuse is refused here first, with the accepted forms in the error. Source: ``man sbatch``, ``--time``,
``--mem`` and ``--gres``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurmkit.errors import ConfigError

__all__ = [
    "UNLIMITED",
    "Gres",
    "fits_conf",
    "format_duration",
    "format_memory",
    "parse_duration",
    "parse_gres",
    "parse_memory",
    "parse_time_limit",
    "read_gres",
]

#: A duration without an end, in seconds. Compares greater than every other duration.
UNLIMITED = float("inf")

_DURATION_FORMS = "MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES, DAYS-HOURS:MINUTES:SECONDS or UNLIMITED"
_MEMORY_FORMS = "a whole number and K, M, G or T (megabytes without one), such as 16G or 500M"
_GRES_FORMS = "NAME, NAME:COUNT, NAME:TYPE or NAME:TYPE:COUNT, several with commas between and no blanks"
_NUMBER = re.compile(r"[0-9]+")
_MEMORY = re.compile(r"([0-9]+)(?:([KMGT])B?)?", re.IGNORECASE)
# Of two fields the last is a count if it can be one (gpu:4), of three the second is a type (gpu:3090:4).
_GRES = re.compile(
    r"(?:gres[/:])?(?P<name>(?![0-9]+(?::|$))[^\s:=,()]+)"
    r"(?::(?P<type>[^\s:=,()]+))??(?::(?P<count>[0-9]+)(?P<unit>[KMGTP]?))?",
    re.IGNORECASE,
)
_TIMES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024.0}


def parse_duration(text: str, source: str = "time") -> float:
    """Read one of Slurm's time formats.

    Args:
        text: as in ``--time``: ``90`` is 90 minutes, ``30:00`` is 30 minutes, ``0-12`` is 12 hours.
        source: the config key or file that the text came from, for the error.

    Returns:
        Seconds; ``UNLIMITED`` for ``UNLIMITED``, ``INFINITE`` and ``-1``.

    Raises:
        ConfigError: if Slurm would refuse the text.
    """
    if text.upper() in {"UNLIMITED", "INFINITE", "-1"}:
        return UNLIMITED
    days, dash, clock = text.rpartition("-")
    fields = clock.split(":")
    numbers_only = all(_NUMBER.fullmatch(field) for field in (*fields, days or "0"))
    if not numbers_only or len(fields) > 3 or (dash and not days):  # noqa: PLR2004 - hours, minutes, seconds
        raise ConfigError(
            f"{source}: {text!r} is no duration that Slurm reads",
            f"write it as {_DURATION_FORMS}: 90 minutes are 90 or 1:30:00",
        )
    numbers = [int(field) for field in fields]
    if dash:  # D-H, D-H:M, D-H:M:S
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return float(int(days) * 86400 + hours * 3600 + minutes * 60 + seconds)
    hours, minutes, seconds = {1: (0, *numbers, 0), 2: (0, *numbers), 3: tuple(numbers)}[len(numbers)]
    return float(hours * 3600 + minutes * 60 + seconds)


def parse_time_limit(text: str, source: str = "resources.time") -> float:
    """Read a time limit as Slurm takes it: ``0`` is no limit, and seconds become a whole minute more.

    Args:
        text: as in ``--time``.
        source: the config key or file that the text came from, for the error.

    Returns:
        Seconds; ``UNLIMITED`` where there is none.

    Raises:
        ConfigError: if Slurm would refuse the text.
    """
    seconds = parse_duration(text, source)
    return -(-seconds // 60) * 60 if 0 < seconds < UNLIMITED else UNLIMITED


def format_duration(seconds: float) -> str:
    """Write seconds as Slurm does: ``1-12:00:00``, ``00:30:00`` or ``UNLIMITED``."""
    if seconds == UNLIMITED:
        return "UNLIMITED"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def parse_memory(text: str, source: str = "mem") -> int:
    """Read one of Slurm's memory sizes.

    Args:
        text: as in ``--mem``: ``16G`` and ``16GB`` are the same, a bare number is in megabytes.
        source: the config key or file that the text came from, for the error.

    Returns:
        MiB, rounded up.

    Raises:
        ConfigError: if Slurm would refuse the text.
    """
    match = _MEMORY.fullmatch(text)
    if not match:
        raise ConfigError(
            f"{source}: {text!r} is no memory size that Slurm reads", f"write it as {_MEMORY_FORMS}"
        )
    return -int(-int(match[1]) * _MIB[(match[2] or "").upper()] // 1)


def format_memory(mib: int) -> str:
    """Write MiB with the largest unit that keeps it whole: ``16G``, ``1500M``."""
    return f"{mib // 1024}G" if mib and mib % 1024 == 0 else f"{mib}M"


@dataclass(frozen=True)
class Gres:
    """One generic resource: ``gpu:a100:4`` is ``Gres("gpu", "a100", 4)``; ``type`` may be empty."""

    name: str
    type: str
    count: int


def parse_gres(text: str, source: str = "resources.gres") -> tuple[Gres, ...]:
    """Read what a person asks for.

    Args:
        text: as in ``--gres``: ``gpu``, ``gpu:4``, ``gpu:a100``, ``gpu:a100:4``; several with commas.
        source: the config key that the text came from, for the error.

    Returns:
        Every item; none for ``none``.

    Raises:
        ConfigError: for an item that Slurm would refuse. None is left out in silence.
    """
    found, unread = read_gres(text)
    if unread:
        raise ConfigError(
            f"{source}: {unread[0]!r} is no generic resource that Slurm reads",
            f"write it as {_GRES_FORMS}: gpu:2 or gpu:a100:2",
        )
    return found


def read_gres(text: str) -> tuple[tuple[Gres, ...], tuple[str, ...]]:
    """Read what a node has or a job was given: ``gpu:a100:8(S:0-1),shard:16``, ``gres/gpu:2`` and ``(null)``.

    Args:
        text: in any of the spellings of ``scontrol``.

    Returns:
        The items, and the ones that could not be read.
    """
    if text in {"", "(null)", "N/A", "none"}:
        return (), ()
    items = re.split(r",(?![^(]*\))", text)  # not the commas inside (IDX:0,2-3)
    read = [(item, _gres(item)) for item in items]
    return tuple(gres for _, gres in read if gres), tuple(item for item, gres in read if not gres)


def _gres(item: str) -> Gres | None:
    """``[gres/]NAME[:TYPE][:no_consume][:COUNT][(SOCKETS)]``."""
    match = _GRES.fullmatch(re.sub(r":no_consume(?=:|$)|\([^)]*\)$", "", item))
    if not match:
        return None
    return Gres(
        match["name"], match["type"] or "", int(match["count"] or 1) * _TIMES[(match["unit"] or "").upper()]
    )


def fits_conf(path: str) -> bool:
    """Whether slurm.conf can hold an absolute path as it is: it knows no quotes, nor does the glob(3) that slurmd finds hooks by."""
    return re.fullmatch(r"/[A-Za-z0-9/._+@-]*", path) is not None
