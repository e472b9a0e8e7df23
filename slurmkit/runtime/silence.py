"""What Slurm's commands say where Slurm does not answer: one list for all who ask. Measured on Slurm 22.05, 24.11 and 26.05.

scontrol, squeue, sbatch and scancel end with 1 whatever went wrong; only their words tell a slurmctld that
said no from one that said nothing.
"""

from __future__ import annotations

__all__ = ["has_no_conf", "is_unreachable", "may_have_arrived", "tries_again"]

#: Slurm's configuration was not found: nobody was asked.
_NO_CONF = ("configuration source", "s_p_parse_file", "Unable to process configuration file")
#: slurmctld was not found, or the question could not be signed or was put to one that does not rule.
_NOT_ASKED = (
    "Unable to contact slurm controller",
    "Unable to establish control machine address",
    "Unable to resolve",
    "Connection refused",
    "Protocol authentication error",
    "in standby mode",
)
#: The answer is missing; the question may have arrived, and have been obeyed. ``scontrol requeue`` says
#: "Unexpected message" of every kind of silence but a dead port.
_NO_ANSWER = (
    "Unable to contact slurm controller (receive failure)",
    "Unable to contact slurm controller (shutdown failure)",
    "Socket timed out",
    "Connection timed out",
    "Connection reset",
    "Zero Bytes were transmitted",
    "Unexpected message",
)


def _has(said: str, marks: tuple[str, ...]) -> bool:
    return any(mark in said for mark in marks)


def has_no_conf(said: str) -> bool:
    """Whether these words of a command mean that it found no slurm.conf."""
    return _has(said, _NO_CONF)


def may_have_arrived(said: str) -> bool:
    """Whether they mean that slurmctld may have done what it was told, though it did not say so."""
    return _has(said, _NO_ANSWER)


def is_unreachable(said: str) -> bool:
    """Whether they mean that Slurm did not answer, for whatever reason: later it may."""
    return _has(said, (*_NO_CONF, *_NOT_ASKED, *_NO_ANSWER))


def tries_again(said: str) -> bool:
    """Whether they are of an sbatch that slurmctld refused for now: for two minutes it tries again, and says no more."""
    return "retrying" in said
