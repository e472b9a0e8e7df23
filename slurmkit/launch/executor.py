"""The submitit plugin: ``submitit.AutoExecutor(cluster="slurmkit")``, and how our own runs are submitted.

Registered in the entry point group ``submitit``. submitit pickles the functions that it is given; runs and
sweeps of ours go through ``submit_script`` and pickle nothing.
"""

from __future__ import annotations

import functools
import re
import shlex
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import submitit
from submitit.core import core, utils
from submitit.slurm import slurm

from slurmkit.cluster.client import SlurmClient, open_client
from slurmkit.cluster.command import Runner, is_unreachable, run_slurm, unavailable
from slurmkit.compiler.plan import Place, compile_job
from slurmkit.config.schema import Env, Experiment, Payload, Requeue, Resources
from slurmkit.errors import ConfigError, SlurmRefusedError, SlurmUnavailableError, SubmissionUnclearError
from slurmkit.launch.states import UNFINISHED, task_states
from slurmkit.units import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


#: After these words of sbatch slurmctld may have made the job all the same.
_UNCLEAR = (
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected message",
    "Connection reset",
    "send/recv",
)
_LOOK = "look whether the job is there with: squeue --me"


class _Watcher(slurm.SlurmInfoWatcher):
    """One batched question for all jobs, answered with or without accounting."""

    def __init__(self, delay_s: int = 600, client: Callable[[], SlurmClient] = open_client) -> None:
        super().__init__(delay_s=delay_s)
        self._client = client

    def update(self) -> None:
        """Ask ``squeue`` and, where there is one, ``sacct`` for every job that has not ended."""
        unfinished = sorted(self._registered - self._finished)
        if not unfinished:
            return
        self._num_calls += 1
        try:
            states = task_states(self._client(), unfinished)
        except SlurmUnavailableError as error:
            submitit.core.logger.get_logger().warning(
                f"Call #{self._num_calls}: {error}: states are as they last were"
            )
        else:
            self._info_dict.update(
                {
                    name: {"JobID": name, "State": task.state, "NodeList": task.nodes}
                    for name, task in states.items()
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
        if len(delayed_submissions) == 1:
            jobs: list[core.Job[Any]] = core.PicklingExecutor._internal_process_submissions(  # noqa: SLF001 - as above
                self, delayed_submissions
            )
            return jobs
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        pickles = []
        for delayed in delayed_submissions:
            delayed.set_timeout(self.parameters.get("time", 5), self.max_num_timeout)
            pickles.append(folder / f"{uuid.uuid4().hex}.pkl")
            delayed.dump(pickles[-1])
        try:
            first = self._submit_text(self._submitit_command_str, len(delayed_submissions))
        except SlurmRefusedError:
            for pickle in pickles:
                pickle.unlink()
            raise
        tasks = list(range(self._num_tasks()))
        array: list[core.Job[Any]] = [
            self.job_class(folder=self.folder, job_id=f"{first}_{index}", tasks=tasks)
            for index in range(len(pickles))
        ]
        for job, pickle in zip(array, pickles, strict=True):
            job.paths.move_temporary_file(pickle, "submitted_pickle")
        return array

    def _submit_command(self, command: str) -> core.Job[Any]:
        return self.job_class(
            folder=self.folder, job_id=self._submit_text(command, None), tasks=list(range(self._num_tasks()))
        )

    def _submit_text(self, command: str, array: int | None) -> str:
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        path = folder / f".submission_file_{uuid.uuid4().hex}.sh"
        path.write_text(self._script(command, array), encoding="utf-8")
        try:
            job_id = self.submit_script(path)
        except SlurmRefusedError:
            path.unlink()
            raise
        utils.JobPaths(folder=self.folder, job_id=job_id).move_temporary_file(
            path, "submission_file", keep_as_symlink=True
        )
        return job_id

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        del uid
        return self._script(command, None)

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
        """
        try:
            code, out, err = self._run(["sbatch", "--parsable", str(path)])
        except SlurmUnavailableError as error:  # it may have taken the job before it fell silent
            raise SubmissionUnclearError(f"sbatch {path}: {error}", _LOOK) from error
        if not code:
            return self._get_job_id_from_submission_command(out)
        lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in err.strip().splitlines()]
        said = " ".join(lines) or (f"exit code {code}" if code > 0 else f"signal {-code} ended it")
        if code < 0 or any(words in said for words in _UNCLEAR):
            raise SubmissionUnclearError(f"sbatch {path}: {said}", _LOOK)
        if is_unreachable(said):
            raise unavailable(err)
        raise SlurmRefusedError(
            f"sbatch refused {path.name}: {said}",
            "mend the experiment; preflight does not know every rule of a site",
        )

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        """The id in the output of ``sbatch --parsable``: its last line, since a cli_filter may print before it."""
        text = string.decode() if isinstance(string, bytes) else string
        last = text.strip().rpartition("\n")[2]
        match = re.fullmatch(r"(\d+)(?:;\S+)?", last.strip())
        if not match:
            raise SubmissionUnclearError(f"sbatch printed no job id but {text.strip()!r}", _LOOK)
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
    return Experiment(
        name=str(parameters.get("job_name", "submitit")),
        resources=Resources(
            time=format_duration(parameters.get("time", 5) * 60),
            srun_args=[*srun_args, *(parameters.get("srun_args") or [])],
            extra=dict(parameters.get("additional_parameters") or {}),
            **resources,
        ),
        requeue=Requeue(
            signal=slurm.SlurmJobEnvironment.USR_SIG, signal_lead=int(parameters.get("signal_delay_s", 90))
        ),
        env=Env(
            setup=list(parameters.get("setup") or []),
            teardown=list(parameters.get("teardown") or []),
            vars={"SUBMITIT_EXECUTOR": "slurmkit"},
        ),
        payload=Payload("command", list(argv)),
    )


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

    if not hasattr(original, "__wrapped__"):
        submitit.AutoExecutor._internal_update_parameters = renamed  # type: ignore[method-assign]  # noqa: SLF001


_adopt_slurm_names()
