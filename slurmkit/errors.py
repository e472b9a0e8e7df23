"""Every error that slurmkit raises on purpose.

::

    SlurmkitError                 exit 1   something that was asked did not happen
    ├── UsageError                exit 2   the words of a command or a config are wrong
    │   ├── ConfigError                    a key or value of the config; names what is accepted
    │   └── RunNotFoundError               no such run folder, run id or job id
    ├── PreflightError            exit 3   the plan can never run on this cluster as it is
    ├── SlurmUnavailableError     exit 4   slurmctld, slurm.conf or a Slurm command cannot be reached
    │   └── NoCommandError                 no such command on this node: asking again is of no use
    ├── SlurmRefusedError         exit 1   Slurm was reached and said no
    ├── SubmissionUnclearError    exit 1   sbatch did not say whether there is a job now
    ├── MissingProgramError       exit 1   a program that has to be installed first
    ├── LabError                  exit 1   a lab daemon did not do what it should
    ├── CheckpointError           exit 1   a checkpoint that is damaged or belongs to another run
    └── RendezvousError           exit 1   the ranks of a step did not find each other
        └── StoppedError                   a signal came before they had

Each carries ``hint``: what to type instead. All survive pickling, since submitit and
multiprocessing send exceptions between processes.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ConfigError",
    "LabError",
    "MissingProgramError",
    "NoCommandError",
    "PreflightError",
    "RendezvousError",
    "RunNotFoundError",
    "SlurmRefusedError",
    "SlurmUnavailableError",
    "SlurmkitError",
    "StoppedError",
    "SubmissionUnclearError",
    "UsageError",
]


class SlurmkitError(Exception):
    """Base of all errors of slurmkit.

    Args:
        message: one line: what was got, what is accepted, and where it came from.
        hint: one line: what to do or type instead. Empty where there is nothing to advise.
        detail: longer evidence, such as the tail of a log. Printed below the two lines.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "", detail: str = "") -> None:
        super().__init__(message, hint, detail)
        self.message = message
        self.hint = hint
        self.detail = detail

    def __str__(self) -> str:
        return self.message

    def report(self, program: str = "slurmkit") -> str:
        """The error as a person reads it: one line, a hint, and the evidence below."""
        hint = [f"  hint: {self.hint}"] if self.hint else []
        return "\n".join(
            [f"{program}: {self.message}", *hint, *(f"  {line}" for line in self.detail.splitlines())]
        )


class UsageError(SlurmkitError):
    """The words of a command or a config are wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A key or a value of the config is not one that is accepted."""


class RunNotFoundError(UsageError):
    """No run folder, run id or job id of that name."""


class PreflightError(SlurmkitError):
    """The plan can never run on this cluster as it is; ``detail`` lists the findings."""

    exit_code = 3


class SlurmUnavailableError(SlurmkitError):
    """slurmctld, slurm.conf or one of Slurm's commands cannot be reached."""

    exit_code = 4


class NoCommandError(SlurmUnavailableError):
    """There is no such command on this node: asking again is of no use."""


class SlurmRefusedError(SlurmkitError):
    """Slurm was reached and refused; the message repeats Slurm's own words."""


class SubmissionUnclearError(SlurmkitError):
    """Sbatch ended without saying whether there is a job: nothing that a job would need may be removed."""


class MissingProgramError(SlurmkitError):
    """A program is not installed; the hint names the package that has it."""


class LabError(SlurmkitError):
    """A daemon of the lab did not start or stop as it should; ``detail`` is the tail of its log."""


class CheckpointError(SlurmkitError):
    """A checkpoint is damaged, incomplete or belongs to another run."""


class RendezvousError(SlurmkitError):
    """The ranks of a step did not find each other in time."""


class StoppedError(RendezvousError):
    """A signal came before all ranks were there: there is nothing to save."""
