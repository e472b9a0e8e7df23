"""Slurm's spellings of durations, memory and counts, both ways.

``sbatch`` refuses ``90m`` and ``16GiB`` and reads ``30:00`` as thirty minutes; what it would refuse is
refused here first, with the accepted forms in the error. Source: ``man sbatch``, ``--time`` and ``--mem``.
"""

from __future__ import annotations

import re

from slurmkit.errors import ConfigError

__all__ = ["UNLIMITED", "format_duration", "format_memory", "parse_duration", "parse_memory"]

#: A duration without an end, in seconds. Compares greater than every other duration.
UNLIMITED = float("inf")

_DURATION_FORMS = "MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES, DAYS-HOURS:MINUTES:SECONDS or UNLIMITED"
_MEMORY_FORMS = "a whole number and K, M, G or T (megabytes without one), such as 16G or 500M"
_NUMBER = re.compile(r"[0-9]+")
_MEMORY = re.compile(r"([0-9]+)([KMGT]?)B?", re.IGNORECASE)
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
    word = text.strip()
    if word.upper() in {"UNLIMITED", "INFINITE", "-1"}:
        return UNLIMITED
    days, dash, clock = word.rpartition("-")
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
    match = _MEMORY.fullmatch(text.strip())
    if not match:
        raise ConfigError(
            f"{source}: {text!r} is no memory size that Slurm reads", f"write it as {_MEMORY_FORMS}"
        )
    return -int(-int(match[1]) * _MIB[match[2].upper()] // 1)


def format_memory(mib: int) -> str:
    """Write MiB with the largest unit that keeps it whole: ``16G``, ``1500M``."""
    return f"{mib // 1024}G" if mib and mib % 1024 == 0 else f"{mib}M"
