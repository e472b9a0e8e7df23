"""The submitit plugin: ``submitit.AutoExecutor(cluster="slurmkit")``, and how our own runs are submitted.

Registered in the entry point group ``submitit``. submitit pickles the functions that it is given; runs and
sweeps of ours go through ``submit_script`` and pickle nothing.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import submitit
from submitit.core import core, utils
from submitit.slurm import slurm

from slurmkit.cluster.client import SlurmClient, open_client
from slurmkit.cluster.command import Runner, run_slurm, unavailable
from slurmkit.compiler.plan import Place, compile_job
from slurmkit.config.schema import Env, Experiment, Payload, Requeue, Resources
from slurmkit.errors import (
    ConfigError,
    SlurmkitError,
    SlurmRefusedError,
    SlurmUnavailableError,
    SubmissionUnclearError,
)
from slurmkit.launch.states import UNFINISHED, task_states
from slurmkit.runtime.silence import holds_all_jobs, is_unreachable, may_have_arrived, told
from slurmkit.units import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["SlurmkitExecutor", "SlurmkitJob", "SlurmkitJobEnvironment"]

#: submitit's parameters that are fields of ``Resources`` under the same name.
_SAME = (
    "partition", "nodes", "ntasks_per_node", "cpus_per_task", "cpus_per_gpu", "gpus_per_node", "gpus_per_task", "qos", "mem", "mem_per_gpu",
    "mem_per_cpu", "comment", "constraint", "exclude", "account", "gres", "mail_type", "mail_user", "nodelist", "dependency", "exclusive",
    "array_parallelism", "wckey",
)  # fmt: skip
#: The others, which are turned into something else below. Any name beside these two lists is refused.
_TURNED = (
    "job_name",
    "time",
    "setup",
    "teardown",
    "signal_delay_s",
    "stderr_to_stdout",
    "additional_parameters",
    "srun_args",
    "use_srun",
)


#: In the words of a refusal: what the accounting allows a user was the reason.
_OF_ACCOUNTING = ("accounting/QOS policy", "Invalid account", "Invalid qos")
#: In the last words of an sbatch that has tried again for two minutes: it was the time, and not the job.
_FOR_NOW = (
    "Resource temporarily unavailable",
    "Unable to create job record, try again",
    "Requested nodes are busy",
)
_LOOK = "look whether the job is there with: squeue --me"


@contextlib.contextmanager
def _removed_without_a_job(paths: Sequence[Path]) -> Iterator[None]:
    """Remove files that a job would read, once it is sure that there is none."""
    try:
        yield
    except SubmissionUnclearError:
        raise
    except Exception:  # Ctrl-C may have reached sbatch after it was done
        for path in paths:
            path.unlink(missing_ok=True)
        raise


class _Watcher(slurm.SlurmInfoWatcher):
    """One batched question for all jobs, answered with or without accounting."""

    def __init__(self, client: Callable[[], SlurmClient] = open_client) -> None:
        super().__init__(delay_s=600)
        self._client = client

    def update(self) -> None:
        """Ask ``squeue`` and, where there is one, ``sacct`` for every job that has not ended."""
        unfinished = sorted(self._registered - self._finished)
        if not unfinished:
            return
        self._num_calls += 1
        try:
            states = task_states(self._client(), unfinished)
        except (SlurmUnavailableError, SlurmRefusedError) as error:
            submitit.core.logger.get_logger().warning(
                f"Call #{self._num_calls}: {error}: states are as they last were"
            )
        else:
            self._info_dict.update(
                {
                    name: {"JobID": name, "State": task.state, "NodeList": task.nodes}
                    for name, task in states.items()
                    if task.source
                }
            )
            # A job that Slurm has forgotten ended long ago: without accounting nobody will ever say how.
            for name in unfinished:
                if name not in states:
                    self._info_dict[name] = {"JobID": name, "State": "FORGOTTEN", "NodeList": ""}
        self._last_status_check = time.time()
        self._finished |= {job_id for job_id in self._registered if self.is_done(job_id, mode="cache")}

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Whether the job has ended; a suspended, resizing or requeue-held one has not."""
        return self.get_state(job_id, mode=mode).upper() not in UNFINISHED


class SlurmkitJob(slurm.SlurmJob[Any]):
    """A job of this plugin, in submitit's terms."""

    watcher = _Watcher()


class SlurmkitJobEnvironment(slurm.SlurmJobEnvironment):
    """The environment of a function that our executor submitted."""

    @classmethod
    def name(cls) -> str:
        """The name by which submitit knows this plugin."""
        return "slurmkit"


class SlurmkitExecutor(slurm.SlurmExecutor):
    """Submits through our compiler.

    Args:
        folder: where submitit keeps pickles, results and logs, on a file system that every node sees.
        run: how Slurm's commands are run; tests give one that checks what it is called with.
        **options: those of ``submitit.SlurmExecutor``.
    """

    job_class = SlurmkitJob

    def __init__(self, folder: str | Path, *, run: Runner = run_slurm, **options: Any) -> None:
        super().__init__(folder, **options)
        self._run = run

    @classmethod
    def name(cls) -> str:
        """The name by which submitit knows this plugin."""
        return "slurmkit"

    @classmethod
    def affinity(cls) -> int:
        """Never picked unasked: whoever wants this plugin names it."""
        return min(1, super().affinity())

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return {*_SAME, *_TURNED}

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        wrong = sorted(set(kwargs) - self._valid_parameters())
        if wrong:
            raise ValueError(
                f"slurmkit's executor does not know {', '.join(wrong)}; accepted are {', '.join(sorted(self._valid_parameters()))}"
            )
        if isinstance(
            kwargs.get("time"), str
        ):  # submitit reckons in minutes, and stumbles over text much later
            kwargs["time"] = parse_duration(kwargs["time"], "time") / 60
        _experiment({**self.parameters, **kwargs}, ["true"])  # refuse a bad value now, not at submission
        core.PicklingExecutor._internal_update_parameters(self, **kwargs)  # noqa: SLF001 - submitit's own extension point

    def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[core.Job[Any]]:
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        count = len(delayed_submissions)
        pickles = [folder / f"{uuid.uuid4().hex}.pkl" for _ in range(count)]
        with _removed_without_a_job(pickles):
            for delayed, pickle in zip(delayed_submissions, pickles, strict=True):
                delayed.set_timeout(self.parameters.get("time", 5), self.max_num_timeout)
                delayed.dump(pickle)
                self._check_size(count * pickle.stat().st_size / 1024**3)
            first = self._submit_text(self._submitit_command_str, None if count == 1 else count)
        jobs = [self._job(first if count == 1 else f"{first}_{index}") for index in range(count)]
        for job, pickle in zip(jobs, pickles, strict=True):
            job.paths.move_temporary_file(pickle, "submitted_pickle")
        return jobs

    def _check_size(self, size: float) -> None:
        if size > self.max_pickle_size_gb:
            raise SlurmkitError(
                f"the functions and arguments are about {size:.2f} GB pickled; accepted are {self.max_pickle_size_gb} GB",
                "hand over the paths of large files, or set max_pickle_size_gb of the executor",
            )

    def _job(self, job_id: str) -> core.Job[Any]:
        return self.job_class(folder=self.folder, job_id=job_id, tasks=list(range(self._num_tasks())))

    def _submit_command(self, command: str) -> core.Job[Any]:
        return self._job(self._submit_text(command, None))

    def _submit_text(self, command: str, array: int | None) -> str:
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        path = folder / f".submission_file_{uuid.uuid4().hex}.sh"
        with _removed_without_a_job([path]):
            path.write_text(self._script(command, array), encoding="utf-8")
            job_id = self.submit_script(path)
        utils.JobPaths(folder=self.folder, job_id=job_id).move_temporary_file(
            path, "submission_file", keep_as_symlink=True
        )
        return job_id

    def _script(self, command: str, array: int | None) -> str:
        paths = utils.JobPaths(folder=self.folder)
        logs = [
            str(path).replace("%j", "%A_%a") if array is not None else str(path)
            for path in (paths.stdout, paths.stderr)
        ]
        srun = ["--unbuffered", f"--output={logs[0]}"]
        if not self.parameters.get("stderr_to_stdout"):
            srun.append(f"--error={logs[1]}")
        place = Place(
            cwd=str(Path.cwd()), run_dir=str(Path(self.folder).absolute()), output=logs[0].replace("%t", "0")
        )
        return compile_job(
            _experiment(self.parameters, shlex.split(command), srun), None, place, array=array
        ).script

    def submit_script(self, path: Path) -> str:
        """Give one script to sbatch.

        Args:
            path: the script.

        Returns:
            The job's id.

        Raises:
            SlurmRefusedError: with sbatch's own words.
            SlurmUnavailableError: if slurmctld cannot be reached.
            SubmissionUnclearError: if there may be a job all the same.
        """
        try:
            code, out, err = self._run(["sbatch", "--parsable", str(path)])
        except SlurmUnavailableError as error:
            if not isinstance(error.__cause__, subprocess.TimeoutExpired):
                raise  # there is no sbatch or no slurm.conf: nothing was begun
            raise SubmissionUnclearError(f"sbatch {path}: {error}", _LOOK) from error
        if not code:
            return _job_id(out)
        lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in err.strip().splitlines()]
        said = told("\n".join(lines)) or (f"exit code {code}" if code > 0 else f"signal {-code} ended it")
        if code < 0 or may_have_arrived(err):  # slurmctld may have made the job all the same
            raise SubmissionUnclearError(f"sbatch {path}: {said}", _LOOK)
        if is_unreachable(err):
            raise unavailable(err)
        raise SlurmRefusedError(f"sbatch refused {path.name}: {said}", _advice(lines))


def _advice(lines: Sequence[str]) -> str:
    """What to do about a refusal: the last line says why, those before it what was tried."""
    why = "".join(lines[-1:])
    if any(word in why for word in _OF_ACCOUNTING):
        return "see what you may use with: sacctmgr show assoc user=$USER format=account,qos,maxsubmit,maxwall,maxtres,grptres"
    if not any(word in why for word in _FOR_NOW):
        return "mend the experiment; preflight does not know every rule of a site"
    if holds_all_jobs("\n".join(lines)):
        return "slurmctld holds all the jobs that it may, ended ones too for minutes (see MaxJobCount and MinJobAge in: scontrol show config): submit again when some are gone"
    return "slurmctld takes no such job for now: submit again in some minutes"


def _job_id(printed: str) -> str:
    """The id in the output of ``sbatch --parsable``: its last line, since a cli_filter may print before it."""
    last = printed.strip().rpartition("\n")[2]
    match = re.fullmatch(r"(\d+)(?:;\S+)?", last.strip())
    if not match:
        raise SubmissionUnclearError(f"sbatch printed no job id but {printed.strip()!r}", _LOOK)
    return match[1]


def _experiment(
    parameters: Mapping[str, Any], argv: Sequence[str], srun_args: Sequence[str] = ()
) -> Experiment:
    """Submitit's parameters as an experiment: every one is mapped or refused, and none is dropped."""
    if parameters.get("use_srun", True) is not True:
        raise ConfigError("use_srun=False: without srun no signal reaches the function", "leave use_srun out")
    resources = {key: parameters[key] for key in _SAME if parameters.get(key) is not None}
    for key in ("gpus_per_node", "gpus_per_task", "exclusive"):
        if key in resources:
            resources[key] = (
                str(resources[key]).lower() if isinstance(resources[key], bool) else str(resources[key])
            )
    extra = parameters.get("additional_parameters") or {}
    if not isinstance(extra, Mapping):
        raise ConfigError(
            f"additional_parameters: got {extra!r}; accepted is a mapping of sbatch's options",
            'write {"nice": 5}',
        )
    return Experiment(
        name=str(parameters.get("job_name", "submitit")),
        resources=Resources(
            time=format_duration(_minutes(parameters) * 60),
            srun_args=[*srun_args, *_lines(parameters, "srun_args")],
            extra=dict(extra),
            **resources,
        ),
        requeue=Requeue(
            signal=slurm.SlurmJobEnvironment.USR_SIG, signal_lead=int(parameters.get("signal_delay_s", 90))
        ),
        env=Env(
            setup=_lines(parameters, "setup"),
            teardown=_lines(parameters, "teardown"),
            vars={"SUBMITIT_EXECUTOR": "slurmkit"},
        ),
        payload=Payload("command", list(argv)),
    )


def _lines(parameters: Mapping[str, Any], key: str) -> list[str]:
    """A list of texts: a text alone would be taken letter by letter."""
    value = parameters.get(key) or []
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{key}: got {value!r}; accepted is a list of texts", f"write [{str(value)!r}]")
    return list(value)


def _minutes(parameters: Mapping[str, Any]) -> float:
    """The time limit. To Slurm 0 is no limit, to submitit a job that is out of time at once."""
    value: Any = parameters.get("time", 5)
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(
            f"time: got {value!r}; accepted are minutes above 0, or Slurm's text such as 1-12:00:00",
            "leave it out for 5 minutes",
        )
    return value


def _adopt_slurm_names() -> None:
    """Let ``AutoExecutor(cluster="slurmkit")`` take submitit's ``slurm_*`` parameters.

    AutoExecutor drops, without a word, every parameter whose prefix is not the name of its cluster, and
    offers no hook to say that ours are Slurm's. So they are renamed before it looks.
    """
    original = submitit.AutoExecutor._internal_update_parameters  # noqa: SLF001 - see above

    @functools.wraps(original)
    def renamed(self: submitit.AutoExecutor, **kwargs: Any) -> None:
        if self.cluster == SlurmkitExecutor.name():
            kwargs = {re.sub(r"^slurm_", "slurmkit_", key): value for key, value in kwargs.items()}
        original(self, **kwargs)

    submitit.AutoExecutor._internal_update_parameters = renamed  # type: ignore[method-assign]  # noqa: SLF001


_adopt_slurm_names()
