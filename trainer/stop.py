"""How a life ends early: rank 0 asks Slurm why, and says to all how they exit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmkit.runtime.ending import end_life
from slurmkit.runtime.records import read_json_lines
from slurmkit.runtime.requeue import Cause
from trainer.events import EVENTS, EventLog
from trainer.say import say

if TYPE_CHECKING:
    from slurmkit.runtime.jobenv import JobEnv
    from slurmkit.runtime.signals import SignalFlags, Stop

__all__ = ["stalled_lives", "stop_before_start", "stop_life"]


def stop_life(env: JobEnv, stop: Stop, step: int, flags: SignalFlags, events: EventLog) -> int:
    """On rank 0, after the save: requeue the job if that is right.

    Args:
        env: rank 0.
        stop: the signals that came, on any rank.
        step: the last step that is saved.
        flags: those of rank 0, with their times.
        events: where to note it.

    Returns:
        The exit code of all ranks.
    """
    names = stop.names()
    first = flags.first
    events.emit("signal", signals=names, arrived=first.unix if first else None, step=step)
    saved = f"saved after step {step}" if step else "no step is done yet"
    say(f"{' and '.join(names)} came; {saved}")
    ending = end_life(env.own_id, stop, env.restart, stalled=stalled_lives(env, step))
    cause = ending.cause.value if ending.cause else None
    kind = "requeue" if ending.requeued else "stop"
    events.emit(kind, cause=cause, code=ending.code, words=ending.words, step=step)
    say(ending.words)
    return ending.code


def stop_before_start(env: JobEnv, flags: SignalFlags) -> int:
    """A signal came before all ranks were there: rank 0 asks Slurm as at any other stop.

    Args:
        env: this rank.
        flags: the signals that came; on rank 0 also those that others told of.

    Returns:
        The exit code. In a job that of rank 0 tells: the others end with 0, since a rank that fails first
        can make srun kill rank 0 while it asks for a requeue.
    """
    if env.rank:
        return 0 if env.in_slurm else end_life("", flags.stop, env.restart).code
    steps = [line["step"] for line in _lines(env) if line.get("event") == "checkpoint"]
    events = EventLog(env.point_dir, {**env.life(), "life": ""})
    return stop_life(env, flags.stop, steps[-1] if steps else 0, flags, events)


def stalled_lives(env: JobEnv, step: int) -> int:
    """How many lives of this job, the last ones in a row, asked for a requeue at this very step.

    Lives that Slurm preempted do not count: PreemptTime says for certain that it was not their fault.

    Args:
        env: rank 0.
        step: where this life stops.
    """
    count = 0
    for line in reversed(_lines(env)):
        ours = (line.get("cluster"), line.get("job")) == (env.cluster, env.own_id)
        if line.get("event") != "requeue" or not ours or line.get("cause") == Cause.PREEMPTED.value:
            continue
        if line.get("step") != step:
            break
        count += 1
    return count


def _lines(env: JobEnv) -> list[dict[str, Any]]:
    try:
        return read_json_lines(env.point_dir / EVENTS)
    except OSError:  # then nothing is known about earlier lives
        return []
