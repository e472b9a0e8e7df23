"""The submitit plugin, with a Slurm that checks what it is called with."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import submitit

from slurmkit.cluster import command
from slurmkit.errors import (
    ConfigError,
    SlurmkitError,
    SlurmRefusedError,
    SlurmUnavailableError,
    SubmissionUnclearError,
)
from slurmkit.launch import executor as executor_module
from slurmkit.launch.executor import SlurmkitExecutor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmkit.cluster.client import SlurmClient


@pytest.fixture(autouse=True)
def _srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitit only wants to see that there is a program called srun."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


class Sbatch:
    """Stands for sbatch: refuses any other call, and keeps the script."""

    def __init__(self, code: int = 0, out: str = "17\n", err: str = "") -> None:
        self.answer = (code, out, err)
        self.script = ""

    def __call__(self, argv: Sequence[str]) -> tuple[int, str, str]:
        assert list(argv[:2]) == ["sbatch", "--parsable"], f"not how sbatch is called: {argv}"
        assert len(argv) == 3
        self.script = Path(argv[2]).read_text()
        return self.answer


def auto(folder: Path, sbatch: Sbatch) -> submitit.AutoExecutor:
    executor = submitit.AutoExecutor(folder, cluster="slurmkit")
    executor._executor._run = sbatch
    return executor


@pytest.mark.parametrize(
    ("out", "job_id"), [("17\n", "17"), ("17;lab\n", "17"), ("Your job 2 of 5 today\n17\n", "17")]
)
def test_the_job_id_is_on_the_last_line(tmp_path: Path, out: str, job_id: str) -> None:
    """A cli_filter may print to stdout before sbatch does: the id is still the right one."""
    assert SlurmkitExecutor(tmp_path, run=Sbatch(out=out)).submit_script(_script(tmp_path)) == job_id


def _script(folder: Path) -> Path:
    path = folder / "job.sbatch"
    path.write_text("#!/bin/bash\n")
    return path


@pytest.mark.parametrize(
    ("err", "kind", "said"),
    [
        (
            "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified\n",
            SlurmRefusedError,
            "Invalid partition",
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
            SlurmUnavailableError,
            "Unable to contact",
        ),
    ],
)
def test_sbatchs_own_words_are_repeated(tmp_path: Path, err: str, kind: type[Exception], said: str) -> None:
    """What sbatch refuses is said in its words, and a dead controller is told from a refusal."""
    with pytest.raises(kind, match=said):
        SlurmkitExecutor(tmp_path, run=Sbatch(1, "", err)).submit_script(_script(tmp_path))


#: What sbatch says before it tries again, two minutes long, and the reason that it gives at the end.
ALL_JOBS = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
NO_RECORD = "sbatch: error: Slurm job queue full, sleeping and retrying\n"
DISABLED = "sbatch: error: Job creation temporarily disabled, retrying\n"
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("tried", "why", "advice"),
    [
        (ALL_JOBS, "Resource temporarily unavailable", "MaxJobCount"),
        (NO_RECORD, "Unable to create job record, try again", "in some minutes"),
        (DISABLED, "Requested nodes are busy", "in some minutes"),
        ("", "Invalid account or account/partition combination specified", "sacctmgr show assoc user=$USER "),
        ("", "Invalid qos specification", "sacctmgr show assoc user=$USER "),
        ("sbatch: error: AssocMaxSubmitJobLimit\n", POLICY, "sacctmgr show assoc user=$USER "),
        (ALL_JOBS, POLICY, "sacctmgr show assoc user=$USER "),
        (ALL_JOBS, "Invalid partition name specified", "mend the experiment"),
        ("sbatch: error: lua: Invalid account, so your default is taken\n", "Invalid partition name specified", "mend the experiment"),
        ("sbatch: error: lua: the license server is away, retrying\n", "Unspecified error", "mend the experiment"),
    ],
)  # fmt: skip
def test_a_refusal_has_the_advice_for_its_kind(tmp_path: Path, tried: str, why: str, advice: str) -> None:
    """A full slurmctld mends itself, of a limit of accounting one can ask, and only the rest is the experiment's fault.

    The last line tells which it is, whatever sbatch said before it tried again.
    """
    err = f"{tried}sbatch: error: Batch job submission failed: {why}\n"
    with pytest.raises(SlurmRefusedError) as caught:
        SlurmkitExecutor(tmp_path, run=Sbatch(1, "", err)).submit_script(_script(tmp_path))
    assert advice in caught.value.hint


@pytest.mark.parametrize(
    ("code", "err", "said"),
    [
        (1, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", "Socket timed out"),
        (1, "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n", "Zero Bytes"),
        (-9, "", "signal 9"),
    ],
)  # fmt: skip
def test_what_may_have_made_a_job_is_no_refusal(tmp_path: Path, code: int, err: str, said: str) -> None:
    """After a socket that timed out, or a kill of sbatch, slurmctld may have the job: that is told from a refusal."""
    with pytest.raises(SubmissionUnclearError, match=said):
        SlurmkitExecutor(tmp_path, run=Sbatch(code, "", err)).submit_script(_script(tmp_path))


@pytest.mark.parametrize(
    ("limit", "line"), [("1:00:00", "01:00:00"), (90, "01:30:00"), ("1-0", "1-00:00:00")]
)
def test_slurms_own_times_are_taken(tmp_path: Path, limit: object, line: str) -> None:
    """``slurm_time`` may be minutes or Slurm's text; submitit's own reckoning gets minutes either way."""
    sbatch = Sbatch()
    executor = auto(tmp_path, sbatch)
    executor.update_parameters(slurm_time=limit)
    executor.map_array(max, [1, 2], [3, 4])
    assert f"#SBATCH --time={line}" in sbatch.script.splitlines()


REFUSED = "sbatch: error: Batch job submission failed: no\n"
AWAY = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n"
UNCLEAR = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"


@pytest.mark.parametrize("size", [1, 2], ids=["one function", "an array"])
@pytest.mark.parametrize(
    ("err", "kind"), [(REFUSED, SlurmRefusedError), (AWAY, SlurmUnavailableError), (UNCLEAR, SubmissionUnclearError)]
)  # fmt: skip
def test_what_is_not_submitted_leaves_nothing(
    tmp_path: Path, size: int, err: str, kind: type[Exception]
) -> None:
    """Pickles and script are gone again where there is no job, and stay where there may be one that reads them."""
    executor = auto(tmp_path / "logs", Sbatch(1, "", err))
    with pytest.raises(kind):
        executor.map_array(max, *[[1, 2][:size]] * 2)
    left = sorted(path.suffix for path in (tmp_path / "logs").iterdir())
    assert left == ([".pkl"] * size + [".sh"] if kind is SubmissionUnclearError else [])


@pytest.mark.parametrize(
    ("code", "kind"), [("exec sleep 100", SubmissionUnclearError), (None, SlurmUnavailableError)], ids=["silent", "missing"]
)  # fmt: skip
def test_an_sbatch_that_never_began_made_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str | None, kind: type[Exception]
) -> None:
    """One that says nothing for minutes may have made a job; one that is not installed has not."""
    monkeypatch.setattr(command, "_SBATCH_TIMEOUT", 0.2)
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + (":/usr/bin:/bin" if code else ""))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    if code:
        (tmp_path / "bin" / "sbatch").write_text(f"#!/bin/sh\n{code}\n")
        (tmp_path / "bin" / "sbatch").chmod(0o755)
    with pytest.raises(kind, match="sbatch"):
        SlurmkitExecutor(tmp_path).submit_script(_script(tmp_path))


def test_what_cannot_be_pickled_leaves_nothing(tmp_path: Path) -> None:
    """Neither a function that cannot be pickled nor one that is too large leaves a file, and nothing is submitted."""
    executor = auto(tmp_path / "logs", Sbatch())
    with pytest.raises(TypeError, match="pickle"):
        executor.map_array(id, [1, threading.Lock()])
    executor._executor.max_pickle_size_gb = 1e-6
    with pytest.raises(SlurmkitError, match="accepted are 1e-06 GB"):
        executor.submit(len, b"x" * 2000)
    assert not list((tmp_path / "logs").iterdir())
    assert not executor._executor._run.script


class Watched:
    """A squeue with one answer: rows, or an error."""

    def __init__(self) -> None:
        self.answer: list[tuple[str, str]] | Exception = []
        self.sacct_is_away = False

    def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        if isinstance(self.answer, Exception):
            raise self.answer
        rest = {"RestartCnt": "0", "Reason": "None", "NodeList": "n1", "Command": ""}
        return [
            {"ArrayJobID": "17", "ArrayTaskID": task, "State": state, **rest} for task, state in self.answer
        ]

    def history(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        if self.sacct_is_away:
            raise SlurmUnavailableError("sacct")
        return []


def test_what_submitit_hears_of_its_jobs() -> None:
    """One question tells all; one that is not answered changes nothing; what Slurm has forgotten has ended."""
    slurm = Watched()
    watcher = executor_module._Watcher(lambda: cast("SlurmClient", slurm))
    names = ("17_0", "17_1")
    for name in names:
        watcher.register_job(name)

    def heard(answer: list[tuple[str, str]] | Exception) -> list[tuple[str, bool]]:
        slurm.answer = answer
        watcher.update()
        return [(watcher.get_state(name, "cache"), watcher.is_done(name, "cache")) for name in names]

    unknown, running = ("UNKNOWN", False), ("RUNNING", False)
    for error in (SlurmUnavailableError("away"), SlurmRefusedError("no")):
        assert heard(error) == [unknown, unknown]
        assert heard([("0", "RUNNING"), ("1", "REQUEUE_HOLD")]) == [running, ("REQUEUE_HOLD", False)]
        assert heard(error) == [running, ("REQUEUE_HOLD", False)]
        watcher.clear()
    slurm.sacct_is_away = True
    heard([("0", "PENDING"), ("1", "RUNNING")])
    assert heard([("0", "RUNNING")]) == [running, running], (
        "squeue's word counts, sacct may know the other's end"
    )
    slurm.sacct_is_away = False
    assert heard([("0", "TIMEOUT")]) == [("TIMEOUT", True), ("FORGOTTEN", True)]
    slurm.answer = AssertionError("asked of jobs that have ended")
    watcher.update()


def test_no_job_id_is_an_error(tmp_path: Path) -> None:
    """Output without an id is shown as it is, and never read as some other number."""
    with pytest.raises(SubmissionUnclearError, match="maintenance until 5"):
        SlurmkitExecutor(tmp_path, run=Sbatch(out="maintenance until 5")).submit_script(_script(tmp_path))


def test_submitits_slurm_names_are_mapped_and_none_is_dropped(tmp_path: Path) -> None:
    """``slurm_*`` parameters reach the script under cluster="slurmkit", generic ones too."""
    sbatch = Sbatch()
    executor = auto(tmp_path, sbatch)
    executor.update_parameters(
        name="two words", timeout_min=90, mem_gb=4, nodes=2, tasks_per_node=2, cpus_per_task=3, gpus_per_node=2, slurm_partition="low", slurm_comment="a b",
        slurm_signal_delay_s=60, slurm_additional_parameters={"nice": 5}, slurm_setup=["module load x"], slurm_srun_args=["--cpu-bind=none"], slurm_exclusive=True,
    )  # fmt: skip
    job = executor.submit(max, 1, 2)
    assert job.job_id == "17"
    for line in (
        '--job-name="two words"', "--time=01:30:00", "--mem=4GB", "--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=3", "--gpus-per-node=2", "--partition=low",
        '--comment="a b"', "--signal=USR2@60", "--nice=5", "--exclusive",
    ):  # fmt: skip
        assert f"#SBATCH {line}" in sbatch.script.splitlines()
    assert "module load x" in sbatch.script
    assert "--cpu-bind=none" in sbatch.script
    assert "export SUBMITIT_EXECUTOR=slurmkit" in sbatch.script


@pytest.mark.parametrize("name", ["slurm_switches", "slurm_nonsense", "nonsense"])
def test_an_unknown_parameter_raises(tmp_path: Path, name: str) -> None:
    """A parameter that means nothing is refused with the names that are accepted."""
    with pytest.raises((NameError, ValueError), match=name.removeprefix("slurm_")):
        auto(tmp_path, Sbatch()).update_parameters(**{name: 1})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("slurm_setup", "module load x", "list of texts"),
        ("slurm_teardown", "rm x", "list of texts"),
        ("slurm_srun_args", "--cpu-bind=none", "list of texts"),
        ("slurm_setup", [1], "list of texts"),
        ("slurm_additional_parameters", ["nice"], "mapping"),
        ("timeout_min", 0, "minutes above 0"),
        ("timeout_min", -5, "minutes above 0"),
        ("slurm_time", "0", "minutes above 0"),
        ("slurm_time", [5], "minutes above 0"),
        ("slurm_time", float("nan"), "minutes above 0"),
    ],
)
def test_a_value_of_another_kind_is_refused(tmp_path: Path, name: str, value: object, said: str) -> None:
    """A text where a list belongs would be taken letter by letter, and a limit of 0 is none: both are named at once."""
    with pytest.raises(ConfigError, match=said):
        auto(tmp_path, Sbatch()).update_parameters(**{name: value})


def test_our_renaming_does_not_mind_other_wrappers(tmp_path: Path) -> None:
    """Somebody else who wraps submitit before us, as a tracer does, switches nothing off."""
    code = (
        "import functools, sys, submitit\n"
        "real = submitit.AutoExecutor._internal_update_parameters\n"
        "submitit.AutoExecutor._internal_update_parameters = functools.wraps(real)(lambda *a, **k: real(*a, **k))\n"
        "e = submitit.AutoExecutor(sys.argv[1], cluster='slurmkit')\n"
        "e.update_parameters(slurm_partition='low'); print(e._executor.parameters['partition'])"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "low\n", done.stderr


def test_without_srun_no_signal_would_arrive(tmp_path: Path) -> None:
    """``use_srun=False`` loses every signal in submitit: it is refused, and says why."""
    with pytest.raises(Exception, match="no signal"):
        auto(tmp_path, Sbatch()).update_parameters(slurm_use_srun=False)


def test_an_array_is_one_submission(tmp_path: Path) -> None:
    """``map_array`` is one sbatch, and each task finds its own pickle."""
    sbatch = Sbatch()
    executor = auto(tmp_path, sbatch)
    executor.update_parameters(slurm_array_parallelism=2)
    jobs = executor.map_array(max, [1, 2, 3], [3, 2, 1])
    assert [job.job_id for job in jobs] == ["17_0", "17_1", "17_2"]
    assert "#SBATCH --array=0-2%2" in sbatch.script
    assert all(job.paths.submitted_pickle.exists() for job in jobs)


def test_the_plugin_is_found_by_submitit() -> None:
    """A fresh interpreter knows cluster="slurmkit" from the entry points alone, and never picks it unasked."""
    code = "from submitit.core import plugins; e = plugins.get_executors(); print('slurmkit' in e, e['slurmkit'].affinity() < e['slurm'].affinity() or e['slurm'].affinity() < 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr
    assert done.stderr == ""
