"""Slurm's spellings, both ways."""

from __future__ import annotations

import pytest

from slurmkit.errors import ConfigError
from slurmkit.units import (
    UNLIMITED,
    Gres,
    format_duration,
    format_memory,
    parse_duration,
    parse_gres,
    parse_memory,
    parse_time_limit,
    read_gres,
)


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


@pytest.mark.parametrize(
    "text", ["90m", "1h", "", "1:2:3:4", "-5", "1-", "a-1", "1.5", "٣", " 30", "30 ", "UNLIMITED "]
)
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
        ("16kb", 1),
        ("0", 0),
    ],
)
def test_memory_is_read_as_slurm_reads_it(text: str, mib: int) -> None:
    """``16GB`` and ``16G`` are the same; a bare number is in megabytes."""
    assert parse_memory(text) == mib


@pytest.mark.parametrize(
    "text", ["16GiB", "1.5G", "", "G", "-1G", "16 GB x", "16B", "16b", "B", "16P", " 16G", "16G "]
)
def test_memory_that_sbatch_refuses_is_refused(text: str) -> None:
    """``16GiB`` never reaches sbatch: the error names the key and an accepted form."""
    with pytest.raises(ConfigError, match=r"resources\.mem"):
        parse_memory(text, "resources.mem")


@pytest.mark.parametrize("text", ["16G", "1500M", "1G"])
def test_memory_survives_the_round_trip(text: str) -> None:
    """A whole number of gigabytes is written as one."""
    assert format_memory(parse_memory(text)) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", UNLIMITED),
        ("0:0", UNLIMITED),
        ("0-0", UNLIMITED),
        ("UNLIMITED", UNLIMITED),
        ("0:30", 60),
        ("90", 5400),
    ],
)
def test_a_time_limit_of_zero_is_none(text: str, seconds: float) -> None:
    """``--time=0`` means no limit to Slurm, and 30 seconds are taken as a whole minute."""
    assert parse_time_limit(text) == seconds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu", [Gres("gpu", "", 1)]),
        ("gpu:4", [Gres("gpu", "", 4)]),
        ("gpu:a100", [Gres("gpu", "a100", 1)]),
        ("gpu:a100:4", [Gres("gpu", "a100", 4)]),
        ("gpu:3090:4(S:0-1)", [Gres("gpu", "3090", 4)]),
        ("gpu:a100:no_consume:4", [Gres("gpu", "a100", 4)]),
        ("lustre:no_consume:4K", [Gres("lustre", "", 4096)]),
        ("gres/gpu:a100:4,gres:shard:2", [Gres("gpu", "a100", 4), Gres("shard", "", 2)]),
        ("gpu:a100:2(IDX:0,2-3),gpu:1g.5gb:7", [Gres("gpu", "a100", 2), Gres("gpu", "1g.5gb", 7)]),
        ("none", []),
    ],
)
def test_generic_resources_are_read_in_every_spelling(text: str, found: list[Gres]) -> None:
    """The second of three fields is a type, even of digits alone; flags, sockets and prefixes are no part of it."""
    assert list(parse_gres(text)) == found


@pytest.mark.parametrize(
    "text", ["gpu:", "gpu::2", "gpu=2", "gpu:a:b:c", "4", "4:2", "gpu:2,", "gpu:1, gpu:a100:1", "gpu:a100:-1"]
)
def test_no_generic_resource_is_dropped_in_silence(text: str) -> None:
    """What cannot be read is refused where a person asks for it, and kept apart where a node has it."""
    with pytest.raises(ConfigError, match=r"resources\.gres") as caught:
        parse_gres(text, "resources.gres")
    assert "NAME:TYPE:COUNT" in caught.value.hint
    assert read_gres(text)[1]
