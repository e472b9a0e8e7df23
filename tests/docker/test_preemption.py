"""Training runs that Slurm interrupts end as if nothing had happened; one that a person ends stays dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from polling import wait_until
from tiny import STEPS
from training import REST, Training, assert_resumed, assert_same_end, prepare, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster import Cluster, Person

#: All of them start six PyTorch at once: on a machine that does other things too, that takes minutes.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def person(cluster: Cluster) -> Person:
    """Alice, in a folder of all these runs."""
    alice = cluster.person("preemption")
    prepare(alice)
    return alice


def urgent(person: Person, nodes: str) -> None:
    """A job of a QOS that preempts takes nodes, for a moment."""
    words = ("--qos=high", f"--nodelist={nodes}", "--exclusive", "--time=1", "--output=/dev/null")
    person.run("sbatch", *words, "--wrap=true")


def submit(person: Person, nodes: str, qos: str = "normal", rest: float = REST) -> Training:
    """A run on just these nodes."""
    where = (f"resources.nodelist='{nodes}'", f"resources.nodes={nodes.count(',') + 1}")
    return train(person, *where, f"resources.qos={qos}", rest=rest)


@pytest.fixture(scope="module")
def graced(person: Person) -> dict[str, Training]:
    """A run over two leaves that is preempted with grace, and one that nothing disturbs; both have ended."""
    runs = {"preempted": submit(person, "c1,c5", "low"), "undisturbed": submit(person, "c7,c8", rest=0)}
    runs["preempted"].wait_step(2)
    urgent(person, "c1,c5")
    for run in runs.values():
        run.wait_ended()
    return runs


@pytest.fixture(scope="module")
def ended(cluster: Cluster, person: Person) -> dict[str, Training]:
    """Runs of one node side by side, each hit in its own way after a few steps, and ended."""
    runs = {
        "no grace": submit(person, "c2", "now"),
        "time limit": submit(person, "c3"),
        "scancel": submit(person, "c4", "low"),
    }
    runs["no grace"].wait_step(2)
    urgent(person, "c2")
    limit = runs["time limit"]
    limit.wait_step(2)
    # Slurm looks at the limits twice a minute, and the moved one would end the next life too.
    cluster.run("scontrol", "update", f"jobid={limit.job}", "endtime=now")
    runs["scancel"].wait_step(2)
    person.run("scancel", runs["scancel"].job)
    runs["undisturbed"] = submit(person, "c6", rest=0)
    limit.wait_event("requeue")
    longer = ("scontrol", "update", f"jobid={limit.job}", "timelimit=10")
    wait_until(
        lambda: not cluster.run(*longer, code=None).returncode or limit.last_step() == STEPS,
        60,
        "Slurm to take the limit, or a quick second life to be over",
    )
    for run in runs.values():
        run.wait_ended()
    return runs


@pytest.mark.core
@pytest.mark.feature(
    "Preemption by QOS with GraceTime: a run saves, is requeued, and resumes at the next sample"
)
def test_preemption_with_grace(graced: dict[str, Training]) -> None:
    """In the grace of a preemption SIGTERM comes: the run saves, requeues, and ends bit-identical."""
    run = graced["preempted"]
    assert_resumed(run, "preempted", graced["undisturbed"])
    assert "SIGTERM" in run.events("signal")[0]["signals"]
    assert "preempted: job" in run.log


@pytest.mark.feature("Preemption with GraceTime=0: Slurm requeues the job at once, the run saves and resumes")
def test_preemption_without_grace(ended: dict[str, Training]) -> None:
    """Without grace Slurm has requeued the job already: the run saves, asks for nothing, and ends bit-identical."""
    run = ended["no grace"]
    (stopped,) = run.events("stop")
    assert stopped["cause"] == "requeued by Slurm already", run.log
    assert not run.events("requeue")
    assert_same_end(run, ended["undisturbed"])


@pytest.mark.feature("The time limit: a run saves, requeues itself and resumes")
def test_the_time_limit(ended: dict[str, Training]) -> None:
    """At the limit the run saves, requeues itself, says why, and ends bit-identical."""
    assert_resumed(ended["time limit"], "time limit", ended["undisturbed"])


@pytest.mark.feature("scancel ends a run for good; it saves first")
def test_scancel(ended: dict[str, Training]) -> None:
    """``scancel`` ends a run for good: it saves, says why, and never comes back."""
    run = ended["scancel"]
    (stopped,) = run.events("stop")
    assert (stopped["cause"], stopped["code"]) == ("cancelled", 143), run.log
    assert run.events("checkpoint")[-1]["step"] == stopped["step"] >= 2
    assert not run.events("requeue")
    (point,) = run.person.status(run.run)
    assert point["restarts"] == 0
    run.person.agree(run.run, ["CANCELLED"])


@pytest.mark.feature(
    "Preemption with send_user_signal: the signal of --signal comes instead of SIGTERM, and the run resumes"
)
def test_preemption_with_the_users_signal(
    cluster: Cluster, person: Person, ended: dict[str, Training], difference: Callable[..., None]
) -> None:
    """Where the site sends the user's own signal, SIGUSR1 comes in the grace: the same save, requeue and resume."""
    if cluster.release == "22.05":
        setting = "SlurmctldParameters=enable_configless,cloud_dns,preempt_send_user_signal"
    else:
        setting = "PreemptParameters=send_user_signal"
    with cluster.settings(setting):
        run = submit(person, "c2", "low")
        run.wait_step(2)
        urgent(person, "c2")
        run.wait_event("requeue")
        run.wait_ended()
    assert run.events("signal")[0]["signals"] == ["SIGUSR1"], run.log
    where, handled = setting.partition("=")[0], "slurmkit/lab/config.py:_PREEMPT_PARAMETERS_SINCE"
    difference("`send_user_signal` is a word of", where, handled=handled)
    assert_resumed(run, "preempted", ended["undisturbed"])
