"""Which jobs belong to a run, and which is each point's. An id alone names none: another cluster has it too, and it is issued again."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from slurmkit.cluster.client import COMMAND_WIDTH
from slurmkit.compiler.plan import folder_name
from slurmkit.errors import ConfigError
from slurmkit.launch.lives import newest_lives
from slurmkit.launch.states import UNFINISHED, TaskState, task_states

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmkit.cluster.client import SlurmClient
    from slurmkit.launch.ledger import PointStatus, Run
    from slurmkit.launch.lives import Life

__all__ = ["Jobs", "is_made_by", "jobs_made_by", "jobs_of", "kept_jobs"]

#: How the folder of a run begins in its script, and how a script submitted by hand ends it.
_RUN_DIR = "export SLURMKIT_RUN_DIR="
_JOB_ID = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"


@dataclass(frozen=True)
class Jobs:
    """The jobs of a run, and what is known of them."""

    points: Mapping[str, int]
    """By the id of each job or array task (``12``, ``12_3``) its point."""
    newest: Mapping[int, str]
    """By point, the one of them that lives, else the last submitted."""
    states: Mapping[str, TaskState]
    """By that id, what Slurm says; nothing of what it has forgotten, or was not asked."""
    lives: Mapping[tuple[str, int], Life]
    """What the batch scripts wrote, by job and point."""
    ended: Mapping[str, PointStatus]
    """The ends that are kept, by that id."""


def jobs_of(run: Run, client: SlurmClient) -> Jobs:
    """The jobs of a run: those that are recorded, those that left something in its folder, and those that Slurm has.

    A submission may have been killed before its record, and a person may submit the script again. Such a job has
    the tasks that are seen of it. The run folder is only read.

    Args:
        run: the run.
        client: how Slurm is asked.

    Raises:
        ConfigError: if the run was submitted to another cluster than the one that is asked.
    """
    kept = _kept(run, client.cluster())
    made = {run.by_hand: 0.0} if run.by_hand else jobs_made_by(run, client)
    points, began = dict(kept.points), {**made, **kept.began}
    # Whole jobs too: of one that is not recorded tasks may wait that have left nothing yet.
    states = _states(run, client, [*points, *(began.keys() - points.keys())])
    for name, state in states.items():  # also what no record has, of a job that is seen in the queue alone
        if state.source:
            points.setdefault(name, (state.task or 0) if run.is_sweep else 0)
    if run.by_hand and not points:
        points[run.by_hand] = 0
    return kept.jobs(points, began, states)


def kept_jobs(run: Run) -> Jobs:
    """The jobs of a run as far as its folder knows, wherever they ran."""
    kept = _kept(run)
    return kept.jobs(kept.points, kept.began, {})


@dataclass(frozen=True)
class _Kept:
    """What a run folder has of jobs."""

    points: Mapping[str, int]
    began: Mapping[str, float]
    """When each job was submitted, or began first where that is not recorded."""
    lives: Sequence[Life]
    ended: Mapping[str, PointStatus]

    def jobs(
        self, points: Mapping[str, int], began: Mapping[str, float], states: Mapping[str, TaskState]
    ) -> Jobs:
        def age(name: str) -> tuple[bool, float]:
            # What ended before it began is in no other record than that of its end, and supersedes nothing.
            return _is_live(states.get(name)), began.get(name.partition("_")[0], 0.0)

        newest = {points[name]: name for name in sorted(points, key=age)}
        return Jobs(points, newest, states, newest_lives(self.lives), self.ended)


def _kept(run: Run, cluster: str | None = None) -> _Kept:
    """What the folder has; of one cluster alone, if that is named."""
    lives, attempts, ended = run.lives(), run.attempts(), run.ended()
    if cluster is not None:
        _check_cluster(
            run, cluster, [*(item.cluster for item in attempts), *(life.cluster for life in lives)]
        )
        lives = [life for life in lives if life.cluster in {cluster, ""}]
        attempts = [attempt for attempt in attempts if attempt.cluster == cluster]
    began: dict[str, float] = {}
    for life in lives:
        began[life.job] = min(life.began, began.get(life.job, life.began))
    points = {name: status.point for name, status in ended.items()}
    for attempt in attempts:
        began[attempt.job_id] = attempt.submitted_at
        for index, point in enumerate(attempt.tasks):
            points[attempt.job_id if attempt.points is None else f"{attempt.job_id}_{index}"] = point
    recorded, is_sweep = {attempt.job_id for attempt in attempts}, run.is_sweep
    for life in lives:
        if life.job not in recorded:
            points[f"{life.job}_{life.point}" if is_sweep else life.job] = life.point
    return _Kept(points, began, lives, ended)


def _is_live(state: TaskState | None) -> bool:
    return state is not None and state.source == "squeue" and state.state in UNFINISHED


def _states(run: Run, client: SlurmClient, names: Sequence[str]) -> dict[str, TaskState]:
    """What Slurm says of these jobs and tasks, as far as they are this run's: ids are issued again."""
    states = task_states(client, names) if names else {}
    by_hand = run.by_hand
    called = run.id.removesuffix(f"-{by_hand}") if by_hand else run.manifest.get("name")
    is_queued = any(state.source == "squeue" for state in states.values())
    script_is_ours = bool(by_hand and is_queued and _script_names(run, by_hand, client))

    def is_ours(state: TaskState) -> bool:
        if state.source == "squeue":
            return script_is_ours if by_hand else is_made_by(run, state.made_from)
        return _is_called(state, called)

    return {name: state for name, state in states.items() if is_ours(state)}


def jobs_made_by(run: Run, client: SlurmClient) -> dict[str, float]:
    """The jobs of ours that were made from the script of a run, while Slurm knows them: when each was submitted."""
    return {job: at for job, at, command in client.own_jobs() if is_made_by(run, command)}


def is_made_by(run: Run, command: str) -> bool:
    """Whether a job was made from the script of this run, whose id no other has: paths lead there by many names.

    Args:
        run: the run.
        command: what squeue shows, cut where it is long; behind the path stand the words that the script was given.
    """
    script = str(run.path / "job.sbatch")
    if len(command) >= COMMAND_WIDTH and script.startswith(command):
        return True
    above, ours, _ = command.partition(f"/{run.id}/job.sbatch")
    # Another script that was given the path of ours as a word is not ours.
    return bool(ours) and (" /" not in above or command.startswith(script))


def _is_called(state: TaskState, name: str | None) -> bool:
    """Whether the accounting knows a job by this name, which it may not have heard yet."""
    return state.made_from in ("", "allocation", name) or folder_name(state.made_from) == name


def _script_names(run: Run, job_id: str, client: SlurmClient) -> bool:
    """Whether the script that Slurm keeps with the job names this folder as its own."""
    script = client.script(job_id) or ""
    lines = [line for line in script.splitlines() if line.startswith(_RUN_DIR)]
    if not lines:
        return False
    try:
        words = shlex.split(lines[0].removeprefix(_RUN_DIR), comments=True)
    except ValueError:  # edited, and no shell would read it
        return False
    folder = "".join(words[:1]).replace(_JOB_ID, job_id)
    edited = Template(folder).safe_substitute(os.environ, SLURM_JOB_ID=job_id, SLURM_ARRAY_JOB_ID=job_id)
    with contextlib.suppress(OSError):  # a place that is not there, or that we may not look into
        return any(Path(path).exists() and run.path.samefile(Path(path)) for path in (folder, edited) if path)
    return False


def _check_cluster(run: Run, asked: str, known: list[str]) -> None:
    """Refuse a run that has nothing to do with the cluster that is asked."""
    if not known and not run.by_hand:
        known = [str((run.manifest.get("slurm") or {}).get("cluster") or "")]
    named = [name for name in known if name]
    if named and asked not in named:
        raise ConfigError(
            f"this run was submitted to the cluster {named[-1]!r}; SLURM_CONF points at {asked!r}",
            f"set SLURM_CONF to the slurm.conf of {named[-1]}",
        )
