"""How Slurm is asked: the interface, and which implementation to take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmkit.cluster.model import ClusterConfig, ClusterSnapshot

__all__ = ["COMMAND_WIDTH", "SlurmClient", "open_client"]

#: After so many characters the command of a job is cut.
COMMAND_WIDTH = 600


class SlurmClient(Protocol):
    """What the toolkit asks of a Slurm cluster.

    All raise ``SlurmUnavailableError`` where it does not answer, and ``SlurmRefusedError`` where it says no.
    """

    def snapshot(self) -> ClusterSnapshot:
        """Nodes, partitions, fabric and settings, read now."""
        ...

    def config(self) -> ClusterConfig:
        """The settings alone, read now: a node that asks only for these costs slurmctld next to nothing."""
        ...

    def cluster(self) -> str:
        """The cluster's name. A job id means something only together with it."""
        ...

    def own_jobs(self) -> list[tuple[str, float, str]]:
        """Each job and array of ours that Slurm knows: id, when it was submitted (seconds since the epoch), and command.

        The command is the script's path and its words, cut after ``COMMAND_WIDTH`` characters.
        """
        ...

    def job(self, job_id: str) -> Mapping[str, str] | None:
        """``scontrol show job`` of one job, or ``None`` once Slurm has forgotten it."""
        ...

    def script(self, job_id: str) -> str | None:
        """The batch script that Slurm keeps of a job of ours, or ``None`` where it shows none."""
        ...

    def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        """What ``squeue`` knows of these jobs: one record a task, ended ones included for some minutes."""
        ...

    def history(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        """What ``sacct`` knows of these jobs: nothing where there is no accounting."""
        ...

    def cancel(self, job_ids: Sequence[str]) -> None:
        """End jobs for good."""
        ...


def open_client() -> SlurmClient:
    """The client for the cluster that ``SLURM_CONF`` (or ``/etc/slurm/slurm.conf``) names."""
    from slurmkit.cluster.command import CommandClient  # noqa: PLC0415 - only where Slurm is asked

    return CommandClient()
