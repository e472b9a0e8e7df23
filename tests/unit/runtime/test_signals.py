"""Signals: noted and nothing else, and given back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from slurmkit.runtime.signals import Stop, catch_signals


def test_signals_are_noted_with_their_time() -> None:
    """USR1, TERM and INT set flags in any order; the first arrival counts."""
    with catch_signals() as flags:
        assert flags.stop is Stop.NONE
        before = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert flags.stop == Stop.USR1 | Stop.TERM
        first = flags.first
        assert first is not None
        assert before <= first.monotonic <= time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)
        assert flags.first == first
        assert flags.stop.names() == ["SIGUSR1", "SIGTERM"]


def test_handlers_come_back() -> None:
    """After the block, also one left by an exception, the handlers are those from before."""
    numbers = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGCONT)
    before = [signal.getsignal(number) for number in numbers]
    with contextlib.suppress(ZeroDivisionError), catch_signals():
        assert [signal.getsignal(number) for number in numbers[:3]] != before[:3]
        assert signal.getsignal(signal.SIGCONT) == before[3]
        _ = 1 / 0
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_second_ctrl_c_is_obeyed() -> None:
    """The first SIGINT asks for a save; the second is from a person who will not wait."""
    with catch_signals() as flags:
        os.kill(os.getpid(), signal.SIGINT)
        assert flags.stop is Stop.INT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_worker_is_deaf_and_mortal() -> None:
    """A loader's worker survives USR1, TERM and INT, and is gone when its rank is killed."""
    code = """
import os, signal, time
from slurmkit.runtime.signals import shield_worker
ready, said = os.pipe()
child = os.fork()
if not child:
    shield_worker()
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    os.write(said, b"x")
    time.sleep(600)
os.read(ready, 1)
print(child, flush=True)
time.sleep(600)
"""
    rank = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert rank.stdout is not None
    worker = int(rank.stdout.readline())
    os.kill(worker, 0)
    rank.kill()
    rank.wait(10)
    # The pipe ends when nobody holds it any more: the worker had inherited it.
    assert rank.stdout.read() == ""
    rank.stdout.close()
