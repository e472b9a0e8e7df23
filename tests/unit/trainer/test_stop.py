"""How lives end: without progress not for ever, and also before they have begun."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from here import lines, train_here
from ranks import started, step_variables

from slurmkit.errors import StoppedError
from slurmkit.runtime import rendezvous
from slurmkit.runtime.jobenv import JobEnv
from slurmkit.runtime.signals import SignalFlags, Stop
from trainer import distributed, stop
from trainer.events import EventLog

ROOT = Path(__file__).parents[3]
STORE: Any = dist.HashStore  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("history", "count"),
    [
        ([], 0),
        ([("requeue", "time limit", 7)] * 2, 2),
        ([("requeue", "time limit", 7), ("requeue", "preempted", 7), ("requeue", "time limit", 7)], 2),
        ([("requeue", "time limit", 7), ("requeue", "time limit", 5)], 0),
        ([("requeue", "time limit", 5), ("requeue", "asked to save and requeue", 7)], 1),
        ([("stop", "cancelled", 7)], 0),
    ],
)
def test_lives_without_progress_are_counted(
    tmp_path: Path, history: list[tuple[str, str, int]], count: int
) -> None:
    """Those in a row that requeued this job at this very step; one that Slurm preempted is left out."""
    env = JobEnv(cluster="lab", own_id="12", point_dir=tmp_path)
    EventLog(tmp_path, {"cluster": "lab", "job": "11"}).emit("requeue", cause="time limit", step=7)
    for restart, (kind, cause, step) in enumerate(history):
        log = EventLog(tmp_path, {"cluster": "lab", "job": "12", "restart": restart})
        log.emit("start")
        log.emit(kind, cause=cause, step=step)
    assert stop.stalled_lives(env, 7) == count


def test_the_count_reaches_the_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was counted is what is judged by."""
    env = JobEnv(cluster="lab", own_id="12", restart=1, point_dir=tmp_path)
    log = EventLog(tmp_path, env.life())
    log.emit("requeue", cause="time limit", step=0)
    told: list[Any] = []

    def end_life(*args: Any, **more: Any) -> Any:
        told.append((args, more))
        return real("", Stop.TERM, 0)

    real = stop.end_life
    monkeypatch.setattr(stop, "end_life", end_life)
    flags = SignalFlags()
    flags.note(signal.SIGTERM)
    assert stop.stop_before_start(env, flags) == 143
    assert told == [(("12", Stop.TERM, 1), {"stalled": 1})]


def test_a_full_log_costs_no_requeue(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no line can be printed, a run still learns, saves and ends as it would: the decision is made."""
    flags = SignalFlags()
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert train_here(data, tmp_path) == 0
        flags.note(signal.SIGUSR1)
        assert train_here(data, tmp_path, "trainer.steps=40", flags=flags) == 75
        with contextlib.suppress(OSError):
            full.close()
    assert [line["event"] for line in lines(tmp_path, "events.jsonl")][-2:] == ["signal", "stop"]


def test_the_other_ranks_of_a_job_leave_the_exit_code_to_rank_0() -> None:
    """A rank that fails first could make srun kill rank 0 while it asks for a requeue."""
    flags = SignalFlags()
    flags.note(signal.SIGTERM)
    assert stop.stop_before_start(JobEnv(rank=1, world_size=2, own_id="12"), flags) == 0
    assert stop.stop_before_start(JobEnv(rank=1, world_size=2), flags) == 143


@pytest.mark.parametrize("signalled", [0, 1])
def test_a_signal_during_the_roll_call_ends_all_that_are_there(signalled: int) -> None:
    """Two of three ranks are there and one gets a signal: both leave, long before the deadline."""
    store = STORE()
    flags = [SignalFlags(), SignalFlags()]
    seen: list[int] = []

    def call(rank: int) -> None:
        env = JobEnv(rank=rank, world_size=3, node=f"n{rank}")
        try:
            distributed._roll_call(store, env, "cpu", 60, flags[rank])
        except StoppedError:
            seen.append(rank)

    threads = [threading.Thread(target=call, args=(rank,), daemon=True) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    store.wait(["slurmkit/rank/0", "slurmkit/rank/1"], timedelta(seconds=10))
    flags[signalled].note(signal.SIGUSR1)
    for thread in threads:
        thread.join(20)
    assert sorted(seen) == [0, 1]
    assert flags[0].stop is Stop.USR1


def test_a_signal_to_a_rank_that_has_not_found_rank_0_ends_both(tmp_path: Path) -> None:
    """It leaves at once, and leaves word: rank 0, which comes later, does not wait for it. No word stays."""
    flags = SignalFlags()
    flags.note(signal.SIGUSR1)
    step = {"source": "slurm", "world_size": 2, "step_id": "0", "run_dir": tmp_path}
    with pytest.raises(StoppedError), distributed.joined(JobEnv(rank=1, **step), "cpu", 60, flags):  # type: ignore[arg-type]
        pass
    first = SignalFlags()
    with pytest.raises(StoppedError), distributed.joined(JobEnv(**step), "cpu", 60, first):  # type: ignore[arg-type]
        pass
    assert first.stop is Stop.USR1
    assert list((tmp_path / "rendezvous").iterdir()) == []


def test_word_of_an_older_life_stops_nobody(tmp_path: Path) -> None:
    """What a rank of the life before left behind is not read, and goes with that life's meeting files."""
    old = JobEnv(rank=1, world_size=2, own_id="12", step_id="0", run_dir=tmp_path)
    distributed._leave_word(old, Stop.TERM)
    new = replace(old, rank=0, restart=1)
    assert distributed._word_left(old) is Stop.TERM
    assert distributed._word_left(new) is Stop.NONE
    rendezvous.withdraw_older(new)
    assert list((tmp_path / "rendezvous").iterdir()) == []


def test_a_signal_while_rank_0_waits_ends_it_and_its_file(data: Path, tmp_path: Path) -> None:
    """Rank 1 never comes; rank 0 obeys SIGTERM at once and takes its rendezvous file with it."""
    folder = tmp_path / "rendezvous"
    with started(2, tmp_path, [f"data.path={data}/digits.h5"]) as step:
        step.processes[1].kill()
        deadline = time.monotonic() + 60
        while not list(folder.glob("*.json")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        step.processes[0].send_signal(signal.SIGTERM)
        assert step.wait(20) == [143, -9]
    assert list(folder.iterdir()) == []


def catches_usr1(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGUSR1 - 1) & 1)


def test_a_signal_at_the_very_start_is_noted(data: Path, tmp_path: Path) -> None:
    """The real command gets a signal as soon as it catches one: it ends in order, with that signal's code."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    asked = {signal.SIGUSR1: 75, signal.SIGTERM: 143}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "trainer", f"data.path={data}/digits.h5", "trainer.steps=100000"],
            env=env | step_variables(0, 1, tmp_path / number.name) | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in asked
    ]
    try:
        for process, number in zip(processes, asked, strict=True):
            while not catches_usr1(process.pid):
                assert process.poll() is None
            process.send_signal(number)
        for process, (number, code) in zip(processes, asked.items(), strict=True):
            said, _ = process.communicate(timeout=120)
            assert process.returncode == code, said
            assert f"{number.name} came; no step is done yet" in said
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_handlers_come_before_hydra() -> None:
    """Importing Hydra takes a fifth of a second, in which SIGUSR1 would kill the rank."""
    code = """
import runpy, signal, sys
real, slow = signal.signal, ("hydra", "omegaconf", "torch", "numpy")
def install(number, handler):
    if number == signal.SIGUSR1:
        print([name for name in slow if name in sys.modules], flush=True)
    return real(number, handler)
signal.signal = install
sys.argv = ["trainer", "--cfg", "job"]
runpy.run_module("trainer", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.splitlines()[0] == "[]", done.stderr
    assert "resources:" in done.stdout, "Hydra's own front still works"


def test_a_signal_while_the_process_ends_does_no_harm() -> None:
    """A warning that comes after the run has finished must not make it a failed one."""
    code = """
import atexit, os, signal
from slurmkit.runtime.signals import catch_signals
from trainer.__main__ import _leave
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
    atexit.register(os.kill, os.getpid(), number)
with catch_signals():
    _leave(0)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
