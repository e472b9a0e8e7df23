"""How the ranks find one another, by whatever torch there is."""

from __future__ import annotations

import gc
import types
import weakref
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from slurmkit.runtime.jobenv import JobEnv
from trainer import distributed


@pytest.mark.parametrize("libuv", [True, False], ids=["usual", "Debian"])
def test_a_torch_without_libuv_serves_too(monkeypatch: pytest.MonkeyPatch, libuv: bool) -> None:
    """Debian builds torch without libuv: its store is of the other kind, on rank 0 and on all others; elsewhere never."""
    made: list[dict[str, Any]] = []

    def store(address: str, port: int, **options: Any) -> str:
        assert (address, port, options["wait_for_workers"]) == ("127.0.0.1", 7, False)
        if options.get("use_libuv", True) and not libuv:
            raise RuntimeError("use_libuv was requested but PyTorch was build without libuv support")
        made.append(options)
        return "store"

    monkeypatch.setattr(distributed, "_stores", types.SimpleNamespace(TCPStore=store))
    for is_master in (True, False):
        made.clear()
        found = distributed._tcp_store("127.0.0.1", 7, is_master=is_master, timeout=timedelta(seconds=1))
        assert found == "store"
        assert [(one["is_master"], one.get("use_libuv", True)) for one in made] == [(is_master, libuv)]


def test_another_trouble_of_the_store_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that cannot be had is told as it is, after one attempt."""
    tries: list[Any] = []

    def store(*_: Any, **options: Any) -> None:
        tries.append(options)
        raise RuntimeError("The server socket has failed to listen")

    monkeypatch.setattr(distributed, "_stores", types.SimpleNamespace(TCPStore=store))
    with pytest.raises(RuntimeError, match="failed to listen"):
        distributed._tcp_store("127.0.0.1", 7, is_master=True, timeout=timedelta(seconds=1))
    assert len(tries) == 1


def test_the_groups_of_a_life_stay_until_the_process_ends() -> None:
    """A group that went while gloo's thread lets go of a tensor would never end the rank (PyTorch before 2.8)."""
    with distributed.joined(JobEnv(), "cpu", 60) as ranks:
        groups = [weakref.ref(dist.group.WORLD), weakref.ref(ranks.control._group)]
    del ranks
    gc.collect()
    assert all(group() is not None for group in groups)
    assert not dist.is_initialized(), "another life can begin in this process"
