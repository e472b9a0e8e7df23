"""Nodes that die, and nodes that come back too late: a training run goes on elsewhere, and nothing is done twice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from cluster import ENDED, shell
from held import SWEEP
from polling import wait_until
from tiny import STEPS
from training import Training, assert_same_end, prepare, train

if TYPE_CHECKING:
    from cluster import Cluster, Person

#: Each step is committed: what is lost with a node is at most the step that it was in.
EVERY_STEP = "trainer.checkpoint.every=1"
#: In each of two passes a step, so that the first life is not over before Slurm gives its node up.
REST = 1.2


@pytest.fixture(scope="module")
def person(cluster: Cluster) -> Person:
    """Alice, in a folder of all these runs."""
    alice = cluster.person("nodes")
    prepare(alice)
    return alice


@dataclass(frozen=True)
class Ended:
    """The runs, and what the one whose node thawed had made before and after that.

    Attributes:
        seen: what ``slurmkit status`` said of the one whose node died, from then on: state and restarts.
        sweep: its points ran there too.
        struck: those of them that were on the node that died.
    """

    runs: dict[str, Training]
    seen: list[tuple[str, str]]
    before: dict[str, object]
    after: dict[str, object]
    sweep: str
    struck: list[int]


@pytest.fixture(scope="module")
def ended(cluster: Cluster, person: Person) -> Ended:
    """All runs of this module side by side: two lose a node, one of which thaws once all have ended elsewhere."""
    runs = {
        "killed": train(person, "resources.nodes=2", "resources.exclude='c[5-8]'", EVERY_STEP, rest=REST),
        "frozen": train(person, "resources.exclude='c[1-4],c[7-8]'", EVERY_STEP, rest=REST),
        "undisturbed": train(person, "resources.nodelist=c8", rest=0),
        "undisturbed two": train(person, "resources.nodes=2", "resources.nodelist='c[7-8]'", rest=0),
    }
    for name in ("killed", "frozen"):
        runs[name].wait_step(3)
    sweep = person.submit(
        *SWEEP, "resources.exclude='c[5-8]'", shell("until [ -e go ]; do sleep 0.2; done; echo done")
    )
    wait_until(
        lambda: {point["state"] for point in person.status(sweep)} == {"RUNNING"}, 60, "the sweep to run"
    )
    frozen, node = runs["frozen"], first_node(runs["frozen"])
    dead = first_node(runs["killed"])
    struck = [point["point"] for point in person.status(sweep) if point["nodes"] == dead]
    cluster.kill(dead)
    cluster.pause(node)
    person.run("touch", "go")
    try:
        seen = watch(runs["killed"])
        for run in runs.values():
            run.wait_ended()
        person.wait_ended(sweep)
        before = made(cluster, frozen)
        assert ranks_on(cluster, node), "its old life is frozen, and not dead"
    finally:
        cluster.unpause(node)
    wait_until(lambda: not ranks_on(cluster, node), 90, f"the superseded life on {node} to end; {frozen.log}")
    # slurmctld need not ping a node that it has given up, and slurmd registers when it likes: an admin does not wait.
    # Where it is back already there is nothing to resume.
    cluster.run("scontrol", "update", f"nodename={node}", "state=resume", code=None)
    wait_until(lambda: cluster.node(node)["State"] == "IDLE", 60, f"{node} to be idle again")
    return Ended(runs, seen, before, made(cluster, frozen), sweep, struck)


def watch(run: Training) -> list[tuple[str, str]]:
    """What status says of a run until it is over, without repetition."""
    seen: list[tuple[str, str]] = []

    def over() -> bool:
        _, _, state, _, restarts, *_ = run.person.slurmkit("status", run.run).stdout.split("\t")
        if (state, restarts) not in seen:
            seen.append((state, restarts))
        return state in ENDED

    wait_until(over, 200, lambda: f"{run.run} to end; {seen}; {run.log}")
    return seen


def first_node(run: Training) -> str:
    """Where rank 0 of the first life was."""
    node: str = run.events("start")[0]["nodes"][0]
    return node


def assert_went_elsewhere(cluster: Cluster, run: Training, undisturbed: Training) -> None:
    """Slurm requeued it for its node, it resumed without that, and what it computed is that of an undisturbed run."""
    assert_same_end(run, undisturbed)
    first, second = run.events("start")
    assert first["nodes"][0] not in second["nodes"]
    (resumed,) = run.events("resume")
    # Each step is committed before the next one ends: no more than that one is done again.
    done = max(line["step"] for line in run.person.lines(run.run, "metrics.jsonl") if not line["restart"])
    assert resumed["step"] >= max(3, done - 1)
    assert not run.events("requeue"), "the node was gone: nobody was there to ask for it"
    lives = [row[0].split()[0] for row in cluster.accounted("State", job=run.job)]
    assert lives == ["NODE_FAIL", "COMPLETED"]
    (row,) = run.person.slurmkit("status", run.run).stdout.splitlines()
    state, nodes, restarts = row.split("\t")[2:5]
    assert (state, restarts) == ("COMPLETED", "1")
    assert cluster.run("scontrol", "show", "hostnames", nodes).stdout.split() == second["nodes"]


@pytest.mark.feature("A node dies: the job is requeued, and the run resumes elsewhere from its last commit")
def test_a_node_that_dies(cluster: Cluster, ended: Ended) -> None:
    """The host of rank 0 is killed: the run goes on elsewhere from its last commit, and ends bit-identical.

    Who looks on never sees an end that is none: it runs, waits in the queue, runs again, and is over.
    """
    assert_went_elsewhere(cluster, ended.runs["killed"], ended.runs["undisturbed two"])
    assert [one for one in ended.seen if one[0] != "COMPLETING"] == [
        ("RUNNING", "0"),
        ("PENDING", "1"),
        ("RUNNING", "1"),
        ("COMPLETED", "1"),
    ]


@pytest.mark.feature("A node dies under a sweep: its points are requeued and run elsewhere, the others go on")
def test_a_node_that_dies_under_a_sweep(person: Person, ended: Ended) -> None:
    """Each point was done once; those of the dead node in a second life."""
    points = person.status(ended.sweep)
    assert ended.struck
    assert [point["restarts"] for point in points] == [
        int(point["point"] in ended.struck) for point in points
    ]
    assert [person.log(ended.sweep, point) for point in range(3)] == ["done\n"] * 3
    person.agree(ended.sweep, ["COMPLETED"] * 3)


@pytest.mark.feature("A node hangs, is given up and comes back: what its job still writes does not count")
def test_a_node_that_comes_back_too_late(cluster: Cluster, ended: Ended) -> None:
    """A frozen host is given up, thaws after its job has ended elsewhere, and cannot touch what that has made."""
    assert_went_elsewhere(cluster, ended.runs["frozen"], ended.runs["undisturbed"])
    assert ended.after == ended.before


def ranks_on(cluster: Cluster, node: str) -> list[str]:
    """The processes of the trainer on a host, frozen or not."""
    listed = cluster.docker("top", f"{cluster.name}-{node}", "-eo", "pid,args")
    return [line for line in listed.splitlines() if "-m trainer" in line]


def made(cluster: Cluster, run: Training) -> dict[str, object]:
    """What counts of a run: its result, and each commit with the life that made it, the second in all of them."""
    listed = cluster.run("sh", "-c", f"cd {run.point}/checkpoints && ls -d step-*").stdout.split()
    lives = {
        name: json.loads(cluster.read(f"{run.point}/checkpoints/{name}/COMMIT"))["life"] for name in listed
    }
    result = json.loads(cluster.read(f"{run.point}/result.json"))
    assert {life["restart"] for life in (*lives.values(), result)} == {1}
    assert f"step-{STEPS:08}" in lives
    return {"commits": lives, "result": result}
