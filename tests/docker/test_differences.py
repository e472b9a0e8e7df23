"""What each release does in its own way, asked of it now, beside the code that copes with it.

A probe asserts nothing about the answer but that there is one: what our code makes of it is the promise of other
tests. The answers become a table of docs/compatibility.md.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from polling import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster import Cluster, Person

    Note = Callable[..., None]

HELD = ("sbatch", "--parsable", "--hold", "--output=/dev/null", "--mem=100M")
#: Ends well at once when SIGTERM comes, as a program does that was made for it; notes each of its lives.
LIVES = "trap 'exit 0' TERM; echo life >>lives; [ $(wc -l <lives) -gt 1 ] || { sleep 300 & wait; }"


def held(alice: Person, cluster: Cluster, *options: str) -> dict[str, str]:
    """What Slurm shows of a job that waits."""
    return cluster.job(alice.run(*HELD, *options, "--wrap=true").stdout.strip())


def told(alice: Person, code: str) -> str:
    """What a line of Python is refused with; nothing where it works."""
    done = alice.run("python3", "-c", code, code=None)
    return done.stderr if done.returncode else ""


def test_how_jobs_are_shown(cluster: Cluster, alice: Person, difference: Note) -> None:
    """The fields of ``scontrol show job`` that a job is read back by are those that we know."""
    exclusive = held(alice, cluster, "--exclusive=user")
    shown = " ".join(f"{key}={exclusive[key]}" for key in ("OverSubscribe", "Exclusive") if key in exclusive)
    difference("`--exclusive=user` is shown as", shown, handled="slurmkit/launch/readback.py:differences")
    gpus = held(alice, cluster, "--gpus-per-node=a100:1")
    key, kind = next(
        (key, match[0])
        for key in ("ReqTRES", "TRES", "TresPerNode")
        if (match := re.search(r"gres[:/]gpu", gpus.get(key, "")))
    )
    difference("GPUs of a job are shown as", f"{key}=…{kind}…", handled="slurmkit/launch/readback.py:_gres")


def test_which_nodes_are_shown(cluster: Cluster, difference: Note) -> None:
    """A cloud node that is off is hidden, or shown as such; ``scontrol show topology`` names our switches."""
    shown = cluster.run("scontrol", "--oneliner", "show", "node").stdout
    difference(
        "Cloud nodes that are off are",
        "shown" if "NodeName=p1 " in shown else "hidden",
        handled="slurmkit/compiler/preflight.py:_nodes",
    )
    topology = cluster.run("scontrol", "show", "topology").stdout
    assert len(re.findall(r"^SwitchName=leaf\d .*Nodes=", topology, re.MULTILINE)) == 3


def test_who_requeues_after_the_grace(cluster: Cluster, alice: Person, difference: Note) -> None:
    """A step that ends with 0 in the grace of its preemption, and asks for nothing, comes back, or does not."""
    options = (
        "--qos=low",
        "--nodelist=c3",
        "--requeue",
        "--output=/dev/null",
        "--mem=100M",
        f"--wrap=srun bash -c {shlex.quote(LIVES)}",  # only steps get the signal
    )
    job = alice.run("sbatch", "--parsable", *options).stdout.strip()
    wait_until(lambda: cluster.read(f"{alice.cwd}/lives"), 60, "the program to begin")
    preempt = ("--qos=high", "--nodelist=c3", "--exclusive", "--time=1", "--output=/dev/null")
    alice.run("sbatch", *preempt, "--wrap=true")
    wait_until(lambda: cluster.job(job).get("JobState") == "COMPLETED", 120, "the program to end")
    lives = cluster.read(f"{alice.cwd}/lives").count("life")
    difference(
        "A job that ends with 0 in the grace of its preemption",
        "is COMPLETED" if lives == 1 else "is requeued by Slurm",
        handled="slurmkit/runtime/grace.py:brings_back",
    )


def test_what_is_around_slurm(cluster: Cluster, alice: Person, difference: Note) -> None:
    """PyTorch's store, Python's command lines and MPI as this system has them."""
    store = (
        "import torch.distributed as d; d.TCPStore('localhost', 0, is_master=True, wait_for_workers=False)"
    )
    refused = told(alice, store)
    assert not refused or "libuv" in refused, refused
    difference(
        "PyTorch's default TCPStore",
        "is refused: no libuv" if refused else "works",
        handled="trainer/distributed.py:_tcp_store",
    )
    pmix = "pmix" in (said := cluster.run("srun", "--mpi=list")).stdout + said.stderr
    difference(
        "`srun --mpi=pmix` in Debian's Slurm",
        "works" if pmix else "no such plugin is built",
    )
    hydra = "import hydra; from hydra._internal.utils import get_args_parser as g; g()"
    refused = told(alice, hydra)
    assert not refused or "badly formed help string" in refused, refused
    difference(
        "An `@hydra.main` of your own",
        "Python 3.14: starts with one line more (docs/hydra.md)" if refused else "starts",
        handled="trainer/__main__.py:_let_hydra_parse",
    )
