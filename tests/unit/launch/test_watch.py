"""What has become of submitted jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes import Slurm, life, row

from slurmkit.cluster.command import CommandClient
from slurmkit.errors import ConfigError, RunNotFoundError, SlurmUnavailableError
from slurmkit.launch.ledger import Attempt, Run
from slurmkit.launch.states import task_states
from slurmkit.launch.watch import cancel_run, is_live, kept_status, run_status, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def test_squeue_sacct_and_exit_records_make_one_picture(run: Run) -> None:
    """What runs comes from squeue, what it forgot from the batch script's own record, and what nobody knows is LOST."""
    (run.path / "lives" / "n1.jsonl").write_text(
        '{"cluster": "lab", "job": "12", "task": 1, "restart": 2, "exit": 3, "time": 5}\n'
    )
    statuses = run_status(run, Slurm([row("12", "0", "RUNNING")]))
    assert [(item.job, item.state, item.restarts, item.source) for item in statuses] == [
        ("12_0", "RUNNING", 1, "squeue"),
        ("12_1", "FAILED", 2, "lives"),
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
    (run.path / "lives" / "n1.jsonl").write_text(
        '{"cluster": "lab", "job": "12", "task": 0, "restart": 0, "exit": 1, "time": 5}\n'
    )
    run.add_attempt(Attempt("lab", "40", 0.0, (0,)))
    assert run_status(run, Slurm())[0].state == "LOST"


def test_a_life_without_an_end_is_lost(run: Run) -> None:
    """A requeued job whose node died: the end of the life before says nothing of it."""
    (run.path / "lives" / "n1.jsonl").write_text(
        life("12", 0, 5) + life("12", 0, 9, '"exit": 0, "term": 1') + life("12", 0, 20, restart=1)
    )
    first = run_status(run, Slurm())[0]
    assert (first.state, first.restarts) == ("LOST", 1)
    assert first.reason == "Slurm does not know it, and it began, and left no record of its end"


def test_without_slurm_the_folder_tells_what_it_knows(run: Run) -> None:
    """While slurmctld is away: the ends that Slurm once told, those that the scripts wrote, and what nobody knows."""
    run_status(run, Slurm([row("12", "0", "TIMEOUT")]))
    (run.path / "lives" / "n1.jsonl").write_text(
        life("40", 1, 9) + life("40", 1, 10, '"exit": 0, "term": 0') + life("12", 2, 3)
    )
    assert [(item.job, item.state) for item in kept_status(run)] == [
        ("12_0", "TIMEOUT"),
        ("40_1", "COMPLETED"),
        ("12_2", "UNKNOWN"),
    ]
    assert not any(map(is_live, kept_status(run)))
    assert (
        kept_status(run)[2].reason == "slurmctld does not answer, and it began, and left no record of its end"
    )
    (run.path / "lives" / "n2.jsonl").write_text(life("12", 2, 4, '"exit": 0, "term": 1'))
    stopped = kept_status(run)[2]
    assert (stopped.state, stopped.reason) == (
        "STOPPED",
        "SIGTERM came, exit code 0; slurmctld does not answer",
    )
    with pytest.raises(RunNotFoundError, match="no point 9"):
        kept_status(run, 9)


def test_a_run_of_somebody_else_is_only_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root, who looks at a person's run, leaves no file there that the person cannot read."""
    monkeypatch.setattr("os.geteuid", lambda: run.path.stat().st_uid + 1)
    before = sorted(run.path.rglob("*"))
    assert run_status(run, Slurm([row("12", "0", "TIMEOUT")]))[0].state == "TIMEOUT"
    assert sorted(run.path.rglob("*")) == before


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
    (run.path / "lives" / "n1.jsonl").write_text(
        '{"cluster": "lab", "job": "12", "task": 0, "restart": 0, "exit": 0, "term": 0, "time": 5}\n'
    )
    assert run_status(run, Slurm([row("12", "0", "TIMEOUT")]))[0].state == "TIMEOUT"
    assert run_status(run, Slurm())[0].state == "TIMEOUT"
    assert run_status(run, Slurm([row("12", "0", "PENDING")]))[0].state == "PENDING", (
        "a job that an admin requeued lives"
    )


def test_a_cancelled_run_stays_cancelled(run: Run) -> None:
    """A run cancelled while it waited to come back is CANCELLED once Slurm has forgotten it, and never COMPLETED."""
    (run.path / "lives" / "n1.jsonl").write_text(
        '{"cluster": "lab", "job": "12", "task": 0, "restart": 0, "exit": 0, "term": 0, "time": 5}\n'
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
    (run.path / "lives" / "n1.jsonl").write_text(
        '{"cluster": "lab", "job": "12", "task": 0, "restart": 0, "exit": 0, "term": 1, "time": 5}\n'
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
        (run.path / "lives" / "n1.jsonl").write_text(
            f'{{"cluster": "lab", "job": "12", "task": 0, "restart": 0, {record}, "time": 5}}\n'
        )
    first, second, _ = run_status(run, Away([row("12", "1", "RUNNING")]))
    assert (first.state, first.reason) == (state, said)
    assert second.state == "RUNNING", "what squeue knows is not lost"
    assert run.ended() == {}
    told = Slurm(history=[{"JobID": "12_0", "State": "TIMEOUT", "NodeList": "n1"}])
    assert run_status(run, told)[0].state == "TIMEOUT"


def test_a_job_id_of_somebody_else_is_not_ours(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids are issued again: a job made from another script is neither shown nor cancelled as ours."""
    precious = ("/home/eve/precious.sh", "", str(run.path.parent))
    slurm = Slurm([row("12", str(task), "RUNNING", script) for task, script in enumerate(precious)])
    assert {item.state for item in run_status(run, slurm)} == {"LOST"}
    assert cancel_run(run, slurm) == []
    assert not [call for call in slurm.calls if call.startswith("cancel")]
    for path in (run.path, "/the/same/folder/mounted/elsewhere/" + run.id):
        ours = Slurm([row("12", "0", "RUNNING", f"{path}/job.sbatch")])
        assert run_status(run, ours)[0].state == "RUNNING"
    monkeypatch.setattr("slurmkit.launch.jobs.COMMAND_WIDTH", 40)
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
