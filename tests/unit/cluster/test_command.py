"""How Slurm is asked, and what is made of an answer that is none."""

from __future__ import annotations

import contextlib
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurmkit.cluster.command import CommandClient, clean_environ, run_slurm, unavailable
from slurmkit.cluster.model import ClusterSnapshot
from slurmkit.errors import SlurmkitError, SlurmRefusedError, SlurmUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Answer = tuple[int, str, str]

PING = {"scontrol ping": (0, "Slurmctld(primary) at head is UP\n", "")}
DENIED = (1, "", "slurm_load_node error: Access/permission denied\n")
HANGS = (1, "", "slurm_load_jobs error: Socket timed out on send/recv operation\n")
FORGOTTEN = (1, "", "slurm_load_jobs error: Invalid job id specified\n")
KILLED = (-9, "", "")
# As Slurm 22.05 answers, shortened.
CONFIG, SHOW_CONFIG = "scontrol --all show config", (0, "ClusterName = lab\nSLURM_VERSION = 22.05.8\n", "")
PARTITIONS = "scontrol --all --oneliner show partition"
NODES = "scontrol --all --oneliner show node"
TOPOLOGY = "scontrol --oneliner show topology"
CLUSTER = {
    CONFIG: SHOW_CONFIG,
    PARTITIONS: (0, "PartitionName=low Default=YES State=UP TotalNodes=1\n", ""),
    NODES: (0, "NodeName=n1 CPUTot=8 RealMemory=16000 State=IDLE Partitions=low\n", ""),
    TOPOLOGY: (0, "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n1\n", ""),
}
QUEUE = (
    "squeue --all --array --noheader --states=all --jobs=12,13 "
    "--Format=ArrayJobID:30,ArrayTaskID:30,State:30,RestartCnt:12,Reason:120,NodeList:400,Command:600"
)
OURS = "squeue --me --noheader --states=all --Format=ArrayJobID:30,SubmitTime:30,Command:600"
HISTORY = "sacct --allocations --noheader --parsable2 --jobs=12,13 --format=JobID,State,NodeList,JobName"
JOB = "scontrol --all --oneliner show job 12"
SCRIPT = "scontrol write batch_script 12 -"
CANCEL = "scancel 12 13_4"
NAME = "scontrol show config"

#: Every question, and the command line of it that can fail.
QUESTIONS: dict[str, Callable[[CommandClient], object]] = {
    CONFIG: CommandClient.snapshot,
    PARTITIONS: CommandClient.snapshot,
    NODES: CommandClient.snapshot,
    TOPOLOGY: CommandClient.snapshot,
    NAME: CommandClient.cluster,
    OURS: CommandClient.own_jobs,
    JOB: lambda client: client.job("12"),
    SCRIPT: lambda client: client.script("12"),
    QUEUE: lambda client: client.queue(["12", "13"]),
    HISTORY: lambda client: client.history(["12", "13"]),
    CANCEL: lambda client: client.cancel(["12", "13_4"]),
}


def slurm(answers: dict[str, Answer]) -> CommandClient:
    """A client whose Slurm takes these command lines, word for word, and no other."""
    known = PING | answers

    def run(argv: Sequence[str]) -> Answer:
        assert shlex.join(argv) in known, f"not how Slurm is asked: {shlex.join(argv)}"
        return known[shlex.join(argv)]

    return CommandClient(run)


def ask(line: str, answer: Answer) -> object:
    """Put a question to a Slurm that answers one of its commands so, and the others as usual."""
    return QUESTIONS[line](slurm(CLUSTER | {line: answer}))


def test_the_cluster_is_read_whole() -> None:
    """Settings, partitions, nodes and switches come from four commands, hidden partitions included."""
    found = slurm(CLUSTER).snapshot()
    assert (found.config.cluster, found.config.release) == ("lab", (22, 5, 8))
    assert [item.name for item in found.partitions] == ["low"]
    assert [item.name for item in found.nodes] == ["n1"]
    assert [item.nodes for item in found.fabric.leaves] == [("n1",)]


@pytest.mark.parametrize("answer", [HANGS, KILLED])
@pytest.mark.parametrize("line", QUESTIONS)
def test_silence_is_unavailable_whatever_was_asked(line: str, answer: Answer) -> None:
    """A slurmctld that falls silent, or a command that is killed, is exit code 4 and never an empty answer."""
    with pytest.raises(SlurmUnavailableError):
        ask(line, answer)


@pytest.mark.parametrize("line", [line for line in QUESTIONS if line != SCRIPT])
def test_a_no_is_said_in_slurms_words(line: str) -> None:
    """Slurm was reached: its words are repeated, nobody is sent to look for slurmctld, and the hint can be typed."""
    with pytest.raises(SlurmRefusedError, match=r"was refused: .*not today") as caught:
        ask(line, (1, "", "slurm_load error: not today\n"))
    assert line in caught.value.hint or caught.value.hint == "see the queue with: squeue --me"


def test_hidden_nodes_are_unknown_and_nothing_else_is() -> None:
    """PrivateData=nodes hides them from users; partitions that are denied leave nothing to plan with."""
    hidden = ask(NODES, DENIED)
    assert isinstance(hidden, ClusterSnapshot)
    assert (hidden.nodes, len(hidden.partitions)) == ((), 1)
    with pytest.raises(SlurmRefusedError, match="permission denied"):
        ask(PARTITIONS, (1, "", "slurm_load_partitions error: Access/permission denied\n"))


@pytest.mark.parametrize("code", [0, 1])
def test_a_flat_cluster_has_no_switches(code: int) -> None:
    """``No topology information available`` is an answer."""
    flat = ask(TOPOLOGY, (code, "", "scontrol: error: No topology information available\n"))
    assert isinstance(flat, ClusterSnapshot)
    assert flat.fabric.leaves == ()


def test_a_job_that_is_forgotten_is_none() -> None:
    """That alone: whatever else goes wrong is said, since a job that is taken for forgotten is taken for ended."""
    assert ask(JOB, FORGOTTEN) is None
    assert ask(QUEUE, FORGOTTEN) == []
    shown = ask(JOB, (0, "JobId=12 JobName=x UserId=a(1) GroupId=a(1) JobState=RUNNING\n", ""))
    assert isinstance(shown, dict)
    assert (shown["JobId"], shown["JobState"]) == ("12", "RUNNING")


def test_the_queue_is_read_by_width() -> None:
    """Reasons with blanks and bars do not shift a column."""
    cells = ("12", "3", "PENDING", "1", "a | b, c", "n[1-2]", "/runs/x y/job.sbatch")
    line = "".join(
        cell.ljust(width) for cell, width in zip(cells, (30, 30, 30, 12, 120, 400, 600), strict=True)
    )
    names = ("ArrayJobID", "ArrayTaskID", "State", "RestartCnt", "Reason", "NodeList", "Command")
    assert ask(QUEUE, (0, f"{line}\n", "")) == [dict(zip(names, cells, strict=True))]


def test_own_jobs_have_their_script_and_their_age() -> None:
    """Every job once, an array too, by its id; with the words that its script was given, and when it was submitted."""
    rows = [("12", "a b.sbatch -x"), ("12", "a b.sbatch -x"), ("9", "/runs/x/job.sbatch")]
    times = dict(zip(["12", "9"], ("2026-12-01T03:07:22", "Unknown"), strict=True))
    shown = "".join(f"{job:<30}{times[job]:<30}{script:<600}\n" for job, script in rows)
    at = time.mktime((2026, 12, 1, 3, 7, 22, 0, 0, -1))
    assert ask(OURS, (0, shown, "")) == [("9", 0.0, "/runs/x/job.sbatch"), ("12", at, "a b.sbatch -x")]
    assert ask(OURS, (0, "", "")) == []
    assert ask(OURS, (1, "", "slurm_load_jobs error: Invalid job id specified\n")) == [], (
        "nobody's job at all"
    )


def test_without_accounting_there_is_no_history() -> None:
    """A site that keeps none: the run folder's own records tell then."""
    assert ask(HISTORY, (1, "", "Slurm accounting storage is disabled\n")) == []


@pytest.mark.parametrize(
    "answer",
    [
        (1, "", "sacct: error: Problem talking to the database: Connection refused\n"),
        (1, "", "sacct: error: Problem talking to the database: Resource temporarily unavailable\n"),
        (0, "", "sacct: error: DBD_GET_JOBS_COND failure: Unspecified error\n"),
    ],
    ids=["dead", "hangs", "no name"],
)
def test_accounting_that_is_away_is_told_from_none(answer: Answer) -> None:
    """It may know later what it does not tell now, whatever the exit code is that sacct makes of it."""
    with pytest.raises(SlurmUnavailableError):
        ask(HISTORY, answer)


def test_nobody_was_told_to_cancel() -> None:
    """Scancel ends with 0 though no controller has an address: no job is taken for cancelled."""
    said = "scancel: error: Unable to establish control machine address\nscancel: error: Kill job error on job id 12: No error\n"
    with pytest.raises(SlurmUnavailableError, match="control machine address"):
        ask(CANCEL, (0, "", said))


@pytest.mark.parametrize("line", [line for line in QUESTIONS if line != SCRIPT])
def test_a_backup_without_a_name_hides_no_refusal(line: str) -> None:
    """Every command complains of it first, and goes on with the controller that answers."""
    noise = 'x: error: slurm_set_addr: Unable to resolve "no-such-backup"\n'
    with pytest.raises(SlurmRefusedError, match="not today"):
        ask(line, (1, "", f"{noise}slurm_load error: not today\n"))


def test_history_is_read() -> None:
    """One record a job or task, by the names of sacct's fields."""
    assert ask(HISTORY, (0, "12_3|CANCELLED by 0|n1|job\n", "")) == [
        {"JobID": "12_3", "State": "CANCELLED by 0", "NodeList": "n1", "JobName": "job"}
    ]


@pytest.mark.parametrize("answer", [(0, "", "job script retrieval failed: Invalid user id\n"), FORGOTTEN])
def test_a_script_that_slurm_does_not_show_is_none(answer: Answer) -> None:
    """Of somebody else's job Slurm says so and ends with 0."""
    assert ask(SCRIPT, answer) is None
    assert ask(SCRIPT, (0, "#!/bin/bash\n", "")) == "#!/bin/bash\n"


@pytest.mark.parametrize("line", [line for line in QUESTIONS if line != HISTORY])
@pytest.mark.parametrize(
    ("out", "err", "said"),
    [
        ("Slurmctld(primary) at head is DOWN\n", "", "at head is DOWN"),
        (
            "Slurmctld(primary) at head is DOWN\n",
            "scontrol: error: auth_g_create: REQUEST_PING has authentication error\n",
            "authentication error",
        ),
    ],
)
def test_a_dead_controller_is_told_before_anything_is_asked(line: str, out: str, err: str, said: str) -> None:
    """A ping takes 10 ms; every other command would retry for 9 s and more."""

    def run(argv: Sequence[str]) -> Answer:
        assert list(argv) == ["scontrol", "ping"]
        return 1, out, err

    with pytest.raises(SlurmUnavailableError, match=said):
        QUESTIONS[line](CommandClient(run))


def test_a_backup_controller_will_do() -> None:
    """The primary may be down."""
    out = "Slurmctld(primary) at head is DOWN\nSlurmctld(backup) at head2 is UP\n"
    assert slurm({"scontrol ping": (0, out, ""), NAME: SHOW_CONFIG}).cluster() == "lab"


@pytest.mark.parametrize(
    ("err", "said"), [("", "did not answer within 10 s"), ("Munge encode failed: x\n", "Munge encode failed")]
)
def test_a_controller_that_hangs_is_not_called_dead(
    err: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ping that took long says so; where Slurm itself gives a reason, the reason is said."""
    clock = iter([100.0, 110.0])
    monkeypatch.setattr("slurmkit.cluster.command.time.monotonic", lambda: next(clock))
    with pytest.raises(SlurmUnavailableError, match=said):
        slurm({"scontrol ping": (1, "Slurmctld(primary) at head is DOWN\n", err)}).cluster()


def test_slurms_commands_see_no_setting_of_a_person() -> None:
    """A job's own variables and a profile's defaults would change what a command means; where Slurm is stays."""
    where = {"SLURM_CONF": "/c", "SLURM_CLUSTERS": "b", "SLURM_JWT": "x", "PATH": "/bin", "MY_SLURM_X": "1"}
    prefixes = ("SLURM", "SBATCH", "SALLOC", "SRUN", "SQUEUE", "SCONTROL", "SINFO", "SACCT", "SCANCEL")
    assert clean_environ(where | {f"{prefix}_FORMAT": "x" for prefix in prefixes}) == where
    assert clean_environ({"SLURM_CONF": ""}) == {}, "empty means unset"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An squeue and an sbatch that print their words and their environment."""
    for name in ("squeue", "sbatch"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$@"\necho "$LC_ALL $SLURM_JOB_ID" >&2\nexit 3\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("LC_ALL", "xx")
    monkeypatch.setenv("SLURM_JOB_ID", "7")


@pytest.mark.usefixtures("program")
def test_what_we_read_is_in_one_language_and_what_runs_is_in_the_persons() -> None:
    """Words are matched, so they are asked for in English; a job inherits the environment of its sbatch."""
    assert run_slurm(["squeue", "a b"]) == (3, "a b\n", "C \n")
    assert run_slurm(["sbatch", "x"]) == (3, "x\n", "xx \n")


FULL = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("gives_up", [False, True])
def test_an_sbatch_that_tries_again_is_heard_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    """A full slurmctld: whoever waits hears it while sbatch tries on, and who gives up leaves no sbatch behind."""
    go, heard = tmp_path / "go", []
    tries = f"echo $$ >{tmp_path}/pid; while [ ! -e {go} ]; do /bin/sleep 0.05; done; echo 12"
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\necho '{FULL}' >&2\n{tries}\n")
    monkeypatch.setattr("slurmkit.cluster.command._FIRST_WORDS", 0.3)

    @contextlib.contextmanager
    def while_full(words: str) -> Iterator[None]:
        heard.append(words)
        if gives_up:
            raise KeyboardInterrupt
        go.touch()
        yield

    if gives_up:
        with pytest.raises(KeyboardInterrupt):
            run_slurm(["sbatch", "x"], while_full)
        assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    else:
        assert run_slurm(["sbatch", "x"], while_full) == (0, "12\n", f"{FULL}\n")
    assert heard == [FULL]


@pytest.mark.usefixtures("program")
def test_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is not installed, one that hangs, and a SLURM_CONF that names no file, each in its words."""
    with pytest.raises(SlurmUnavailableError, match="scancel is not installed") as caught:
        run_slurm(["scancel"])
    assert "slurm-client" in caught.value.hint
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec /usr/bin/tail -f /dev/null\n")
    monkeypatch.setattr("slurmkit.cluster.command._TIMEOUT", 0.1)
    with pytest.raises(SlurmUnavailableError, match="squeue got no answer"):
        run_slurm(["squeue"])
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "no.conf"))
    with pytest.raises(SlurmkitError, match=r"SLURM_CONF=.*no\.conf: No such file"):
        run_slurm(["squeue"])


@pytest.mark.parametrize(
    ("conf", "where"), [("/c/slurm.conf", "SLURM_CONF=/c/slurm.conf"), ("", "/etc/slurm/slurm.conf")]
)
def test_a_slurm_conf_that_cannot_be_read_is_named(
    conf: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's own words for it do not always say which file it was."""
    monkeypatch.setenv("SLURM_CONF", conf)
    with pytest.raises(SlurmUnavailableError, match=r"slurm\.conf cannot be read") as caught:
        ask(NAME, (1, "", "scontrol: fatal: Unable to process configuration file\n"))
    assert where in caught.value.message


def test_the_line_that_says_why_is_told() -> None:
    """Of a controller without an address sbatch says much, and last that there was no error."""
    said = "sbatch: error: Unable to establish control machine address\nsbatch: error: Batch job submission failed: No error\n"
    assert unavailable(said).message.endswith("Unable to establish control machine address")
    assert unavailable("odd\nlast\n").message.endswith(": last")
    assert unavailable("").message.endswith("no message")
