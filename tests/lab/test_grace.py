"""What becomes of a run that ends in the grace of its preemption: from Slurm 24.05 on it is requeued in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command import as_in
from polling import wait_until
from runs import TWO_RANKS, submit_run

from slurmkit.cluster.client import open_client
from trainer.data import prepare

if TYPE_CHECKING:
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab


def test_a_finished_run_keeps_its_result(lab: Lab, tmp_path: Path) -> None:
    """A run that is done as its nodes are taken: a life that Slurm gives it all the same finds it done, and ends."""
    prepare(tmp_path)
    go = tmp_path / "go"
    teardown = tmp_path / "teardown.sh"
    teardown.write_text(f"while [ ! -e {go} ]; do read -rt 0.1 <> <(:); done\n")
    words = [f"data.path={tmp_path}/text.h5", *TWO_RANKS, f"env.teardown=['bash {teardown}']"]
    run = submit_run(lab, words, tmp_path / "run")
    result = wait_until(run.result, 120, f"the run to finish; its log:\n{run.log}")
    lab.run(["sbatch", "--partition=high", "--nodes=8", "--exclusive", "--output=/dev/null", "--wrap=true"])
    wait_until(lambda: run.state()["PreemptTime"] != "None", 30, "its preemption")
    go.touch()
    job = run.wait_state("COMPLETED")
    assert run.result() == result
    assert [event["restart"] for event in run.events("finish")] == [0]
    with as_in(lab, tmp_path):
        later = open_client().snapshot().config.release >= (24, 5)
    assert int(job["Restarts"]) == later
