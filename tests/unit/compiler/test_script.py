"""The text of the batch script, and its options."""

from __future__ import annotations

import select
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurmkit.compiler.directives import job_directives, quote, render
from slurmkit.compiler.plan import Place, compile_job, folder_name
from slurmkit.config.schema import Env, Experiment, Payload, Requeue, Resources, Topology
from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GPT = Experiment(
    name="gpt_ddp",
    resources=Resources(
        nodes=2, ntasks_per_node=2, cpus_per_task=2, mem="4G", time="30:00", gres="gpu:2", partition="low"
    ),
    topology=Topology(switches=1, wait="5:00"),
    payload=Payload("trainer", ["-m", "trainer", "experiment=gpt_ddp", "optim.lr=1e-3"]),
    env=Env(
        python="/opt/env/bin/python",
        setup=["module load cuda"],
        vars={"OMP_NUM_THREADS": "2", "NOTE": "a,b 'c' $(d)"},
    ),
)
PLACE = Place(
    cwd="/home/ada/project",
    run_dir="/shared/runs/gpt_ddp-20260101-120000-abcd",
    code_dir="/shared/runs/gpt_ddp-20260101-120000-abcd/code",
)


def bash(script: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script], input=stdin, capture_output=True, text=True, check=False, timeout=30
    )


@pytest.mark.parametrize(
    ("name", "experiment", "place", "points"),
    [
        ("run.sbatch", GPT, PLACE, None),
        ("by_hand.sbatch", GPT, Place(cwd="/home/ada/project"), None),
        ("sweep_by_hand.sbatch", GPT, Place(cwd="/home/ada/project"), [["optim.lr=1e-3"], ["optim.lr=3e-3"]]),
        (
            "sweep.sbatch",
            replace(GPT, resources=replace(GPT.resources, array_parallelism=8)),
            PLACE,
            [[]] * 100,
        ),
        (
            "function.sbatch",
            replace(GPT, payload=Payload("function", ["/home/ada/app.py", "x=1"])),
            PLACE,
            [["x=1"], ["x=2"]],
        ),
        (
            "command.sbatch",
            replace(
                GPT,
                payload=Payload("command", ["./train", "--lr", "1e-3"]),
                requeue=Requeue(enabled=False, signal=None),
            ),
            PLACE,
            None,
        ),
    ],
)
def test_the_script_is_the_one_we_know(
    golden: Callable[[str, str], None],
    name: str,
    experiment: Experiment,
    place: Place,
    points: list[list[str]] | None,
) -> None:
    """A change of the script is seen and meant: each form stands whole in a golden file, and bash reads it."""
    script = compile_job(experiment, None, place, points=points).script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    golden(f"compiler/{name}", script)


HOSTILE = [
    "a b",
    "it's",
    'say "hi"',
    "`touch PWNED`",
    "$(touch PWNED)",
    "a,b",
    "[1,2]",
    "x\ny",
    "back\\slash",
    "*",
    "#no",
    "{a: 1}",
    "!",
    "ü→",
    "-rf",
    "%j",
]


@pytest.mark.parametrize("word", HOSTILE)
def test_words_reach_the_payload_as_written(word: str, tmp_path: Path) -> None:
    """An override with backticks, ``$()``, quotes, commas, brackets or a line break is never read by a shell."""
    experiment = Experiment(payload=Payload("command", ["printf", "%s", word]), env=Env(vars={"WORD": word}))
    script = compile_job(experiment, None, Place(cwd=str(tmp_path), run_dir=str(tmp_path))).script
    fake = 'srun() { shift; "$@"; printf "%s" "$WORD"; }\n'
    done = subprocess.run(
        ["bash", "-c", fake + script], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=30
    )
    assert done.stdout == word * 2
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("plain-1.0_a/b:c@d,e=f", "plain-1.0_a/b:c@d,e=f"),
        ("a b", '"a b"'),
        ("it's", '"it\'s"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ('\\"', r'"\\\""'),
        ("#no", '"#no"'),
        ("$(id) `id`", '"$(id) `id`"'),
        ("", '""'),
        ("ü→", '"ü→"'),
    ],
)
def test_values_are_quoted_as_sbatch_reads_them(word: str, written: str) -> None:
    """Inside double quotes a quote and a backslash alone are escaped: nothing else is special to sbatch there."""
    assert quote(word) == written


@pytest.mark.parametrize("word", [word for word in HOSTILE if "\n" not in word])
def test_names_stay_on_their_line(word: str) -> None:
    """A job's name can neither end its ``#SBATCH`` line nor leave the comment at the top."""
    head = compile_job(Experiment(name=word), None, PLACE).script.partition("# --- Where")[0]
    assert bash(head).stderr == "", "the head of the script is nothing but comments"
    names = [line for line in head.splitlines() if line.startswith("#SBATCH --job-name=")]
    assert len(names) == 1
    assert shlex.split(names[0], comments=False)[1:] == [f"--job-name={word}"], (
        "shlex reads quotes as sbatch does"
    )


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("-x", "x"),
        ("--", "run"),
        ("..", "run"),
        (".-a-b", "a-b"),
        ("a b/c", "a_b_c"),
        ("ü→", "ü_"),
        ("a" * 99, "a" * 80),
    ],
)
def test_a_folders_name_is_no_option_and_not_hidden(name: str, folder: str) -> None:
    """``rm RUN`` and ``ls`` take a run folder as a file's name, whatever the job is called; Slurm gets the name as written."""
    assert folder_name(name) == folder
    assert job_directives(Experiment(name=name), "log", None)["job-name"] == name


#: Names that the script once had for itself, and that a module or a site may export.
NAMES = ("PYTHON", "argv", "point", "signalled", "terminated", "srun", "status")


@pytest.mark.parametrize("code", [0, 3])
def test_variables_of_the_payload_stay_as_they_are(code: int, tmp_path: Path) -> None:
    """The script keeps its own words under names that nobody else has: a site's PYTHON, or ``env.vars.srun``, arrives."""
    payload = Payload("command", ["bash", "-c", f"echo ${' $'.join(NAMES)}; exit {code}"])
    exports = [f"export {name}=setup-{name}" for name in NAMES[:3]]
    env = Env(
        vars={name: f"vars-{name}" for name in NAMES[3:]},
        setup=exports,
        teardown=[f"echo ${' $'.join(NAMES)}"],
    )
    experiment = Experiment(payload=payload, env=env, requeue=Requeue(enabled=False))
    script = compile_job(experiment, None, Place(cwd=str(tmp_path), run_dir=str(tmp_path))).script
    done = bash('srun() { shift; "$@"; }\n' + script)
    said = " ".join([*(f"setup-{name}" for name in NAMES[:3]), *(f"vars-{name}" for name in NAMES[3:])])
    assert (done.stdout, done.returncode) == (f"{said}\n{said}\n", code)


def test_the_interpreter_is_the_places_unless_one_is_asked() -> None:
    """Compiling is a function of its arguments: what this interpreter is, the place says."""
    place = replace(PLACE, python="/opt/here/python")
    payload = Payload("trainer", ["-m", "trainer"])
    assert "=/opt/here/python\n" in compile_job(Experiment(payload=payload), None, place).script
    asked = Experiment(payload=payload, env=Env(python="/opt/there/python"))
    assert "=/opt/there/python\n" in compile_job(asked, None, place).script
    assert PLACE.python == sys.executable


def test_folders_with_blanks_are_quoted() -> None:
    """A run folder with a blank, a quote or a percent sign is one folder for bash and for Slurm."""
    place = Place(cwd="/shared/a b", run_dir="/shared/a b/it's 100%", code_dir="/shared/a b/it's 100%/code")
    script = compile_job(GPT, None, place).script
    assert '#SBATCH --output="/shared/a b/it\'s 100%%/points/0/0/log"' in script, "Slurm reads % as a pattern"
    assert f"export SLURMKIT_RUN_DIR={shlex.quote(place.run_dir or '')}\n" in script


def test_extra_options_follow_ours() -> None:
    """``resources.extra`` reaches sbatch: true is a bare flag, false and null say nothing."""
    resources = Resources(
        extra={
            "nice": 100,
            "reservation": "course",
            "contiguous": True,
            "oversubscribe": False,
            "licenses": None,
        }
    )
    lines = render(job_directives(Experiment(resources=resources), "log", None))
    assert lines[-3:] == ["--nice=100", "--reservation=course", "--contiguous"]


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        (True, ["--exclusive"]), ("true", ["--exclusive"]), ("user", ["--exclusive=user"]),
        (False, []), ("False", []), (None, []),
    ],
)  # fmt: skip
def test_exclusive_is_a_flag_or_a_word(value: object, lines: list[str]) -> None:
    """``true`` is a bare flag in whatever way it was written, ``user`` is a word, and ``false`` says nothing."""
    found = render(job_directives(Experiment(resources=Resources(exclusive=value)), "log", None))
    assert [line for line in found if "exclusive" in line] == lines


def test_a_signal_during_the_wait_does_not_end_the_job(tmp_path: Path) -> None:
    """SIGTERM and SIGUSR1 to the batch shell: it waits on, the payload's own exit code is the job's, USR1 is forwarded."""
    payload = (
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (print('forwarded', flush=True), sys.exit(7)))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    experiment = Experiment(payload=Payload("command", [sys.executable, "-c", payload]))
    script = compile_job(experiment, None, Place(cwd=str(tmp_path), run_dir=str(tmp_path))).script
    (tmp_path / "job.sh").write_text('srun() { shift; exec "$@"; }\n' + script)
    with subprocess.Popen(["bash", tmp_path / "job.sh"], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        job.send_signal(signal.SIGTERM)
        # bash may drop one of two signals that reach it at the same instant, so USR1 is sent until it is answered.
        deadline = time.monotonic() + 30
        while not select.select([job.stdout], [], [], 0.2)[0]:
            assert time.monotonic() < deadline, "USR1 never reached the payload"
            job.send_signal(signal.SIGUSR1)
        assert job.stdout.readline() == "forwarded\n"
    assert job.returncode == 7
    assert '"exit": 7' in (tmp_path / "lives" / "node.jsonl").read_text()


@pytest.mark.parametrize("folder", ["/a\nb", "/back\\slash"])
def test_a_folder_that_no_output_line_takes_is_refused(folder: str) -> None:
    """Slurm would accept the job and lose it without a log: the folder is refused first."""
    with pytest.raises(ConfigError, match="folder"):
        Place(cwd=folder)


def test_only_the_trainer_is_signalled_ahead_of_the_limit() -> None:
    """A program that does not know SIGUSR1 would be ended by it minutes before its limit."""
    trainer, command = (Experiment(payload=Payload(kind, ["a"])) for kind in ("trainer", "command"))
    assert job_directives(trainer, "log", None)["signal"] == "USR1@120"
    assert "signal" not in job_directives(command, "log", None)
    asked = replace(command, requeue=Requeue(signal="USR2"))
    assert job_directives(asked, "log", None)["signal"] == "USR2@120"
