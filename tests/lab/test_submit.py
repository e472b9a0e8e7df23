"""compile, submit, status, logs and cancel against a real Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import call, slurmkit, status, wait_ended
from polling import wait_until

from slurmkit.launch.ledger import Run, find_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

ONE = ("payload=command", "resources.time=5", "resources.mem=100M")


def command(*words: str) -> str:
    """A command as Hydra's list of quoted words."""
    return "payload.command=[" + ",".join("'" + word.replace("'", "\\'") + "'" for word in words) + "]"


def folders(cwd: Path) -> list[str]:
    """What is in the folder of runs, beside the file that hides it from git."""
    return sorted(path.name for path in (cwd / "runs").iterdir() if path.name != ".gitignore")


def test_a_run_from_submission_to_log(lab: Lab, tmp_path: Path) -> None:
    """Submit prints the run folder; the job runs on the nodes and ranks asked, and its log and states are found by ``last``."""
    done = slurmkit(
        lab,
        tmp_path,
        "submit",
        *ONE,
        command("bash", "-c", "echo rank $SLURM_PROCID of $SLURM_NTASKS, $CUDA_VISIBLE_DEVICES"),
        "resources=two_nodes",
        "resources.gres=gpu:a100:2",
        "topology=one_switch",
    )
    run = Path(done.stdout.strip())
    assert wait_ended(lab, tmp_path) == ["COMPLETED"]
    log = slurmkit(lab, tmp_path, "logs", "last").stdout.splitlines()
    assert sorted(log) == [f"rank {rank} of 4, 0,1" for rank in range(4)]
    assert log == (run / "points" / "0" / "0" / "log").read_text().splitlines()
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["slurm"]["cluster"]
    assert manifest["config"]["resources"]["nodes"] == 2
    assert "torch" in manifest["packages"]
    attempt = json.loads((run / "attempts" / "0001.json").read_text())
    assert attempt["differences"] == [], "Slurm took the job as it was asked"
    for word in (run.name, str(run), attempt["job_id"]):
        assert status(lab, tmp_path, word)[0]["state"] == "COMPLETED"


def test_the_printed_script_submitted_by_hand_is_the_same_job(lab: Lab, tmp_path: Path) -> None:
    """A person pipes ``slurmkit compile`` into a file and sbatch: the same ranks run the same words."""
    script = tmp_path / "my job.sbatch"
    script.write_text(
        slurmkit(
            lab,
            tmp_path,
            "compile",
            *ONE,
            command("bash", "-c", "echo rank $SLURM_PROCID"),
            "resources=two_nodes",
            "resources.gres=gpu:2",
        ).stdout
    )
    job = lab.run(["sbatch", "--parsable", str(script)]).stdout.strip()
    log = tmp_path / f"experiment-{job}.log"
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) == 4, 30, "four ranks to print")
    assert sorted(log.read_text().splitlines()) == [f"rank {rank}" for rank in range(4)]
    wait_until(
        lambda: list((tmp_path / "runs" / f"experiment-{job}" / "exits").glob("*.jsonl")),
        30,
        "the exit record",
    )


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
    runs = {}
    for name in NAMES:
        quoted = "name='" + name.replace("'", "\\'") + "'"
        runs[name] = slurmkit(
            lab, tmp_path, "submit", *ONE, quoted, command("printf", "<%s>", *WORDS)
        ).stdout.strip()
    for name, run in runs.items():
        assert wait_ended(lab, tmp_path, run) == ["COMPLETED"], name
        job = find_run(run, tmp_path / "runs").attempts()[-1].job_id
        assert (
            lab.run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%j"]).stdout.strip(
                "\n"
            )
            == name
        )
        assert slurmkit(lab, tmp_path, "logs", run).stdout == "".join(f"<{word}>" for word in WORDS)
    assert not list(tmp_path.rglob("PWNED"))


def test_a_name_with_a_line_break_is_refused(lab: Lab, tmp_path: Path) -> None:
    """A line break would end the ``#SBATCH`` line: it is refused before anything is written."""
    done = slurmkit(lab, tmp_path, "submit", *ONE, command("true"), 'name="a\n#SBATCH --uid=0"', code=2)
    assert "name" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("override", "accepted", "mend"),
    [
        ("resources.partition=lwo", "low, high", "resources.partition=low"),
        ("resources.gres=gpu:A100:1", "gpu:a100", "resources.gres=gpu:a100:1"),
        ("resources.gres=gpu:a100:5", "1 to 4", "resources.gres=gpu:a100:4"),
        ("resources.nodes=9", "1 to 8", "resources.nodes=8"),
        ("resources.mem=64G", "up to 16000M", "resources.mem=16000M"),
    ],
)
def test_what_can_never_run_stops_with_exit_code_3(
    lab: Lab, tmp_path: Path, override: str, accepted: str, mend: str
) -> None:
    """Preflight against the live cluster: nothing is submitted or written, and the override that is given mends it."""
    before = lab.run(["squeue", "--noheader", "--states=all"]).stdout
    done = slurmkit(lab, tmp_path, "submit", *ONE, command("true"), override, code=3)
    assert "impossible" in done.stderr
    assert accepted in done.stderr
    assert f"mend it with: {mend}\n" in done.stderr
    assert not list(tmp_path.iterdir())
    assert lab.run(["squeue", "--noheader", "--states=all"]).stdout == before
    slurmkit(lab, tmp_path, "compile", *ONE, command("true"), mend)


def test_a_time_over_the_partitions_limit_is_impossible(lab: Lab, tmp_path: Path) -> None:
    """Slurm would hold such a job for ever as PartitionTimeLimit; the limit and the override are named."""
    lab.run(["scontrol", "update", "partitionname=low", "maxtime=60"])
    try:
        done = slurmkit(lab, tmp_path, "compile", *ONE, command("true"), "resources.time=2:00:00", code=3)
    finally:
        lab.run(["scontrol", "update", "partitionname=low", "maxtime=UNLIMITED"])
    assert "mend it with: resources.time=01:00:00" in done.stderr
    assert done.stdout == ""


def test_force_submits_all_the_same(lab: Lab, tmp_path: Path) -> None:
    """``--force`` hands even an impossible plan to Slurm, whose own words are then the error, and no folder is left."""
    done = slurmkit(
        lab, tmp_path, "submit", "--force", *ONE, command("true"), "resources.partition=lwo", code=1
    )
    assert "nvalid partition" in done.stderr
    assert not folders(tmp_path)


def test_more_nodes_than_a_leaf_is_a_warning(lab: Lab, tmp_path: Path) -> None:
    """Five nodes under one switch of four: the script is printed, and stderr says how long the job waits."""
    done = slurmkit(
        lab,
        tmp_path,
        "compile",
        *ONE,
        command("true"),
        "topology=one_switch",
        "topology.wait='1:00'",
        "resources.nodes=5",
    )
    assert "not now: topology.switches" in done.stderr
    assert "waits 00:01:00" in done.stderr
    assert "#SBATCH --switches=1@1:00" in done.stdout


def test_cancel_ends_a_run(lab: Lab, tmp_path: Path) -> None:
    """``slurmkit cancel`` ends a running job and a second one says that nothing is left."""
    slurmkit(lab, tmp_path, "submit", *ONE, command("sleep", "300"))
    wait_until(lambda: status(lab, tmp_path)[0]["state"] == "RUNNING", 30, "the job to run")
    slurmkit(lab, tmp_path, "cancel", "last")
    assert wait_ended(lab, tmp_path) == ["CANCELLED"]
    assert "nothing to cancel" in slurmkit(lab, tmp_path, "cancel", "last").stderr


def test_wait_tells_failure_from_success(lab: Lab, tmp_path: Path) -> None:
    """``submit --wait`` ends with 0 or 1 as the job did, and a failed rank fails the whole job at once."""
    slurmkit(lab, tmp_path, "submit", "--wait", *ONE, command("true"))
    failing = command("bash", "-c", "[ $SLURM_PROCID = 1 ] && exit 3; sleep 100")
    slurmkit(lab, tmp_path, "submit", "--wait", *ONE, failing, "resources.ntasks_per_node=2", code=1)
    assert status(lab, tmp_path)[0]["state"] == "FAILED"


@pytest.fixture
def forgetful(start_lab: Callable[..., Lab]) -> Lab:
    """A Slurm without accounting that forgets a job two seconds after its end, as every one does after minutes."""
    return start_lab(f"forget{os.getpid()}", nodes=1, leaf=1, extra="MinJobAge=2\n")


def test_how_a_run_ended_is_known_after_slurm_forgot_it(forgetful: Lab, tmp_path: Path) -> None:
    """Completed, failed, cancelled by us and cancelled by scancel: none is taken for another once Slurm has dropped it."""
    deaf = command("bash", "-c", "trap 'exit 0' TERM; echo up; while :; do read -rt 0.1 <> <(:); done")
    commands = {
        "done": command("true"),
        "failed": command("bash", "-c", "exit 3"),
        "ours": deaf,
        "theirs": deaf,
    }
    runs = {
        name: slurmkit(
            forgetful, tmp_path, "submit", *ONE, words, f"name={name}", "resources.cpus_per_task=1"
        ).stdout.strip()
        for name, words in commands.items()
    }
    for name in ("ours", "theirs"):
        log = Path(runs[name]) / "points" / "0" / "0" / "log"
        wait_until(lambda log=log: log.exists() and "up" in log.read_text(), 30, f"{name} to run")
    slurmkit(forgetful, tmp_path, "cancel", runs["ours"])
    forgetful.run(["scancel", Run(runs["theirs"]).attempts()[-1].job_id])
    wait_until(
        lambda: not forgetful.run(["squeue", "--noheader", "--states=all"]).stdout,
        60,
        "Slurm to forget all of it",
    )
    ended = {name: status(forgetful, tmp_path, run)[0] for name, run in runs.items()}
    assert {name: point["state"] for name, point in ended.items()} == {
        "done": "COMPLETED",
        "failed": "FAILED",
        "ours": "CANCELLED",
        "theirs": "STOPPED",
    }
    assert ended["failed"]["reason"] == "exit code 3"


def test_an_sbatch_that_lost_the_answer_loses_no_job(lab: Lab, tmp_path: Path) -> None:
    """Sbatch submits, then its socket times out: the job is found by its script, and the run folder stays."""
    (tmp_path / "bin").mkdir()
    real = call(lab, tmp_path, "bash", "-c", "command -v sbatch").stdout.strip()
    fake = tmp_path / "bin" / "sbatch"
    fake.write_text(
        f"#!/bin/sh\n{real} \"$@\" >/dev/null\necho 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["submit", *ONE, command("true")]
    done = subprocess.run(
        [Path(sys.executable).parent / "slurmkit", *words],
        cwd=tmp_path,
        env={**lab.env, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert wait_ended(lab, tmp_path, done.stdout.strip()) == ["COMPLETED"]


def test_a_run_of_another_cluster_is_left_alone(
    lab: Lab, start_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """A job id means something only on its cluster: status and cancel name the other one, and end nobody's job."""
    slurmkit(lab, tmp_path, "submit", "--wait", *ONE, command("true"))
    other = start_lab(nodes=1, leaf=1)
    for verb in ("status", "cancel"):
        done = slurmkit(other, tmp_path, verb, "last", code=2)
        assert repr(other.name) in done.stderr
        assert "SLURM_CONF" in done.stderr


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
    slurmkit(lab, tmp_path, "submit", "--wait", *ONE, command("bash", "-c", "env"), **hostile)
    lines = slurmkit(lab, tmp_path, "logs", "last").stdout.splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert seen["LC_ALL"] == "C.UTF-8"
    assert seen["SLURM_JOB_PARTITION"] == "low"
    assert "map_cpu" not in seen.get("SLURM_CPU_BIND", "")
    assert "SLURM_MEM_PER_CPU" not in seen
    assert seen["SLURM_JOB_ID"] == find_run("last", tmp_path / "runs").attempts()[-1].job_id


def test_a_script_submitted_from_inside_a_job_runs(lab: Lab, tmp_path: Path) -> None:
    """By hand from a job that has memory per CPU: its variables do not contradict what the script asks."""
    script = tmp_path / "job.sbatch"
    script.write_text(slurmkit(lab, tmp_path, "compile", *ONE, command("echo", "ran")).stdout)
    env = {"SLURM_MEM_PER_CPU": "50", "SLURM_CPU_BIND": "quiet,mask_cpu:0x1", "SLURM_GPUS_PER_NODE": "9"}
    job = call(lab, tmp_path, "sbatch", "--parsable", str(script), **env).stdout.strip()
    log = tmp_path / f"experiment-{job}.log"
    wait_until(lambda: log.exists() and log.read_text(), 30, "the job to print")
    assert log.read_text() == "ran\n"


def test_status_with_accounting(start_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """Where a site has accounting, sacct knows the end of a job that the queue has dropped."""
    lab = start_lab(nodes=1, leaf=1, accounting=True)
    slurmkit(lab, tmp_path, "submit", *ONE, command("true"))
    job = find_run("last", tmp_path / "runs").attempts()[-1].job_id
    wait_until(
        lambda: "COMPLETED" in lab.run(["sacct", "-XnPj", job, "-o", "State"]).stdout,
        30,
        "sacct to know the job",
    )
    # A squeue that has forgotten everything, in front of the real one.
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "squeue"
    fake.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n")
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    python = Path(call(lab, tmp_path, "which", "slurmkit").stdout.strip())
    done = subprocess.run(
        [python, "status", "last", "--json"],
        cwd=tmp_path,
        env={**lab.env, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    (point,) = json.loads(done.stdout)["points"]
    assert (point["state"], point["source"]) == ("COMPLETED", "sacct")


def test_a_dead_slurmctld_is_exit_code_4(start_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """A controller that is down is one line and a hint, for every verb, and nothing is half-written."""
    lab = start_lab(nodes=1, leaf=1)
    slurmkit(lab, tmp_path, "submit", "--wait", *ONE, command("true"))
    runs = folders(tmp_path)
    pid = int((lab.root / "run" / "slurmctld.pid").read_text())
    os.kill(pid, 9)
    wait_until(
        lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2],
        10,
        "slurmctld to be gone",
    )
    for words in (
        ["compile", *ONE, command("true")],
        ["submit", *ONE, command("true")],
        ["status", "last"],
        ["cancel", "last"],
    ):
        done = slurmkit(lab, tmp_path, *words, code=4)
        assert "slurmctld cannot be reached" in done.stderr
        assert "hint:" in done.stderr
        assert done.stdout == ""
    assert folders(tmp_path) == runs
    assert (
        "#SBATCH --job-name=experiment"
        in slurmkit(lab, tmp_path, "submit", "--dry-run", *ONE, command("true")).stdout
    ), "--dry-run asks Slurm nothing"


def test_a_slurm_conf_that_is_not_there_is_exit_code_4(lab: Lab, tmp_path: Path) -> None:
    """A wrong SLURM_CONF is named with its path."""
    done = slurmkit(lab, tmp_path, "compile", *ONE, command("true"), code=4, SLURM_CONF="/nowhere/slurm.conf")
    assert "/nowhere/slurm.conf" in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("runs_dir", ["/nowhere/runs", "/proc/runs"])
def test_a_shared_folder_that_is_not_there_is_exit_code_2(lab: Lab, tmp_path: Path, runs_dir: str) -> None:
    """A missing shared folder and an unwritable run folder are named, and no job is submitted."""
    before = lab.run(["squeue", "--noheader", "--states=all"]).stdout
    done = slurmkit(lab, tmp_path, "submit", *ONE, command("true"), f"runs_dir={runs_dir}", code=2)
    assert runs_dir in done.stderr
    assert lab.run(["squeue", "--noheader", "--states=all"]).stdout == before


def test_ctrl_c_leaves_a_job_with_its_record_or_neither(lab: Lab, tmp_path: Path) -> None:
    """Ctrl-C at any moment of a submission: a job that Slurm has is in the run folder, and no folder is without one."""
    for delay in (0.05, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9):
        with subprocess.Popen(
            [Path(sys.executable).parent / "slurmkit", "submit", *ONE, command("true"), f"name=c{int(delay * 100)}"],
            cwd=tmp_path, env=lab.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        ) as process:  # fmt: skip
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            assert process.wait(30) in {0, 130, -signal.SIGINT}, process.stderr
    runs = [Run(path.parent) for path in (tmp_path / "runs").glob("*/run.json")]
    jobs = {attempt.job_id for run in runs for attempt in run.attempts()}
    assert len(jobs) == len(runs), "every run folder that is left has its job"
    names = lab.run(["squeue", "--noheader", "--states=all", "--format=%A %j"]).stdout.splitlines()
    assert jobs == {
        line.split()[0]
        for line in names
        if line.split()[1].startswith("c") and line.split()[1][1:].isdecimal()
    }
    assert len(folders(tmp_path)) == len(runs), "nothing half-written is left"


def test_a_full_disk_leaves_no_run(lab: Lab, tmp_path: Path) -> None:
    """A disk that fills up while the run folder is written: one line, nothing left of the run, no job."""
    before = lab.run(["squeue", "--noheader", "--states=all"]).stdout
    (tmp_path / "big.py").write_bytes(b"#" * 200_000)
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); from slurmkit.cli.main import main; main(sys.argv[1:])"
    done = call(lab, tmp_path, "python", "-c", limit, "submit", *ONE, command("true"))
    assert done.returncode == 1
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert not folders(tmp_path)
    assert lab.run(["squeue", "--noheader", "--states=all"]).stdout == before


def test_a_preempted_program_comes_back(lab: Lab, tmp_path: Path) -> None:
    """A program that knows nothing of signals dies of the SIGTERM of its grace: the job is requeued all the same."""
    words = command(
        "bash", "-c", 'echo life 0$SLURM_RESTART_COUNT; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
    )
    slurmkit(lab, tmp_path, "submit", *ONE, words)
    log = find_run("last", tmp_path / "runs").point_dir(0) / "log"
    wait_until(lambda: log.exists() and "life 0" in log.read_text(), 30, "the first life")
    lab.run(["sbatch", "--partition=high", "--nodes=8", "--exclusive", "--output=/dev/null", "--wrap=true"])
    assert wait_ended(lab, tmp_path) == ["COMPLETED"]
    assert "life 01\n" in log.read_text()
    assert status(lab, tmp_path)[0]["restarts"] == 1


def test_a_cancelled_program_does_not(lab: Lab, tmp_path: Path) -> None:
    """What brings a preempted program back never brings a cancelled one back."""
    slurmkit(lab, tmp_path, "submit", *ONE, command("sleep", "300"))
    wait_until(lambda: status(lab, tmp_path)[0]["state"] == "RUNNING", 30, "the job to run")
    job = find_run("last", tmp_path / "runs").attempts()[-1].job_id
    lab.run(["scancel", job])
    wait_until(
        lambda: "JobState=CANCELLED" in lab.run(["scontrol", "show", "job", job]).stdout,
        30,
        "the job to be CANCELLED",
    )
    wait_until(lambda: list((tmp_path / "runs").glob("*/exits/*.jsonl")), 30, "its batch script to end")
    assert "Restarts=0" in lab.run(["scontrol", "show", "job", job]).stdout


def test_a_job_without_a_record_is_found_again(lab: Lab, tmp_path: Path) -> None:
    """Kill -9 of a submission between sbatch and the record: status and cancel find the job by its script."""
    slurmkit(lab, tmp_path, "submit", *ONE, command("sleep", "300"))
    record = next((tmp_path / "runs").glob("*/attempts/0001.json"))
    record.unlink()
    assert status(lab, tmp_path)[0]["state"] in {"PENDING", "RUNNING", "CONFIGURING"}
    assert record.exists()
    slurmkit(lab, tmp_path, "cancel", "last")
    assert wait_ended(lab, tmp_path) == ["CANCELLED"]
