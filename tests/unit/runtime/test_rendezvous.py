"""The meeting of ranks: no two jobs meet on one port, no stale file is believed."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import RendezvousError, StoppedError
from slurmkit.runtime.jobenv import JobEnv
from slurmkit.runtime.rendezvous import (
    addresses,
    meeting_file,
    new_meeting,
    publish,
    search,
    withdraw,
    withdraw_older,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurmkit.runtime.rendezvous import Meeting


def rank(run_dir: Path, number: int, **facts: object) -> JobEnv:
    usual = {
        "source": "slurm",
        "world_size": 2,
        "cluster": "lab",
        "own_id": "12_3",
        "step_id": "0",
        "node": "n1",
    }
    return JobEnv(**{**usual, "rank": number, "run_dir": run_dir, **facts})  # type: ignore[arg-type]


@contextlib.contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def dead_port() -> int:
    with listening() as port:
        return port


def test_a_rank_finds_rank_0_that_publishes_later(tmp_path: Path) -> None:
    """A rank that is early polls until the file is there, and gets address and port of rank 0."""
    lead = rank(tmp_path, 0)
    with listening() as port:
        meeting = new_meeting(lead, port)
        late = threading.Timer(0.2, publish, (meeting_file(lead), meeting))
        late.start()
        found = search(rank(tmp_path, 1), 10, lambda address, seen: (address, seen))
        late.join()
    assert found == ("127.0.0.1", meeting)


def test_lives_steps_points_and_jobs_have_files_of_their_own(tmp_path: Path) -> None:
    """Two steps, lives, points or jobs of one run folder never read each other's file."""
    others: list[dict[str, object]] = [
        {},
        {"own_id": "12_4"},
        {"step_id": "1"},
        {"restart": 1},
        {"point": 1},
        {"cluster": "b"},
    ]
    assert len({meeting_file(rank(tmp_path, 0, **facts)) for facts in others}) == len(others)


def test_a_dead_port_is_read_again(tmp_path: Path) -> None:
    """A file left by a life that died (nobody listens) is not believed; the fresh one is, once it comes."""
    lead = rank(tmp_path, 0)
    publish(meeting_file(lead), new_meeting(lead, dead_port()))
    with listening() as port:
        fresh = new_meeting(lead, port)
        late = threading.Timer(0.2, publish, (meeting_file(lead), fresh))
        late.start()
        assert search(rank(tmp_path, 1), 10, lambda _, seen: seen) == fresh
        late.join()


def test_a_port_that_another_job_got_is_refused(tmp_path: Path) -> None:
    """A stranger listens on the port of a stale file and cannot repeat the nonce: go on looking."""
    lead = rank(tmp_path, 0)
    with listening() as foreign, listening() as port:
        stale, fresh = new_meeting(lead, foreign), new_meeting(lead, port)
        publish(meeting_file(lead), stale)
        asked: list[Meeting] = []

        def join(_: str, seen: Meeting) -> Meeting | None:
            asked.append(seen)
            if seen == stale:
                publish(meeting_file(lead), fresh)
                return None
            return seen

        assert search(rank(tmp_path, 1), 10, join) == fresh
        assert asked[0] == stale


def test_the_identity_in_the_file_must_be_ours(tmp_path: Path) -> None:
    """A file that names another life or world is not tried at all; the error says what was seen."""
    lead = rank(tmp_path, 0)
    with listening() as port:
        publish(meeting_file(lead), dataclasses.replace(new_meeting(lead, port), restart=7))
        with pytest.raises(RendezvousError, match="restart 7"):
            search(rank(tmp_path, 1), 0.1, lambda *_: pytest.fail("was tried"))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"port": 1}'])
def test_garbage_is_no_file(tmp_path: Path, content: str) -> None:
    """What is no meeting at all is waited out, with an error that names the file."""
    path = meeting_file(rank(tmp_path, 0))
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(RendezvousError, match="no file of rank 0"):
        search(rank(tmp_path, 1), 0.1, lambda *_: pytest.fail("was tried"))


def test_only_our_own_file_is_withdrawn(tmp_path: Path) -> None:
    """A life that is late does not remove the file of the one that took over."""
    lead = rank(tmp_path, 0)
    path = meeting_file(lead)
    ours, other = new_meeting(lead, 1), new_meeting(lead, 2)
    publish(path, other)
    withdraw(path, ours)
    assert path.exists()
    withdraw(path, other)
    assert not path.exists()


def test_a_node_name_that_does_not_resolve_still_has_addresses() -> None:
    """Emulated nodes have names that resolve nowhere: there is always an address to try."""
    found = addresses("no-such-node-n1")
    assert found[-1] == "127.0.0.1"
    assert "no-such-node-n1" not in found


def test_nobody_looks_for_rank_0_after_a_signal(tmp_path: Path) -> None:
    """A rank that is asked to stop leaves at once, and not at the deadline."""
    asked = iter([False, True])
    with pytest.raises(StoppedError):
        search(rank(tmp_path, 1), 600, lambda *_: None, lambda: next(asked))


def test_a_file_in_the_place_of_the_folder_is_not_waited_for(tmp_path: Path) -> None:
    """It will not become a folder."""
    (tmp_path / "rendezvous").touch()
    with pytest.raises(RendezvousError, match="is not a folder"):
        search(rank(tmp_path, 1), 600, lambda *_: None)


def test_files_of_earlier_lives_go(tmp_path: Path) -> None:
    """Rank 0 removes what killed lives of its own job left, of whatever step, and nothing else."""
    now = rank(tmp_path, 0, restart=10)
    kept: list[dict[str, object]] = [
        {"restart": 10},
        {"restart": 11},
        {"own_id": "12_4"},
        {"cluster": "b"},
        {"point": 1},
    ]
    for facts in [*kept, {}, {"restart": 9, "step_id": "1"}]:
        env = rank(tmp_path, 0, **facts)
        publish(meeting_file(env), new_meeting(env, 1))
    withdraw_older(now)
    left = sorted(path.name for path in (tmp_path / "rendezvous").iterdir())
    assert left == sorted(meeting_file(rank(tmp_path, 0, **facts)).name for facts in kept)
