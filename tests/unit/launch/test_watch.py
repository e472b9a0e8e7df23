"""What has become of submitted jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmkit.cluster.command import CommandClient
from slurmkit.errors import ConfigError, RunNotFoundError, SlurmUnavailableError
from slurmkit.launch.ledger import Attempt, Run, create_run, write_manifest
from slurmkit.launch.states import task_states
from slurmkit.launch.watch import cancel_run, run_status, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Slurm:
    """Answers for squeue and sacct; any other call is a failure of the test."""

    def __init__(
        self, queue: Sequence[Mapping[str, str]] = (), history: Sequence[Mapping[str, str]] = ()
    ) -> None:
        self._queue, self._history = queue, history
        self.calls: list[str] = []

    def cluster(self) -> str:
        return "lab"

    def jobs_made_from(self, script: str) -> list[str]:
        return []

    def cancel(self, job_ids: Sequence[str]) -> None:
        self.calls.append(f"cancel {','.join(job_ids)}")

    def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        self.calls.append("queue")
        return [row for row in self._queue if row["ArrayJobID"] in job_ids]

    def history(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        self.calls.append("history")
        return [row for row in self._history if row["JobID"].partition("_")[0] in job_ids]


def row(job: str, task: str, state: str, script: str = "") -> dict[str, str]:
    cells = {"RestartCnt": "1", "Reason": "None", "NodeList": "n1", "Command": script}
    return {"ArrayJobID": job, "ArrayTaskID": task, "State": state, **cells}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    path = tmp_path / "runs" / "exp"
    (tmp_path / "runs").mkdir()
    create_run(path)
    write_manifest(path, {"version": 1}, "", [["a=1"], ["a=2"], ["a=3"]])
    found = Run(path)
    found.add_attempt(Attempt("lab", "12", 0.0, (0, 1, 2)))
    return found


def test_squeue_sacct_and_exit_records_make_one_picture(run: Run) -> None:
    """What runs comes from squeue, what it forgot from the batch script's own record, and what nobody knows is LOST."""
    (run.path / "exits" / "n1.jsonl").write_text(
        '{"job": "12", "task": 1, "restart": 2, "exit": 3, "time": 5}\n'
    )
    statuses = run_status(run, Slurm([row("12", "0", "RUNNING")]))
    assert [(item.job, item.state, item.restarts, item.source) for item in statuses] == [
        ("12_0", "RUNNING", 1, "squeue"),
        ("12_1", "FAILED", 2, "exits"),
        ("12_2", "LOST", 0, "none"),
    ]
    assert statuses[1].reason == "exit code 3"


def test_accounting_is_asked_only_for_what_the_queue_forgot(run: Run) -> None:
    """One squeue for all; sacct only where a job is gone, and its "CANCELLED by 0" is the state CANCELLED."""
    slurm = Slurm(
        history=[
            {"JobID": "12_0", "State": "CANCELLED by 0", "ExitCode": "0:0", "NodeList": "n1"},
            {"JobID": "12_1", "State": "COMPLETED", "ExitCode": "0:0", "NodeList": "n1"},
        ]
    )
    assert [item.state for item in run_status(run, slurm)][:2] == ["CANCELLED", "COMPLETED"]
    busy = Slurm([row("12", "0", "RUNNING")], history=[])
    task_states(busy, ["12_0"])
    assert busy.calls == ["queue"]


def test_an_older_record_of_another_submission_does_not_count(run: Run) -> None:
    """After a second submission the first one's exit record says nothing of the second."""
    (run.path / "exits" / "n1.jsonl").write_text(
        '{"job": "12", "task": 0, "restart": 0, "exit": 1, "time": 5}\n'
    )
    run.add_attempt(Attempt("lab", "40", 0.0, (0,)))
    assert run_status(run, Slurm())[0].state == "LOST"


def test_a_script_that_is_submitted_once_more_is_the_next_submission(run: Run) -> None:
    """By hand, `sbatch RUN/job.sbatch`: seen in the queue, or by what it left in the folder, and recorded once."""

    class Again(Slurm):
        def jobs_made_from(self, script: str) -> list[str]:
            assert script == str(run.path / "job.sbatch")
            return ["9", "12", "40"]  # an older one supersedes nothing

    queue = [row("40", str(task), "RUNNING", str(run.path / "job.sbatch")) for task in range(3)]
    endless = '{"job": "%s", "task": 0, "restart": 0, "exit": 0, "time": 5}' % ("1" * 5000)
    (run.path / "exits" / "n0.jsonl").write_text(f"{endless}\n")  # no id of Slurm's: it is passed over
    for _ in range(2):
        assert [item.job for item in run_status(run, Again(queue))] == ["40_0", "40_1", "40_2"]
    record = '{"job": "%s", "task": 2, "restart": 0, "exit": 0, "term": 0, "time": 5}\n'
    (run.path / "exits" / "n1.jsonl").write_text(record % "100" + record % "99")
    assert [(item.job, item.state) for item in run_status(run, Slurm())][2] == ("100_2", "COMPLETED")
    assert [(one.job_id, one.points) for one in run.attempts()] == [
        (job, (0, 1, 2)) for job in ("12", "40", "99", "100")
    ]


@pytest.mark.parametrize(
    "state", ["REQUEUED", "SUSPENDED", "REQUEUE_HOLD", "RESIZING", "CONFIGURING", "COMPLETING"]
)
def test_a_job_that_comes_back_has_not_ended(run: Run, state: str) -> None:
    """A requeued, suspended or requeue-held job is waited for, can be cancelled, and is not kept as ended."""

    class Returning(Slurm):
        def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
            self.calls.append("queue")
            return [row("12", str(task), "COMPLETED" if len(waits) > 1 else state) for task in range(3)]

    waits: list[float] = []
    assert cancel_run(run, Slurm([row("12", "1", state)]), 1) == ["12_1"]
    assert [item.state for item in wait_for(run, Returning(), waits.append)] == ["COMPLETED"] * 3
    assert len(waits) == 2
    assert {item.state for item in run.ended().values()} == {"COMPLETED"}


def test_waiting_survives_a_controller_that_restarts(run: Run) -> None:
    """A slurmctld that is away for some polls ends nothing; one that stays away is an error."""

    class Restarting(Slurm):
        def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
            if len(self.calls) < 3:
                self.calls.append("queue")
                raise SlurmUnavailableError("away")
            return [row("12", str(task), "COMPLETED") for task in range(3)]

    waits: list[float] = []
    said: list[str] = []
    ended = wait_for(run, Restarting(), waits.append, say=said.append)
    assert [item.state for item in ended] == ["COMPLETED"] * 3
    assert len(waits) == 3
    assert said == ["away; waiting for it"], "once, however often it is asked"
    with pytest.raises(SlurmUnavailableError):
        wait_for(run, Restarting(), waits.append, patience=1)


def test_squeue_is_called_once_for_all_and_read_by_width() -> None:
    """One squeue for all ids; names and reasons with blanks or bars do not shift a column."""
    widths = (30, 30, 30, 12, 120, 400, 600)

    def slurm(argv: Sequence[str]) -> tuple[int, str, str]:
        if list(argv) == ["scontrol", "ping"]:
            return 0, "Slurmctld(primary) at head is UP\n", ""
        assert argv[0] == "squeue"
        assert "--jobs=12" in argv
        cells = ("12", "N/A", "PENDING", "3", "a | b, c", "n[1-2]", "/runs/x/job.sbatch")
        return 0, "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + "\n", ""

    state = task_states(CommandClient(slurm), ["12"])["12"]
    assert (state.name, state.state, state.restarts, state.reason, state.nodes) == (
        "12",
        "PENDING",
        3,
        "a | b, c",
        "n[1-2]",
    )


def test_a_final_state_is_kept_when_slurm_forgets_it(run: Run) -> None:
    """What Slurm once said of the end of a job is what status says ever after, whatever its shell left behind."""
    (run.path / "exits" / "n1.jsonl").write_text(
        '{"job": "12", "task": 0, "restart": 0, "exit": 0, "term": 0, "time": 5}\n'
    )
    assert run_status(run, Slurm([row("12", "0", "TIMEOUT")]))[0].state == "TIMEOUT"
    assert run_status(run, Slurm())[0].state == "TIMEOUT"
    assert run_status(run, Slurm([row("12", "0", "PENDING")]))[0].state == "PENDING", (
        "a job that an admin requeued lives"
    )


def test_a_cancelled_run_stays_cancelled(run: Run) -> None:
    """A run cancelled while it waited to come back is CANCELLED once Slurm has forgotten it, and never COMPLETED."""
    (run.path / "exits" / "n1.jsonl").write_text(
        '{"job": "12", "task": 0, "restart": 0, "exit": 0, "term": 0, "time": 5}\n'
    )
    slurm = Slurm([row("12", str(task), "PENDING") for task in range(3)])
    assert cancel_run(run, slurm) == ["12"]
    assert "cancel 12" in slurm.calls
    assert [item.state for item in run_status(run, Slurm())] == ["CANCELLED"] * 3


def test_one_point_is_cancelled_alone(run: Run) -> None:
    """Cancelling one point names its task to scancel, and the others are kept as they are."""
    slurm = Slurm([row("12", str(task), "RUNNING") for task in range(3)])
    assert cancel_run(run, slurm, 1) == ["12_1"]
    assert "cancel 12_1" in slurm.calls
    assert set(run.ended()) == {"12_1"}


def test_a_point_that_a_run_has_not_is_refused(run: Run) -> None:
    """Status and cancel of a point that never was are an error, and nothing is cancelled."""
    slurm = Slurm([row("12", str(task), "RUNNING") for task in range(3)])
    assert [item.job for item in run_status(run, slurm, 2)] == ["12_2"]
    for ask in (run_status, cancel_run):
        with pytest.raises(RunNotFoundError, match="no point 9"):
            ask(run, slurm, 9)
    assert not [call for call in slurm.calls if call.startswith("cancel")]


def test_a_reason_lasts_as_long_as_it_holds(run: Run) -> None:
    """Why a job waits or failed is shown; what it once waited for is not, when it was cancelled or has completed."""
    states = ("PENDING", "FAILED", "CANCELLED")
    rows = [{**row("12", str(task), state), "Reason": "Why"} for task, state in enumerate(states)]
    assert [item.reason for item in run_status(run, Slurm(rows))] == ["Why", "Why", ""]


def test_a_shell_that_got_sigterm_did_not_complete(run: Run) -> None:
    """A record with SIGTERM in it tells neither success nor failure: cancelled, out of time, or requeued."""
    (run.path / "exits" / "n1.jsonl").write_text(
        '{"job": "12", "task": 0, "restart": 0, "exit": 0, "term": 1, "time": 5}\n'
    )
    slurm = Slurm()
    assert run_status(run, slurm)[0].state == "STOPPED"
    assert wait_for(run, slurm, lambda _: pytest.fail("waited"))[0].state == "STOPPED"
    assert cancel_run(run, slurm) == [], "Slurm's own STOPPED goes on, this one has ended"


@pytest.mark.parametrize(
    ("record", "state", "said"),
    [
        ("", "LOST", "slurmctld has forgotten it, accounting does not answer, and it left no record"),
        ('"exit": 0, "term": 1', "STOPPED", "SIGTERM came, exit code 0; slurmctld has forgotten why, and accounting does not answer"),
        ('"exit": 3, "term": 0', "FAILED", "exit code 3"),
    ],
)  # fmt: skip
def test_accounting_that_does_not_answer_may_know_more_later(
    run: Run, record: str, state: str, said: str
) -> None:
    """Then it is not said that Slurm has forgotten a job; nothing is kept, and once it answers its word counts."""

    class Away(Slurm):
        def history(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
            raise SlurmUnavailableError(",".join(job_ids))

    if record:
        (run.path / "exits" / "n1.jsonl").write_text(
            f'{{"job": "12", "task": 0, "restart": 0, {record}, "time": 5}}\n'
        )
    first, second, _ = run_status(run, Away([row("12", "1", "RUNNING")]))
    assert (first.state, first.reason) == (state, said)
    assert second.state == "RUNNING", "what squeue knows is not lost"
    assert run.ended() == {}
    told = Slurm(history=[{"JobID": "12_0", "State": "TIMEOUT", "NodeList": "n1"}])
    assert run_status(run, told)[0].state == "TIMEOUT"


def test_a_job_id_of_somebody_else_is_not_ours(run: Run) -> None:
    """Ids are issued again: a job made from another script is neither shown nor cancelled as ours."""
    slurm = Slurm([row("12", str(task), "RUNNING", "/home/eve/precious.sh") for task in range(3)])
    assert {item.state for item in run_status(run, slurm)} == {"LOST"}
    assert cancel_run(run, slurm) == []
    assert not [call for call in slurm.calls if call.startswith("cancel")]
    for path in (run.path, "/the/same/folder/mounted/elsewhere/" + run.id):
        ours = Slurm([row("12", "0", "RUNNING", f"{path}/job.sbatch")])
        assert run_status(run, ours)[0].state == "RUNNING"
    long = Slurm([row("12", "0", "RUNNING", str(run.path / "job.sbatch")[:40])])
    assert run_status(run, long)[0].state == "RUNNING", "squeue cuts long paths"


def test_another_cluster_is_named(run: Run) -> None:
    """A run of another cluster is not looked up on this one: the error names both."""

    class Other(Slurm):
        def cluster(self) -> str:
            return "other"

    with pytest.raises(ConfigError, match=r"'lab'.*'other'"):
        run_status(run, Other())


def test_a_preempted_job_that_does_not_come_back_has_ended(run: Run) -> None:
    """With --no-requeue, PREEMPTED is the end: nobody waits for ever."""
    slurm = Slurm([row("12", str(task), "PREEMPTED") for task in range(3)])
    assert [item.state for item in wait_for(run, slurm, lambda _: pytest.fail("waited"))] == ["PREEMPTED"] * 3
