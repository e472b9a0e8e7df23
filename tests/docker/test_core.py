"""The core of the loop on real hosts: a script is compiled, jobs and arrays run, by hand too, and nothing is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cluster import ONE, command, shell
from polling import wait_until

if TYPE_CHECKING:
    from cluster import Cluster, Person

pytestmark = pytest.mark.core

#: An app of somebody else's. Python 3.14 reads each help text as an option is added, and one of Hydra 1.3's is no
#: text: no ``@hydra.main`` starts there without the line about it.
APP = """
import argparse, hydra

argparse.ArgumentParser._check_help = lambda *_: None

@hydra.main(version_base=None, config_path=None)
def main(config):
    return config.x * 2

main()
"""


@pytest.mark.feature("Submit: a job over hosts of two leaf switches, one rank each")
def test_a_run_over_two_hosts(alice: Person) -> None:
    """A run over two leaves starts a rank on each host, and its ledger says what Slurm says."""
    run = alice.submit(*ONE, shell("hostname"), "resources.nodes=2", "resources.nodelist='c[4-5]'")
    (point,) = alice.wait_ended(run)
    assert (point["state"], point["restarts"]) == ("COMPLETED", 0)
    assert sorted(alice.log(run).split()) == ["c4", "c5"]
    alice.agree(run, ["COMPLETED"])


@pytest.mark.feature("Compile: what can never run is said before anything is submitted")
def test_what_can_never_run_is_said(alice: Person) -> None:
    """Preflight reads this release's nodes, gres and switches: each finding has what is accepted, and the code is 3."""
    asked = {
        "resources.nodes=9": "has 8 nodes; accepted: 1 to 8",
        "resources.gres=gpu:A100:1": "mend it with: resources.gres=gpu:a100:1",
        "resources.gres=gpu:a100:5": "gpu:a100",
        "resources.partition=nope": "accepted: main, cloud",
    }
    for words, said in asked.items():
        found = alice.slurmkit("compile", *ONE, command("true"), words, code=3)
        assert "impossible" in found.stderr, found.stderr
        assert said in found.stderr, found.stderr
    spread = ("resources.nodes=5", "topology.switches=1", "topology.wait=2:00")
    found = alice.slurmkit("compile", *ONE, command("true"), *spread)
    assert "not now" in found.stderr, found.stderr
    alice.slurmkit("compile", *ONE, command("true"), "resources.nodes=8", "resources.gres=gpu:a100:4")


@pytest.mark.feature("A script that was compiled is submitted by hand, and found by its job id")
def test_a_script_by_hand(alice: Person) -> None:
    """The compiled script under sbatch is the same job; status and logs know it by its id."""
    alice.run(
        "sh",
        "-c",
        f"slurmkit compile {' '.join(ONE)} 'payload.command=[hostname]' {alice.new_name()} >job.sbatch",
    )
    job = alice.run("sbatch", "--parsable", "job.sbatch").stdout.strip()
    # It has a folder from its start on.
    wait_until(lambda: alice.slurmkit("status", job, code=None).returncode == 0, 60, f"job {job} to start")
    (point,) = alice.wait_ended(job)
    assert (point["state"], str(point["job"])) == ("COMPLETED", job)
    assert alice.slurmkit("logs", job).stdout.startswith("c")
    state = alice.cluster.accounted("State", job=job)
    assert state == [["COMPLETED"]], "one life, and Slurm says the same"


@pytest.mark.feature("Sweep: one job array for all points; each has its own result")
def test_a_sweep_is_one_array(cluster: Cluster, alice: Person) -> None:
    """Twelve points over eight hosts: one job, one log each, and a point that fails is the one that failed."""
    code = "import sys; x = int(sys.argv[1].partition('=')[2]); print('x is', x); sys.exit(x == 7)"
    words = (*ONE, command("python3", "-c", code), "+x=" + ",".join(map(str, range(12))))
    run = alice.slurmkit("submit", "-m", alice.new_name(), *words).stdout.strip()
    alice.wait_ended(run)
    states = ["FAILED" if number == 7 else "COMPLETED" for number in range(12)]
    assert [alice.log(run, number).split()[2] for number in range(12)] == [
        str(number) for number in range(12)
    ]
    assert len(alice.attempts(run)) == 1
    alice.agree(run, states)
    assert "11 COMPLETED, 1 FAILED" in alice.slurmkit("status", run).stderr


@pytest.mark.feature("Any Hydra app that starts on its Python is launched with hydra/launcher=slurmkit")
def test_an_app_of_somebody_else(cluster: Cluster, alice: Person) -> None:
    """Its task function runs on a node, and what it returns is the point's result."""
    alice.run("sh", "-c", "cat >app.py", stdin=APP)
    launcher = ("hydra/launcher=slurmkit", "hydra/sweeper=slurmkit", "hydra.launcher.resources.time=5")
    alice.run("python3", "app.py", "-m", *launcher, f"hydra.job.{alice.new_name()}", "+x=1,2")
    run = alice.run("sh", "-c", "ls -d $PWD/runs/*/").stdout.strip().rstrip("/")
    alice.wait_ended(run)
    results = [json.loads(cluster.read(f"{run}/points/0/{number}/result.json")) for number in (0, 1)]
    assert [result["value"] for result in results] == [2, 4], results
    alice.agree(run, ["COMPLETED", "COMPLETED"])
