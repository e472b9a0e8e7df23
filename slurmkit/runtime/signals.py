"""The one owner of signals in a rank: a handler only notes that a signal came, and when.

SIGUSR1 (Slurm's warning, or a person's ``scancel --signal=USR1``), SIGTERM (preemption, time limit,
scancel) and SIGINT (a person at the terminal) are noted; what they mean is decided at the next optimizer
step, by all ranks together. SIGCONT is left alone: Slurm sends it with every SIGTERM.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Arrival", "SignalFlags", "Stop", "catch_signals", "shield_worker"]


class Stop(enum.Flag):
    """Which of the signals came. A flag: several can come together, in any order."""

    NONE = 0
    USR1 = enum.auto()
    TERM = enum.auto()
    INT = enum.auto()

    def names(self) -> list[str]:
        """Such as ``["SIGUSR1", "SIGTERM"]``."""
        return [number.name for number in self.numbers()]

    def numbers(self) -> list[signal.Signals]:
        """The signals themselves."""
        return [number for number, one in _SIGNALS.items() if one in self]


_SIGNALS = {signal.SIGUSR1: Stop.USR1, signal.SIGTERM: Stop.TERM, signal.SIGINT: Stop.INT}


@dataclass(frozen=True)
class Arrival:
    """When a signal came, on both clocks."""

    monotonic: float
    unix: float


class SignalFlags:
    """What came so far. Written by the handlers, read by the loop."""

    def __init__(self) -> None:
        self.arrivals: dict[Stop, Arrival] = {}

    @property
    def stop(self) -> Stop:
        """All signals that came."""
        result = Stop.NONE
        for one in tuple(self.arrivals):
            result |= one
        return result

    @property
    def first(self) -> Arrival | None:
        """The arrival of the first one."""
        return min(tuple(self.arrivals.values()), key=lambda arrival: arrival.monotonic, default=None)

    def note(self, number: int, _frame: Any = None) -> None:
        """The handler: no work, no lock, no print.

        Args:
            number: the signal's number.

        Raises:
            KeyboardInterrupt: at the second SIGINT, from a person who will not wait.
        """
        stop = _SIGNALS[signal.Signals(number)]
        if stop in self.arrivals:
            if stop is Stop.INT:
                raise KeyboardInterrupt
            return
        self.arrivals[stop] = Arrival(time.monotonic(), time.time())


@contextlib.contextmanager
def catch_signals() -> Iterator[SignalFlags]:
    """Note SIGUSR1, SIGTERM and SIGINT instead of dying of them, until the block ends.

    Enter it before anything slow (such as ``import torch``): before that, SIGUSR1 kills. A process that ends
    after its work had better end in it: a warning that comes then would turn a finished run into a failed one.
    Only the main thread can do this.
    """
    flags = SignalFlags()
    before = {number: signal.signal(number, flags.note) for number in _SIGNALS}
    try:
        yield flags
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def shield_worker(_worker: int = 0) -> None:
    """Make a loader's worker deaf to the signals of its rank, and mortal with it.

    Slurm signals every process of a step: a worker that died of SIGTERM would take the emergency
    checkpoint with it. The kernel kills it when its rank ends, however that happens.
    A ``worker_init_fn`` for torch's DataLoader.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
