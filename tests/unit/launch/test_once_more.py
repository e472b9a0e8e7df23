"""A run's script that is submitted once more, and jobs that nobody has recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from fakes import Again, Slurm, jobs_and_states, life, row

from slurmkit.cli.status import status_command
from slurmkit.errors import ConfigError
from slurmkit.launch.ledger import Attempt, Run, create_run, write_manifest
from slurmkit.launch.watch import cancel_run, kept_status, run_status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_part_of_a_sweep_that_is_submitted_once_more_leaves_the_others(run: Run) -> None:
    """After `sbatch --array=1 RUN/job.sbatch` point 1 is the new job's, in the queue and long after; 0 and 2 are as they were."""
    script = str(run.path / "job.sbatch")
    done = [row("12", str(task), "FAILED" if task == 1 else "COMPLETED", script) for task in range(3)]
    others = [("12_0", "COMPLETED"), ("12_2", "COMPLETED")]
    assert jobs_and_states(run, Slurm(done))[1] == ("12_1", "FAILED")
    # An id that is smaller, as after a controller that has lost its state; words behind the script; another path to it.
    for job, command in (("40", script), ("3", f"/mnt/{run.id}/job.sbatch a b"), ("41", script)):
        slurm = Again([(job, 9.0, command)], [*done, row(job, "1", "PENDING", command)])
        assert jobs_and_states(run, slurm) == [others[0], (f"{job}_1", "PENDING"), others[1]]
    (run.path / "lives" / "n1.jsonl").write_text(life("40", 1, 9))
    assert jobs_and_states(run, Slurm()) == [others[0], ("40_1", "LOST"), others[1]]
    (run.path / "lives" / "n2.jsonl").write_text(life("40", 1, 11, '"exit": 0, "term": 0'))
    assert jobs_and_states(run, Slurm()) == [others[0], ("40_1", "COMPLETED"), others[1]]
    assert [attempt.job_id for attempt in run.attempts()] == ["12"], "to look writes no record"


def test_what_waits_of_a_job_that_nobody_recorded_is_there(run: Run) -> None:
    """One of its tasks has begun and left that in the folder, another one waits: each is its point's."""
    script = str(run.path / "job.sbatch")
    (run.path / "lives" / "n1.jsonl").write_text(life("40", 1, 9))
    tasks = [row("40", "1", "RUNNING", script), row("40", "2", "PENDING", script)]
    for slurm in (Again([("40", 9.0, script)], tasks), Slurm(tasks)):
        assert jobs_and_states(run, slurm)[1:] == [("40_1", "RUNNING"), ("40_2", "PENDING")]


def test_a_script_that_was_given_ours_as_a_word_is_not_ours(run: Run) -> None:
    """``sbatch check.sh RUN/job.sbatch`` is another's job: it is neither shown nor cancelled."""
    script = str(run.path / "job.sbatch")
    for command, is_ours in (
        (f"/home/me/check.sh {script}", False),
        (f"{script} a /b", True),
        ("/my runs/exp/job.sbatch", True),
    ):
        slurm = Again([("40", 9.0, command)], [row("40", "0", "RUNNING", command)])
        assert (cancel_run(run, slurm) == ["40"]) is is_ours, command


def test_a_run_in_a_folder_of_an_odd_name_is_known_by_its_own_path(
    tmp_path: Path, make: Callable[..., Run]
) -> None:
    """A folder whose name ends with a blank: what looks like a script and its first word is a path."""
    (tmp_path / "odd ").mkdir()
    odd = make(tmp_path / "odd " / "runs")
    script = str(odd.path / "job.sbatch")
    assert jobs_and_states(odd, Again([("40", 9.0, script)], [row("40", "N/A", "RUNNING", script)])) == [
        ("40", "RUNNING")
    ]


def test_a_requeue_does_not_make_a_submission_newer(run: Run) -> None:
    """Slurm counts the time of submission anew at each requeue: what began first in the folder is older all the same."""
    script = str(run.path / "job.sbatch")
    (run.path / "lives" / "n1.jsonl").write_text(life("40", 0, 5))
    run.add_attempt(Attempt("lab", "50", 20.0, (0,)))
    rows = [row("40", "0", "FAILED", script), row("50", "0", "FAILED", script)]
    assert jobs_and_states(run, Again([("40", 30.0, script)], rows))[0] == ("50_0", "FAILED")


def test_status_says_how_what_is_lost_is_submitted_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, for the points that are lost alone; nothing where none is."""
    script = str(run.path / "job.sbatch")
    rows = [row("12", str(task), "COMPLETED", script) for task in range(3)]

    def said(slurm: Slurm) -> str:
        monkeypatch.setattr("slurmkit.open_client", lambda: slurm)
        done = CliRunner().invoke(status_command, [str(run.path)], standalone_mode=False)
        return done.stderr

    assert f"submitted again with: sbatch --chdir=. --array=0,2 {script}" in said(Slurm(rows[1:2]))
    assert "again" not in said(Slurm(rows))


def test_a_requeue_is_newer_than_the_end_that_was_kept(run: Run) -> None:
    """Slurm once told of a time limit, an admin requeued the job, and Slurm has forgotten it since."""
    run_status(run, Slurm([row("12", "0", "TIMEOUT")]))
    (run.path / "lives" / "n1.jsonl").write_text(life("12", 0, 5, '"exit": 1', restart=1))
    assert jobs_and_states(run, Slurm())[0] == ("12_0", "TIMEOUT")
    (run.path / "lives" / "n1.jsonl").write_text(life("12", 0, 9, '"exit": 0', restart=2))
    assert jobs_and_states(run, Slurm())[0] == ("12_0", "COMPLETED")


def test_the_last_submission_counts_that_lives_longest(run: Run) -> None:
    """The last submitted job is a point's; where it has ended and an older one lives, that is; cancel ends all of them."""
    script = str(run.path / "job.sbatch")
    (run.path / "lives" / "n1.jsonl").write_text(
        life("50", 0, 20) + life("40", 0, 5) + life("40", 0, 30, restart=1)
    )
    rows = [row("12", "0", "RUNNING", script), row("40", "0", "RUNNING", script)]
    assert jobs_and_states(run, Slurm([*rows, row("50", "0", "RUNNING", script)]))[0] == ("50_0", "RUNNING")
    assert jobs_and_states(run, Slurm([*rows, row("50", "0", "FAILED", script)]))[0] == ("40_0", "RUNNING")
    slurm = Slurm(rows)
    assert cancel_run(run, slurm) == ["12", "40"]
    assert "cancel 12,40" in slurm.calls
    assert cancel_run(run, Slurm(rows), 0) == ["12_0", "40_0"]
    assert jobs_and_states(run, Slurm())[0] == ("50_0", "FAILED"), "Slurm said so once"


def test_what_is_of_another_cluster_is_not_of_this_one(tmp_path: Path, run: Run) -> None:
    """A script that ran on two clusters has its lives on each; of a run that is recorded on none the manifest tells."""

    class Other(Slurm):
        def cluster(self) -> str:
            return "other"

    endless = life("1" * 5000, 0, 5) + life("7_1", 0, 5)  # no ids of Slurm's: passed over
    (run.path / "lives" / "n1.jsonl").write_text(endless + life("99", 0, 5, '"exit": 0', cluster="other"))
    assert jobs_and_states(run, Slurm())[0] == ("12_0", "LOST")
    assert jobs_and_states(run, Other()) == [("99_0", "COMPLETED")]
    create_run(tmp_path / "runs" / "killed")
    write_manifest(tmp_path / "runs" / "killed", {"slurm": {"cluster": "lab"}}, "", None)
    killed = Run(tmp_path / "runs" / "killed")
    with pytest.raises(ConfigError, match=r"'lab'.*'other'"):
        run_status(killed, Other())
    assert run_status(killed, Slurm()) == []


def test_an_array_of_some_points_has_them_by_its_indices(tmp_path: Path, make: Callable[..., Run]) -> None:
    """A recorded job of points 1 and 2 has tasks 0 and 1; what a task writes says its point."""
    sweep = make(tmp_path, points=[["a=1"], ["a=2"], ["a=3"]])
    sweep.add_attempt(Attempt("lab", "12", 0.0, (1, 2)))
    (sweep.path / "lives" / "n1.jsonl").write_text(life("12", 2, 3) + life("12", 2, 4, '"exit": 0'))
    slurm = Slurm([row("12", "0", "RUNNING", str(sweep.path / "job.sbatch"))])
    assert [(item.point, item.job, item.state) for item in run_status(sweep, slurm)] == [
        (1, "12_0", "RUNNING"),
        (2, "12_1", "COMPLETED"),
    ]


def test_a_single_run_that_becomes_an_array_is_its_point(tmp_path: Path, make: Callable[..., Run]) -> None:
    """`sbatch --array=0-1 RUN/job.sbatch` of a single run: two tasks of the one point, and both are cancelled."""
    single = make(tmp_path)
    script = str(single.path / "job.sbatch")
    slurm = Again([("40", 9.0, script)], [row("40", task, "RUNNING", script) for task in "01"])
    assert jobs_and_states(single, slurm) == [("40_1", "RUNNING")]
    assert cancel_run(single, slurm) == ["40"]


def test_a_job_that_ended_before_it_began_is_not_forgotten(tmp_path: Path, make: Callable[..., Run]) -> None:
    """Its submission could not be recorded, and it was cancelled while it waited: that is known when Slurm has forgotten it."""
    single = make(tmp_path)
    script = str(single.path / "job.sbatch")
    assert cancel_run(single, Again([("40", 9.0, script)], [row("40", "N/A", "PENDING", script)])) == ["40"]
    assert jobs_and_states(single, Slurm()) == [("40", "CANCELLED")]
    assert [item.state for item in kept_status(single)] == ["CANCELLED"]
    single.add_attempt(Attempt("lab", "12", 5.0, None))
    assert jobs_and_states(single, Slurm([row("12", "N/A", "FAILED", script)])) == [("12", "FAILED")]
