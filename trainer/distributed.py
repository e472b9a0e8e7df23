"""From a process to a rank: find the others, choose the device, open the process groups, close them."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from slurmkit.errors import ConfigError, RendezvousError, SlurmkitError, StoppedError
from slurmkit.runtime import rendezvous
from slurmkit.runtime.records import write_atomic
from slurmkit.runtime.signals import SignalFlags, Stop
from trainer.control import Control
from trainer.trouble import is_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from slurmkit.runtime.jobenv import JobEnv

__all__ = ["Ranks", "joined", "set_threads"]

#: torch does not list its stores among its names.
_stores: Any = dist
_NONCE = "slurmkit/nonce"
_GO = "slurmkit/go"
_STOP = "slurmkit/stop"
_LEFT = "slurmkit/left"
_LEAVE_SECONDS = 2.0
_POLL_SECONDS = (0.005, 0.1)
_LOOK_SECONDS = 0.5
_CONNECT_SECONDS = 10.0
#: Longer than any save takes: the others wait in a collective while rank 0 writes.
_COLLECTIVE = timedelta(minutes=30)
#: No group goes before the process does, which ends with os._exit: gloo joins its threads with it. One that waits
#: for a rank that died does so for as long as a collective may take; and PyTorch before 2.8 holds the GIL meanwhile,
#: for which a thread that is just letting go of its last tensor waits: the rank would never end.
_kept: list[Any] = []


@dataclass(frozen=True)
class Ranks:
    """The ranks of this life, all of them present."""

    device: torch.device
    backend: str
    control: Control
    nodes: tuple[str, ...]
    """The node of each rank."""


def set_threads(env: JobEnv) -> None:
    """Use as many threads as Slurm gave the task: sums depend on their number.

    Args:
        env: this rank.
    """
    torch.set_num_threads(env.cpus_per_task)


@contextlib.contextmanager
def joined(env: JobEnv, device: str, seconds: float, flags: SignalFlags | None = None) -> Iterator[Ranks]:
    """Meet the other ranks; leave them in order at the end, unless one of them is lost.

    Args:
        env: this rank.
        device: ``auto``, ``cpu`` or ``cuda``.
        seconds: how long to wait for the others.
        flags: the signals that came so far; nobody is waited for once one came.

    Raises:
        StoppedError: if a signal comes before all are there.
        RendezvousError: if they do not come.
        ConfigError: if ``cuda`` is asked for and not there.
    """
    kind = _own_kind(env, device)
    flags = flags or SignalFlags()
    store, withdraw = _open_store(env, seconds, flags)
    try:
        nodes, kinds = _roll_call(store, env, kind, seconds, flags)
    finally:
        withdraw()
    cuda = all(one == "cuda" for one in kinds)  # one node without a GPU: all on the CPU
    own = torch.device("cuda", _gpu_index(env)) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(own)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(
        backend, store=store, rank=env.rank, world_size=env.world_size, timeout=_COLLECTIVE
    )
    in_order = env.world_size == 1
    try:
        group = dist.new_group(backend="gloo", timeout=_COLLECTIVE)
        _kept.extend((dist.group.WORLD, group))
        yield Ranks(own, backend, Control(env.rank, env.world_size, group), nodes)
        in_order = True
    except SlurmkitError as error:
        in_order |= is_shared(error)
        raise
    finally:
        if in_order:
            dist.destroy_process_group()


def _own_kind(env: JobEnv, device: str) -> str:
    there = device != "cpu" and torch.cuda.is_available()
    if device == "cuda" and not there:
        raise ConfigError(
            f"trainer.device=cuda: rank {env.rank} on {env.node} sees no GPU",
            hint="ask Slurm for GPUs, or take trainer.device=auto",
        )
    return "cuda" if there else "cpu"


def _gpu_index(env: JobEnv) -> int:
    count = torch.cuda.device_count()
    if count == 1:  # Slurm gave each task its own
        return 0
    if env.local_rank >= count:
        raise ConfigError(
            f"{env.local_world_size} ranks on {env.node}, which has {count} GPUs: accepted is one rank a GPU",
            hint=f"try resources.ntasks_per_node={count}",
        )
    return env.local_rank


def _nothing() -> None:
    pass


def _open_store(env: JobEnv, seconds: float, flags: SignalFlags) -> tuple[Any, Callable[[], None]]:
    """The store of this step, and what to call once all ranks have it."""
    timeout = timedelta(seconds=seconds)
    if env.world_size == 1:
        return _stores.HashStore(), _nothing
    if env.source == "torchrun":
        return next(iter(_stores.rendezvous("env://", timeout=timeout)))[0], _nothing
    return _host(env, timeout) if env.rank == 0 else (_find(env, seconds, flags), _nothing)


def _tcp_store(address: str, port: int, *, is_master: bool, timeout: timedelta) -> Any:
    """A store of torch's usual kind, or of its older one where torch was built without libuv, as Debian builds it."""

    def make(**kind: bool) -> Any:
        return _stores.TCPStore(
            address, port, is_master=is_master, wait_for_workers=False, timeout=timeout, **kind
        )

    try:
        return make()
    except RuntimeError as error:
        if "libuv" not in str(error):
            raise
        return make(use_libuv=False)


def _host(env: JobEnv, timeout: timedelta) -> tuple[Any, Callable[[], None]]:
    # Port 0: the kernel gives one that is free, and it stays ours while the store lives.
    store = _tcp_store("127.0.0.1", 0, is_master=True, timeout=timeout)
    meeting = rendezvous.new_meeting(env, store.port)
    store.set(_NONCE, meeting.nonce)
    path = rendezvous.meeting_file(env)
    rendezvous.publish(path, meeting)
    rendezvous.withdraw_older(env)
    _name_interface(env, meeting.addresses[0])

    def withdraw() -> None:
        with contextlib.suppress(OSError):  # nobody believes a file whose server is gone
            rendezvous.withdraw(path, meeting)
            _word_file(env).unlink(missing_ok=True)

    return store, withdraw


def _find(env: JobEnv, seconds: float, flags: SignalFlags) -> Any:
    def connect(address: str, meeting: rendezvous.Meeting) -> Any:
        try:
            timeout = timedelta(seconds=_CONNECT_SECONDS)
            store = _tcp_store(address, meeting.port, is_master=False, timeout=timeout)
            if not store.check([_NONCE]) or store.get(_NONCE) != meeting.nonce.encode():
                return None
        except RuntimeError:  # torch's DistError: no store, or one that went away
            return None
        store.set_timeout(timedelta(seconds=seconds))
        with (
            contextlib.suppress(OSError),
            socket.create_connection((address, meeting.port), timeout=3) as probe,
        ):
            _name_interface(env, str(probe.getsockname()[0]))
        return store

    try:
        return rendezvous.search(env, seconds, connect, lambda: bool(flags.stop))
    except StoppedError:
        _leave_word(env, flags.stop)
        raise


def _word_file(env: JobEnv) -> Path:
    """Where a rank that a signal ends before it found rank 0 leaves word of it; of this step and life alone.

    The next life removes it with the meeting files of older ones, where rank 0 has not.
    """
    return rendezvous.meeting_file(replace(env, step_id=f"{env.step_id or 0}.left"))


def _leave_word(env: JobEnv, stop: Stop) -> None:
    path = _word_file(env)
    with contextlib.suppress(OSError):  # then rank 0 waits until its deadline, as for a rank that was killed
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, str(stop.value))


def _word_left(env: JobEnv) -> Stop:
    path = _word_file(env)
    with contextlib.suppress(OSError, ValueError):
        if path in list(path.parent.iterdir()):  # listed, since an NFS client believes its cache for 30 s
            return Stop(int(path.read_text()))
    return Stop.NONE


def _roll_call(
    store: Any, env: JobEnv, kind: str, seconds: float, flags: SignalFlags
) -> tuple[tuple[str, ...], list[str]]:
    """Wait until every rank has said its node and its kind of device.

    Rank 0 alone says go or stop: a rank that left by itself would be waited for by those that go on.
    """
    keys = [f"slurmkit/rank/{rank}" for rank in range(env.world_size)]
    store.set(keys[env.rank], f"{kind} {env.node}")
    deadline = time.monotonic() + seconds
    if env.rank == 0:
        _call(store, env, keys, deadline, flags)
    else:
        try:
            _answer(store, deadline, flags)
        except RuntimeError as error:  # the store went away, and rank 0 with it
            if flags.stop:
                raise StoppedError("a signal came before all ranks were there") from None
            raise RendezvousError(f"rank 0 did not start within {seconds:.0f} s: {error}") from error
    said = [store.get(key).decode().split(" ", 1) for key in keys]
    return tuple(node for _, node in said), [kind for kind, _ in said]


def _call(store: Any, env: JobEnv, keys: list[str], deadline: float, flags: SignalFlags) -> None:
    """As rank 0: wait for all, and say go; or stop, where a signal came to any rank, there or not yet."""
    missing, began, look_at = keys, time.monotonic(), 0.0
    while missing := [key for key in missing if not store.check([key])]:
        told = Stop(int(store.get(_STOP))) if store.check([_STOP]) else Stop.NONE
        if time.monotonic() > look_at:
            told |= _word_left(env)
            look_at = time.monotonic() + _LOOK_SECONDS
        for number in told.numbers():
            flags.note(number)
        if flags.stop:
            store.set(_GO, "stop")
            _wait_until_left(store, len(keys) - len(missing) - 1)
            raise StoppedError("a signal came before all ranks were there")
        if time.monotonic() > deadline:
            names = ", ".join(key.rpartition("/")[2] for key in missing)
            raise RendezvousError(
                f"ranks {names} of {len(keys)} did not come within {deadline - began:.0f} s",
                hint="look at their lines in the log, or raise trainer.rendezvous_seconds",
            )
        time.sleep(_POLL_SECONDS[1] / 5)
    store.set(_GO, "go")


def _wait_until_left(store: Any, others: int) -> None:
    """The store ends with rank 0: those that are there read its word first."""
    deadline = time.monotonic() + _LEAVE_SECONDS
    while store.add(_LEFT, 0) < others and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS[1] / 5)


def _answer(store: Any, deadline: float, flags: SignalFlags) -> None:
    """As another rank: wait for the word of rank 0, and tell it of a signal."""
    pause, told = _POLL_SECONDS[0], False
    while not store.check([_GO]):
        if flags.stop and not told:
            store.set(_STOP, str(flags.stop.value))
            told = True
        if time.monotonic() > deadline:
            raise RuntimeError("no word of it")
        time.sleep(pause)
        pause = min(1.5 * pause, _POLL_SECONDS[1])
    if store.get(_GO) == b"stop":
        store.add(_LEFT, 1)
        raise StoppedError("a signal came before all ranks were there")


def _name_interface(env: JobEnv, address: str) -> None:
    """Tell gloo which network to use where the host name would mislead it to loopback (Debian's 127.0.1.1).

    Args:
        env: this rank.
        address: our own address on the network that reaches rank 0.
    """
    if (
        env.local_world_size == env.world_size
        or "GLOO_SOCKET_IFNAME" in os.environ
        or address.startswith("127.")
    ):
        return
    with contextlib.suppress(OSError):
        if not socket.gethostbyname(socket.gethostname()).startswith("127."):
            return
    name = _interface_of(address)
    if name:
        os.environ["GLOO_SOCKET_IFNAME"] = name


def _interface_of(address: str) -> str:
    get_address = 0x8915  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = array.array("B", struct.pack("256s", name.encode()[:15]))
            with contextlib.suppress(OSError):
                fcntl.ioctl(probe, get_address, request)
                if socket.inet_ntoa(request[20:24].tobytes()) == address:
                    return name
    return ""
