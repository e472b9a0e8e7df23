"""Slurm's spellings, both ways."""

from __future__ import annotations

import pytest

from slurmkit.errors import ConfigError
from slurmkit.units import UNLIMITED, format_duration, format_memory, parse_duration, parse_memory


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * 60),
        ("30:00", 30 * 60),
        ("1:30:00", 90 * 60),
        ("0-12", 12 * 3600),
        ("1-12", 36 * 3600),
        ("1-12:30", 36 * 3600 + 1800),
        ("1-12:00:00", 2160 * 60),
        ("UNLIMITED", UNLIMITED),
        ("infinite", UNLIMITED),
        ("00:00:30", 30),
    ],
)
def test_durations_are_read_as_slurm_reads_them(text: str, seconds: float) -> None:
    """``30:00`` is half an hour and not thirty hours: every form of ``man sbatch`` has Slurm's meaning."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["90m", "1h", "", "1:2:3:4", "-5", "1-", "a-1", "1.5", "٣"])
def test_durations_that_sbatch_refuses_are_refused(text: str) -> None:
    """What sbatch would refuse is refused first, with the accepted forms and the key in the error."""
    with pytest.raises(ConfigError) as caught:
        parse_duration(text, "resources.time")
    assert "resources.time" in caught.value.message
    assert "HOURS:MINUTES:SECONDS" in caught.value.hint


@pytest.mark.parametrize("text", ["1-12:00:00", "00:30:00", "UNLIMITED", "23:59:59", "10-00:00:01"])
def test_durations_survive_the_round_trip(text: str) -> None:
    """What we write is what Slurm writes, and reads back as the same duration."""
    assert format_duration(parse_duration(text)) == text


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("16G", 16384),
        ("16GB", 16384),
        ("500", 500),
        ("500M", 500),
        ("1T", 1024 * 1024),
        ("1025K", 2),
        ("1g", 1024),
    ],
)
def test_memory_is_read_as_slurm_reads_it(text: str, mib: int) -> None:
    """``16GB`` and ``16G`` are the same; a bare number is in megabytes."""
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["16GiB", "1.5G", "", "G", "-1G", "16 GB x"])
def test_memory_that_sbatch_refuses_is_refused(text: str) -> None:
    """``16GiB`` never reaches sbatch: the error names the key and an accepted form."""
    with pytest.raises(ConfigError, match=r"resources\.mem"):
        parse_memory(text, "resources.mem")


@pytest.mark.parametrize("text", ["16G", "1500M", "1G"])
def test_memory_survives_the_round_trip(text: str) -> None:
    """A whole number of gigabytes is written as one."""
    assert format_memory(parse_memory(text)) == text
