"""A run from submission to its log, on a real Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import (
    ONE,
    as_in,
    call,
    command,
    fake,
    folders,
    job_of,
    log_of,
    slurmkit,
    status,
    submit,
    wait_ended,
    wait_idle,
)
from polling import wait_until

from slurmkit import load_experiment
from slurmkit import submit as submit_experiment

if TYPE_CHECKING:
    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab


def test_a_run_from_submission_to_log(lab: Lab, tmp_path: Path) -> None:
    """Submit prints the run folder; the job runs on the nodes and ranks asked, and its log and states are found by ``last``."""
    words = (
        *ONE,
        command("bash", "-c", "echo rank $SLURM_PROCID of $SLURM_NTASKS, $CUDA_VISIBLE_DEVICES"),
        "resources=two_nodes",
        "resources.gres=gpu:a100:2",
        "topology=one_switch",
    )
    done = call(lab, tmp_path, "slurmkit", "submit", *words)  # the program itself, as it was installed
    assert done.returncode == 0, done.stderr
    run = Path(done.stdout.strip())
    assert wait_ended(lab, tmp_path) == ["COMPLETED"]
    log = call(lab, tmp_path, "slurmkit", "logs", "last").stdout.splitlines()
    assert sorted(log) == [f"rank {rank} of 4, 0,1" for rank in range(4)]
    assert log == log_of(run).read_text().splitlines()
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["slurm"]["cluster"]
    assert manifest["config"]["resources"]["nodes"] == 2
    assert "torch" in manifest["packages"]
    attempt = json.loads((run / "attempts" / "0001.json").read_text())
    assert attempt["differences"] == [], "Slurm took the job as it was asked"
    for word in (run.name, str(run), attempt["job_id"]):
        assert status(lab, tmp_path, word)[0]["state"] == "COMPLETED"


NAMES = [
    "two words",
    "it's",
    'say "hi" # now',
    "`touch PWNED`",
    "$(touch PWNED)",
    "back\\slash",
    "[1-3],x",
    "a;b&&c|d",
    "ünï→",
    "-dash",
    "100%j",
]
WORDS = ["$(touch PWNED)", "`id`", "a,b", "[1,2]", "x y", "{a: 1}", "back\\slash"]


def test_odd_names_and_words_arrive_as_written(lab: Lab, tmp_path: Path) -> None:
    """Quotes, blanks, backticks and percent signs in a job's name and words reach Slurm unchanged, and no shell runs them."""
    with as_in(lab, tmp_path):  # composed once: that Hydra reads the names is promised elsewhere
        printing = load_experiment([*ONE, command("printf", "<%s>", *WORDS)])
        runs = {name: submit_experiment(replace(printing, name=name)) for name in NAMES}
    wait_idle(lab)
    for name, run in runs.items():
        assert status(lab, tmp_path, run.path)[0]["state"] == "COMPLETED", name
        job = run.attempts()[-1].job_id
        listed = lab.run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%j"]).stdout
        assert listed.strip("\n") == name
        assert run.log(0).read_text() == "".join(f"<{word}>" for word in WORDS)
    assert not list(tmp_path.rglob("PWNED"))


def test_a_name_with_a_line_break_is_refused(lab: Lab, tmp_path: Path) -> None:
    """A line break would end the ``#SBATCH`` line: it is refused before anything is written."""
    done = slurmkit(lab, tmp_path, "submit", *ONE, command("true"), 'name="a\n#SBATCH --uid=0"', code=2)
    assert "name" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_job_keeps_the_persons_language(lab: Lab, tmp_path: Path) -> None:
    """What we set to read Slurm's words does not reach the job; what a surrounding job set does not either."""
    hostile = {
        "LC_ALL": "C.UTF-8",
        "SBATCH_PARTITION": "high",
        "SBATCH_TIMELIMIT": "1",
        "SLURM_MEM_PER_CPU": "50",
        "SLURM_CPU_BIND": "verbose,map_cpu:0",
        "SLURM_JOB_ID": "1",
        "SQUEUE_FORMAT": "%i",
    }
    run = submit(lab, tmp_path, *ONE, command("bash", "-c", "env"), **hostile)
    wait_idle(lab)
    lines = log_of(run).read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert seen["LC_ALL"] == "C.UTF-8"
    assert seen["SLURM_JOB_PARTITION"] == "low"
    assert "map_cpu" not in seen.get("SLURM_CPU_BIND", "")
    assert "SLURM_MEM_PER_CPU" not in seen
    assert seen["SLURM_JOB_ID"] == job_of(tmp_path)


def test_an_sbatch_that_lost_the_answer_loses_no_job(lab: Lab, tmp_path: Path) -> None:
    """Sbatch submits, then its socket times out: the job is found by its script, and the run folder stays."""
    said = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    path = fake(tmp_path, "sbatch", f"{shutil.which('sbatch')} \"$@\" >/dev/null; echo '{said}' >&2; exit 1")
    run = submit(lab, tmp_path, *ONE, command("true"), PATH=path)
    assert wait_ended(lab, tmp_path, run) == ["COMPLETED"]


def test_an_unclear_sbatch_keeps_the_run_folder(lab: Lab, tmp_path: Path) -> None:
    """No job is found after sbatch timed out, but one may come: the folder stays, is named, and is looked at again."""
    said = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    path = fake(tmp_path, "sbatch", f"echo '{said}' >&2; exit 1")
    err = slurmkit(lab, tmp_path, "submit", *ONE, command("true"), code=1, PATH=path).stderr
    (run,) = folders(tmp_path)
    assert "Socket timed out" in err
    assert f"{tmp_path}/runs/{run} is kept" in err
    assert f"slurmkit status {run}" in err
    assert "no submission is recorded" in slurmkit(lab, tmp_path, "status", run).stderr
    job = lab.run(
        ["sbatch", "--parsable", f"{tmp_path}/runs/{run}/job.sbatch"]
    ).stdout.strip()  # it came late
    assert [point["job"] for point in status(lab, tmp_path, run)] == [job]


@pytest.mark.parametrize("verb", ["status", "cancel"])
def test_a_lost_record_is_found_by_the_jobs_id(lab: Lab, tmp_path: Path, verb: str) -> None:
    """A submission that was killed before its record: the job's id alone, as squeue shows it, finds the run."""
    run = submit(lab, tmp_path, *ONE, command("sleep", "300"))
    job = job_of(tmp_path)
    shutil.rmtree(run / "attempts")
    done = slurmkit(lab, tmp_path, verb, job)
    assert done.stderr.startswith(f"{run.name}: ")
    assert (f"cancelled job {job}" in done.stderr) is (verb == "cancel")
    assert [point["job"] for point in status(lab, tmp_path)] == [job]


def test_what_is_said_to_be_typed_finds_the_run(lab: Lab, tmp_path: Path) -> None:
    """Whatever folder a run lies in, and wherever verbs look for it, the words that submit prints for status are the words that show it."""
    for words, env in (((), {}), (("runs_dir='my runs'",), {}), ((), {"SLURMKIT_RUNS_DIR": "other"})):
        err = slurmkit(lab, tmp_path, "submit", *ONE, command("true"), *words, **env).stderr
        _, verb, word = shlex.split(err.partition("see: ")[2])
        assert slurmkit(lab, tmp_path, verb, word, **env).stdout
    assert [len(folders(tmp_path, name)) for name in ("runs", "my runs", "other")] == [1, 1, 1]


#: Where a submission is when it is hit: which program it runs then, with which words, and before or after that.
MOMENTS = {
    "reading-the-cluster": ("scontrol", "*config*", "before"),
    "copying": ("git", "*ls-files*", "before"),
    "before-sbatch": ("sbatch", "*", "before"),
    "after-sbatch": ("sbatch", "*", "after"),
    "reading-back": ("scontrol", "*job*", "after"),
}
#: Ctrl-C goes to the whole foreground group.
CTRL_C = "kill -INT 0"
KILL = "kill -KILL $PPID"


def hit_at(lab: Lab, folder: Path, moment: str, blow: str) -> int:
    """Submit in a folder of git's, and hit the submission at one moment. Returns its exit code."""
    program, words, when = MOMENTS[moment]
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    before, after = (blow, "") if when == "before" else ("", blow)
    path = fake(
        folder.parent / f"{folder.name}.bin",
        program,
        f'real() {{ {shutil.which(program)} "$@"; }}\n'
        f'case "$*" in {words}) {before}\nreal "$@"; code=$?\n{after}\nexit $code;; *) real "$@";; esac',
    )
    with subprocess.Popen(
        [Path(sys.executable).parent / "slurmkit", "submit", *ONE, command("sleep", "300"), f"name={moment}"],
        cwd=folder,
        env={**lab.env, "PATH": path},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as hit:
        code = hit.wait(120)
    # An sbatch that outlives its submission goes on to submit.
    wait_until(lambda: not session(hit.pid), 60, f"the session of {moment} to end")
    return code


def session(leader: int) -> list[str]:
    """What still runs of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, _, _, sid, *_ = stat.read_text().rpartition(")")[2].split()
            if int(sid) == leader and state != "Z":
                found.append(stat.parent.name)
    return found


@pytest.mark.parametrize("blow", [CTRL_C, KILL], ids=["ctrl-c", "kill"])
def test_a_submission_that_is_hit_leaves_a_job_with_its_run_or_neither(
    lab: Lab, tmp_path: Path, blow: str
) -> None:
    """Hit at any moment, every job that Slurm has belongs to a run that ``cancel`` ends; after Ctrl-C no other folder is left."""
    with ThreadPoolExecutor() as pool:  # side by side: they wait for the import of Hydra
        codes = dict(
            zip(
                MOMENTS, pool.map(lambda name: hit_at(lab, tmp_path / name, name, blow), MOMENTS), strict=True
            )
        )
    if blow == CTRL_C:
        assert codes["copying"] == 130
    assert set(codes.values()) <= {0, 130, -9}
    jobs = [line.split() for line in lab.run(["squeue", "--noheader", "--format=%A %j"]).stdout.splitlines()]
    assert {name for _, name in jobs} >= {"after-sbatch", "reading-back"}
    for job, name in jobs:
        cwd = tmp_path / name
        assert f"cancelled job {job}" in slurmkit(lab, cwd, "cancel", "last").stderr
        assert [point["job"] for point in status(lab, cwd)] == [job]
    if blow == CTRL_C:
        for name in set(MOMENTS) - {name for _, name in jobs}:
            assert not (tmp_path / name / "runs").exists() or not folders(tmp_path / name), name


def test_a_submission_goes_on_where_nobody_listens(lab: Lab, tmp_path: Path) -> None:
    """``slurmkit submit | true``, with stderr too: what cannot be said takes no run from under its job."""
    reader, writer = os.pipe()
    os.close(reader)
    words = [Path(sys.executable).parent / "slurmkit", "submit", "--wait", *ONE, command("false")]
    done = subprocess.run(words, cwd=tmp_path, env=lab.env, stdout=writer, stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 1, "it waited, and the job failed"
    assert status(lab, tmp_path)[0]["state"] == "FAILED"


def test_nothing_takes_the_folder_from_under_a_job(lab: Lab, tmp_path: Path) -> None:
    """Whatever goes wrong once Slurm has the job, such as in a caller's own ``say``: its run is there, with its record."""

    def fail(text: str) -> None:
        if text.startswith("submitted"):
            raise OSError(text)

    with as_in(lab, tmp_path), pytest.raises(OSError, match="submitted"):
        submit_experiment(load_experiment([*ONE, command("true")]), say=fail)
    assert wait_ended(lab, tmp_path) == ["COMPLETED"]


def test_two_submissions_at_once(lab: Lab, tmp_path: Path) -> None:
    """Two people type the same line in the same folder at the same moment: two runs, two jobs."""
    words = [Path(sys.executable).parent / "slurmkit", "submit", *ONE, command("true")]
    both = [
        subprocess.Popen(
            words, cwd=tmp_path, env=lab.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    runs = {process.communicate(timeout=60)[0].strip() for process in both}
    assert len(runs) == len({job_of(tmp_path, run) for run in runs}) == len(folders(tmp_path)) == 2
    assert os.fspath(tmp_path) in min(runs)
