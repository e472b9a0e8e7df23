"""What Slurm's commands say where Slurm does not answer: one list for all who ask. Measured on Slurm 22.05, 24.11 and 26.05.

scontrol, squeue, sbatch and scancel end with 1 whatever went wrong; only their words tell a slurmctld that
said no from one that said nothing. Their last line decides: those before it tell of tries that did not matter,
such as for a backup controller whose name nobody knows, and of what a plugin of the site was refused.
"""

from __future__ import annotations

__all__ = ["has_no_conf", "holds_all_jobs", "is_unreachable", "may_have_arrived", "told", "tries_again"]

#: Slurm's configuration was not found: nobody was asked.
_NO_CONF = ("configuration source", "s_p_parse_file", "Unable to process configuration file")
#: No controller has an address that is known: nobody was asked either. What follows is "No error".
_NO_NAME = ("Unable to establish control machine address",)
#: slurmctld was not found, or the question could not be signed or was put to one that does not rule.
_NOT_ASKED = (
    "Unable to contact slurm controller",
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
#: sacct, of a slurmdbd that is down or hangs, and (with exit code 0) of one whose name nobody knows.
_NO_DBD = ("Problem talking to the database", "DBD_GET_JOBS_COND failure")
#: What sbatch says once, and then tries again for two minutes.
_ALL_JOBS = "Slurm temporarily unable to accept job, sleeping and retrying"
_FOR_NOW = (
    _ALL_JOBS,
    "Slurm job queue full, sleeping and retrying",
    "Job creation temporarily disabled, retrying",
)
#: Of a name that nobody knows, in a dozen lines.
_OF_NAMES = ("getaddrinfo()", "slurm_set_addr: ", "slurm_set_port: ")


def told(said: str) -> str:
    """These words of a command, line by line as they came, in one line, without how often a name was looked up."""
    lines = [line.strip() for line in said.strip().splitlines()]
    return " ".join([line for line in lines if not _has(line, _OF_NAMES)] or lines)


def _has(said: str, marks: tuple[str, ...]) -> bool:
    return any(mark in said for mark in marks)


def _ends_with(said: str, marks: tuple[str, ...]) -> bool:
    return _has(said.strip().rpartition("\n")[2], marks)


def has_no_conf(said: str) -> bool:
    """Whether these words of a command mean that it found no slurm.conf."""
    return _has(said, _NO_CONF)


def may_have_arrived(said: str) -> bool:
    """Whether they, line by line as they came, mean that slurmctld may have done what it was told, and did not say so."""
    return _ends_with(said, _NO_ANSWER)


def is_unreachable(said: str) -> bool:
    """Whether they, line by line as they came, mean that Slurm did not answer, for whatever reason: later it may."""
    return _has(said, (*_NO_CONF, *_NO_NAME)) or _ends_with(said, (*_NOT_ASKED, *_NO_ANSWER, *_NO_DBD))


def tries_again(said: str) -> bool:
    """Whether they are of an sbatch that slurmctld refused for now: for two minutes it tries again, and says no more."""
    return _has(said, _FOR_NOW)


def holds_all_jobs(said: str) -> bool:
    """Whether that is because slurmctld holds as many jobs as it may (MaxJobCount)."""
    return _ALL_JOBS in said
