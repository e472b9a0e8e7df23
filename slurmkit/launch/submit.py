"""The act of submitting: check, make the run folder, hand the script to sbatch, read back what Slurm took."""

from __future__ import annotations

import contextlib
import functools
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmkit import __version__
from slurmkit.cluster.client import open_client
from slurmkit.cluster.command import run_slurm
from slurmkit.compiler.plan import JobPlan, Place, compile_job
from slurmkit.errors import PreflightError, SlurmkitError, SubmissionUnclearError
from slurmkit.launch.jobs import jobs_made_by
from slurmkit.launch.ledger import Attempt, Run, create_run, new_run_path, write_manifest
from slurmkit.launch.readback import differences
from slurmkit.launch.snapshot import Project, copy_project, find_project
from slurmkit.runtime.silence import holds_all_jobs

if TYPE_CHECKING:
    from slurmkit.cluster.client import SlurmClient
    from slurmkit.cluster.command import Runner, WhileFull
    from slurmkit.cluster.model import ClusterSnapshot
    from slurmkit.config.schema import Experiment

__all__ = ["check_plan", "submit"]

Say = Callable[[str], None]
_ONCE_MORE = 1.0  # seconds


def _silent(text: str) -> None:
    del text


def submit(
    experiment: Experiment,
    points: Sequence[Sequence[str]] | None = None,
    *,
    force: bool = False,
    say: Say = _silent,
) -> Run:
    """Submit a run, or a sweep as one job array.

    Nothing is written before the plan has passed its preflight, and a run that sbatch refuses leaves no
    folder behind.

    Args:
        experiment: what to run.
        points: the overrides of each point of a sweep; ``None`` for a single run.
        force: submit even what preflight calls impossible.
        say: receives one line for each finding, for each difference between what was asked and taken, and for
            the job that was submitted.

    Raises:
        PreflightError: if the plan can never run.
        SlurmRefusedError: with sbatch's own words.
    """
    client, cwd = open_client(), Path.cwd()
    snapshot = client.snapshot()
    path = new_run_path(cwd / experiment.runs_dir, experiment.name)
    project = _project(experiment, cwd)
    code = path / "code" / (cwd.relative_to(project.root) if cwd.is_relative_to(project.root) else "")
    place = Place(str(cwd), str(path), str(code) if experiment.snapshot.enabled else None)
    tasks = None if points is None else tuple(range(len(points)))
    check_plan(compile_job(experiment, snapshot, place, points=points), force=force, say=say)
    with _uninterrupted() as interruptible:
        with _whole_or_not_at_all(path):
            with interruptible():
                create_run(path)
                if experiment.snapshot.enabled:
                    copy_project(project, path / "code", experiment.snapshot.max_mb)
                    experiment = _from_snapshot(experiment, project, path)
                plan = compile_job(experiment, snapshot, place, points=points)
                write_manifest(path, _manifest(experiment, cwd, project, snapshot), plan.script, points)
            full = _while_full(snapshot, say, interruptible)
            job_id = _sbatch(path, client, functools.partial(run_slurm, while_full=full))
        # There is a job now: whatever fails from here on, its folder stays.
        return _record(
            Run(path), Attempt(snapshot.config.cluster, job_id, time.time(), tasks), plan, client, say
        )


def _project(experiment: Experiment, cwd: Path) -> Project:
    """The project of the submission folder, or of the app where that lies elsewhere."""
    project = find_project(cwd)
    words = experiment.payload.command
    script = Path(words[0]) if experiment.payload.kind == "function" and words else cwd
    return (
        project
        if not script.is_absolute() or script.is_relative_to(project.root)
        else find_project(script.parent)
    )


@contextlib.contextmanager
def _whole_or_not_at_all(path: Path) -> Iterator[None]:
    """Remove the run folder again if it could not be completed, unless there is or may be a job that needs it."""
    try:
        yield
    except SubmissionUnclearError:
        raise
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        reason = error.strerror or error
        raise SlurmkitError(
            f"the run folder {path} could not be written: {reason}", "make room there, or set runs_dir=FOLDER"
        ) from error
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


@contextlib.contextmanager
def _uninterrupted() -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Hold Ctrl-C, SIGTERM and SIGHUP back until the job and its record are both there, or neither.

    sbatch inherits the mask: a Ctrl-C goes to the whole foreground group, and would leave open whether
    there is a job now. Yields a context in which they do interrupt, for what can be undone.
    """
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)

    @contextlib.contextmanager
    def interruptible() -> Iterator[None]:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a signal that waits interrupts right here
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, held)

    try:
        yield interruptible
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _while_full(
    snapshot: ClusterSnapshot, say: Say, interruptible: Callable[[], contextlib.AbstractContextManager[None]]
) -> WhileFull:
    """While sbatch tries again, two minutes long, a person knows why, and may end it: there is no job yet."""

    @contextlib.contextmanager
    def full(words: str) -> Iterator[None]:
        most = snapshot.config.array_limits.get("MaxJobCount")
        room = (
            f"at most {most} jobs at a time (MaxJobCount={most})"
            if most and holds_all_jobs(words)
            else "no job now"
        )
        say(
            f"{words}\nslurmctld takes {room}: it is tried for two minutes, until there is room; Ctrl-C ends that"
        )
        with interruptible():
            yield

    return full


def _sbatch(path: Path, client: SlurmClient, run: Runner) -> str:
    """Submit the script; where sbatch does not say whether there is a job, ask Slurm for one of this script."""
    from slurmkit.launch.executor import SlurmkitExecutor  # noqa: PLC0415 - submitit costs 0.1 s, a refused plan none

    script = path / "job.sbatch"
    try:
        return SlurmkitExecutor(path, run=run).submit_script(script)
    except (SubmissionUnclearError, KeyboardInterrupt) as error:
        with contextlib.suppress(SlurmkitError):
            job_id = _made_by(Run(path), client)
            if job_id is not None:
                return job_id
            if isinstance(error, KeyboardInterrupt):  # between two tries of sbatch, which is gone
                raise
        unclear = (
            error if isinstance(error, SubmissionUnclearError) else SubmissionUnclearError("interrupted")
        )
        kept = f"the run folder {path} is kept; it is looked for again by: slurmkit status {Run(path).word}"
        hint = f"{unclear.hint}; {kept}" if unclear.hint else kept
        raise SubmissionUnclearError(unclear.message, hint) from error


def _made_by(run: Run, client: SlurmClient) -> str | None:
    """The first job of this run. What sbatch asked for may still wait in slurmctld, so that is asked once more."""
    jobs = jobs_made_by(run, client)
    if not jobs:
        time.sleep(_ONCE_MORE)
        jobs = jobs_made_by(run, client)
    return next(iter(jobs), None)


def _record(run: Run, attempt: Attempt, plan: JobPlan, client: SlurmClient, say: Say) -> Run:
    """Ask Slurm for the job it made, and write down what that is. What cannot be read is said, and no error."""
    size, unread = plan.array, ""
    try:
        job = client.job(attempt.job_id) or {}
    except SlurmkitError as error:
        job, unread = {}, f"it could not be read back: {error}"
    attempt = replace(attempt, differences=differences(plan.directives, job) if job else ())
    try:
        run.add_attempt(attempt)
    except OSError as error:
        raise SlurmkitError(
            f"job {attempt.job_id} is submitted, but {run.path / 'attempts'} could not be written: {error.strerror or error}",
            f"make room there; end the job with: scancel {attempt.job_id}",
        ) from error
    held = "" if size is None else f" with {size} point{'s' * (size != 1)}"
    say(f"submitted job {attempt.job_id}{held}; see: slurmkit status {run.word}")
    for item in attempt.differences:
        say(f"Slurm took {item['option']} as {item['got']}; asked was {item['asked']}")
    if unread:
        say(unread)
    return run


def _from_snapshot(experiment: Experiment, project: Project, path: Path) -> Experiment:
    """The experiment with its script and its folder of configs taken from the copy, where that has them."""
    if experiment.payload.kind == "command":
        return experiment

    def moved(word: str) -> str:
        if Path(word).is_absolute() and Path(word).is_relative_to(project.root):
            copy = path / "code" / Path(word).relative_to(project.root)
            return str(copy) if copy.exists() else word
        return word

    payload = replace(experiment.payload, command=[moved(word) for word in experiment.payload.command])
    return replace(experiment, payload=payload)


def check_plan(plan: JobPlan, *, force: bool, say: Say) -> None:
    """Say what preflight found, and stop what is impossible.

    Raises:
        PreflightError: if anything is impossible and ``force`` is not set.
    """
    for finding in plan.findings:
        if force or finding not in plan.impossible:
            say(str(finding))
    if plan.impossible and not force:
        raise PreflightError(
            f"this can never run here: {len(plan.impossible)} finding{'s' if len(plan.impossible) > 1 else ''}",
            "mend it as each line says, or submit all the same with --force",
            "\n".join(str(finding) for finding in plan.impossible),
        )


def _manifest(
    experiment: Experiment, cwd: Path, project: Project, snapshot: ClusterSnapshot
) -> dict[str, Any]:
    trainer: Mapping[str, Any] = experiment.config.get("trainer") or {}
    return {
        "version": 1,
        "name": experiment.name,
        "created_at": time.time(),
        "argv": sys.argv,
        "cwd": str(cwd),
        "command": experiment.payload.command,
        "config": experiment.config,
        "seed": trainer.get("seed"),
        "git": {"root": str(project.root), "commit": project.commit, "diff": project.diff},
        "packages": {item.name: item.version for item in metadata.distributions()},
        "python": sys.version.split()[0],
        "slurmkit": __version__,
        "slurm": {"cluster": snapshot.config.cluster, "release": ".".join(map(str, snapshot.config.release))},
    }
