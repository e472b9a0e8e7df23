"""What goes wrong in a rank, as a line and a hint that a person can use, told once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from slurmkit.errors import SlurmkitError
from trainer.say import say

if TYPE_CHECKING:
    from slurmkit.runtime.jobenv import JobEnv

__all__ = ["explained", "is_shared", "of_system", "shared", "tell"]


def explained(error: Exception, step: int) -> Exception:
    """An error of a step as one of ours, where it is known what it means; else as it is.

    Args:
        error: what was raised.
        step: the optimizer step that was under way.
    """
    if isinstance(error, OSError):
        return of_system(error)
    words = " ".join(str(error).split("\n", 1)[0].split())
    if isinstance(error, SlurmkitError) or not isinstance(error, RuntimeError):
        return error
    if "gloo" in words or "NCCL" in words:
        return SlurmkitError(
            f"contact to another rank was lost in step {step}: {words}",
            hint="look for the rank that ended first; a new job goes on from the last checkpoint",
        )
    if words.startswith("DataLoader worker"):
        return SlurmkitError(
            f"a loader process ended in step {step}: {words}",
            hint="it may have been killed for its memory: try data.workers=0, or ask for more resources.mem",
        )
    return error


def of_system(error: OSError) -> SlurmkitError:
    """What the operating system refused, as a line with its path and no traceback.

    Args:
        error: for example "permission denied".
    """
    path = f"{error.filename}: " if error.filename is not None else ""
    return SlurmkitError(
        f"{path}{error.strerror or error}",
        hint="look at that path: its owner, its mode, and the free space of its disk",
    )


def is_shared(error: SlurmkitError) -> bool:
    """Whether every rank raises this error, at the same place.

    Args:
        error: the error.
    """
    return bool(getattr(error, "shared", False))


def shared(error: SlurmkitError) -> SlurmkitError:
    """Mark an error that every rank raises: rank 0 alone tells it.

    Args:
        error: the error.
    """
    error.shared = True  # type: ignore[attr-defined]
    return error


def tell(error: SlurmkitError, env: JobEnv) -> None:
    """Say an error in a line and a hint, once: what all ranks raise is said by rank 0.

    Args:
        error: the error.
        env: this rank.
    """
    shared = is_shared(error)
    if shared and env.rank:
        return  # rank 0 says it
    who = "" if shared or env.world_size == 1 else f"rank {env.rank} on {env.node}: "
    lines = [f"error: {who}{error}", *([f"hint: {error.hint}"] if error.hint else [])]
    say("\n".join(lines), sys.stderr)
