"""What squeue and sacct answer, and what a batch script leaves, in the words of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmkit.launch.watch import run_status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmkit.launch.ledger import Run


class Slurm:
    """Answers for squeue and sacct; any other call is a failure of the test."""

    def __init__(
        self, queue: Sequence[Mapping[str, str]] = (), history: Sequence[Mapping[str, str]] = ()
    ) -> None:
        self._queue, self._history = queue, history
        self.calls: list[str] = []

    def cluster(self) -> str:
        return "lab"

    def own_jobs(self) -> list[tuple[str, float, str]]:
        return []

    def cancel(self, job_ids: Sequence[str]) -> None:
        self.calls.append(f"cancel {','.join(job_ids)}")

    def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        self.calls.append("queue")
        return [row for row in self._queue if row["ArrayJobID"] in job_ids]

    def history(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        self.calls.append("history")
        return [row for row in self._history if row["JobID"].partition("_")[0] in job_ids]


def row(job: str, task: str, state: str, script: str = "/runs/exp/job.sbatch") -> dict[str, str]:
    cells = {"RestartCnt": "1", "Reason": "None", "NodeList": "n1", "Command": script}
    return {"ArrayJobID": job, "ArrayTaskID": task, "State": state, **cells}


class Again(Slurm):
    """A squeue that knows jobs made from a script as ours, too: id, when it was submitted, command."""

    def __init__(self, own: Sequence[tuple[str, float, str]], queue: Sequence[Mapping[str, str]]) -> None:
        super().__init__(queue)
        self._own = own

    def own_jobs(self) -> list[tuple[str, float, str]]:
        return list(self._own)


def life(job: str, task: int, time: int, end: str = "", cluster: str = "lab", restart: int = 0) -> str:
    """A line of the batch script's, at its start or with how it ended."""
    tail = f", {end}" if end else ""
    return f'{{"cluster": "{cluster}", "job": "{job}", "task": {task}, "restart": {restart}, "time": {time}{tail}}}\n'


def jobs_and_states(run: Run, slurm: Slurm) -> list[tuple[str, str]]:
    return [(item.job, item.state) for item in run_status(run, slurm)]
