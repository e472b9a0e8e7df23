"""One cluster of containers for the session, idle before each test; ``--slurm`` says of which release."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import signal
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster import NODES, Cluster, Person
from compatibility import Results, code_here
from polling import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RESULTS = pytest.StashKey[Results]()
_DONE = pytest.StashKey[set[str]]()
#: That a cluster takes from its image to idle nodes.
_MOST_SECONDS = 60
#: Another checkout on the same daemon has clusters of its own.
_CHECKOUT = zlib.crc32(str(Path(__file__).resolve().parent).encode())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slurm", default="22.05", help="the release: 22.05, 24.11 or 26.05")
    parser.addoption(
        "--cluster", default="", help="take this running cluster, by its name, and leave it running"
    )


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster as ``make cluster-up`` starts it, with the hooks that an admin has installed."""
    if (
        not shutil.which("docker")
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        reason = "no Docker daemon answers: docker info tells why"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    release, running = request.config.getoption("--slurm"), request.config.getoption("--cluster")
    made = Cluster(release, running or f"slurmkit-test-{release.replace('.', '')}-{_CHECKOUT:x}")
    results = request.config.stash[_RESULTS]
    with contextlib.ExitStack() as after:
        if not running:
            made.script("down")  # what a session that was killed has left, with its settings
            after.callback(made.script, "down")
            results.up = int(made.script("up").rpartition("all nodes idle, after ")[2].split()[0])
            assert results.up < _MOST_SECONDS, f"the cluster took {results.up} s to be up"
        results.slurm = made.run("scontrol", "--version").stdout.split()[1]
        assert results.slurm.startswith(f"{release}."), f"this is Slurm {results.slurm}"
        system = 'echo "$PRETTY_NAME"; python3 -c "import platform; print(platform.python_version())"'
        name, python = made.run("sh", "-c", f". /etc/os-release; {system}").stdout.splitlines()
        results.system = f"{name.replace(' GNU/Linux', '')}, Python {python}"
        yield made


@pytest.fixture
def alice(cluster: Cluster, request: pytest.FixtureRequest) -> Person:
    """A user who may use every QOS, in a folder of this test."""
    return cluster.person(request.node.name.replace("[", "-").strip("]"))


@pytest.fixture
def bob(cluster: Cluster, request: pytest.FixtureRequest) -> Person:
    """Another user, in a folder of this test."""
    return cluster.person(request.node.name.replace("[", "-").strip("]"), "bob")


@pytest.fixture(scope="module", autouse=True)
def _idle_at_first(cluster: Cluster) -> None:
    """What a module's fixture has left when it failed is gone before the next module begins."""
    make_idle(cluster)


@pytest.fixture(autouse=True)
def _idle_again(cluster: Cluster) -> Iterator[None]:
    """Whatever a test leaves is gone before the next one begins; hosts that it let die are started."""
    yield
    make_idle(cluster)


@pytest.fixture(scope="module")
def idle_at_last(cluster: Cluster) -> Iterator[None]:
    """For a module whose tests leave nodes ill to the next one: all is idle again at its end."""
    yield
    make_idle(cluster)


def make_idle(cluster: Cluster) -> None:
    """End all jobs, start every host, and wait until all nodes are idle."""
    for host in ("db", "slurmdbd", "slurmctld", "login", *NODES):
        cluster.unpause(host)
        if not cluster.running(host):
            cluster.start(host)
    wait_until(cluster.answers, 60, "slurmctld to answer")

    def gone() -> bool:
        if not cluster.run("squeue", "--noheader").stdout:
            return True
        for partition in ("main", "cloud"):  # a list of them is no partition, and no error
            cluster.run("scancel", f"--partition={partition}", code=None)
            cluster.run("scancel", f"--partition={partition}", "--signal=KILL", "--full", code=None)
        return False

    try:
        wait_until(gone, 10, "the jobs of a test to be gone")
    except AssertionError:  # of a node that is down slurmctld asks nothing
        cluster.run("scontrol", "update", f"nodename={','.join(NODES)}", "state=down", "reason=test")
        wait_until(gone, 20, "the jobs of a test to be gone with their nodes")

    def idle() -> bool:
        states = cluster.run(
            "sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %t"
        ).stdout.split()
        unfit = [node for node, state in zip(states[::2], states[1::2], strict=True) if state != "idle"]
        if unfit:
            cluster.run("scontrol", "update", f"nodename={','.join(unfit)}", "state=resume", code=None)
        return not unfit

    wait_until(idle, 60, "all nodes to be idle after a test")


@pytest.fixture
def absent(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Note that this release was built without the feature of the test, which has seen what its user sees then."""

    def note() -> None:
        for marker in request.node.iter_markers("feature"):
            request.config.stash[_RESULTS].add(marker.args[0], "absent")

    return note


@pytest.fixture
def difference(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Note what this release does in its own way, for the page: see ``Results.differs``."""
    differs = request.config.stash[_RESULTS].differs

    def note(topic: str, seen: str, *, handled: str = "") -> None:
        differs(topic, seen, handled)

    return note


def pytest_configure(config: pytest.Config) -> None:
    """CI ends us with SIGTERM when its time is over: as after Ctrl-C no cluster is left."""
    config.stash[_RESULTS] = Results(config.getoption("--slurm"))
    config.stash[_DONE] = set()
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add what explains a failure to its report, and note how a feature did."""
    outcome = yield
    report = outcome.get_result()
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        report.sections.append((f"cluster {cluster.name}", cluster.diagnostics()))
    if report.when == "teardown":
        item.config.stash[_DONE].add(item.nodeid)
    if report.when == "call" or report.outcome != "passed":
        for marker in item.iter_markers("feature"):
            item.config.stash[_RESULTS].add(marker.args[0], report.outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave what was found for the page; it is whole only if every test of the folder has run to its end."""
    results, config = session.config.stash[_RESULTS], session.config
    results.complete = results.is_whole(
        chosen=bool(config.option.keyword or config.option.markexpr or config.option.deselect),
        files={item.path for item in session.items},
        left={item.nodeid for item in session.items} - config.stash[_DONE],
    )
    results.code = code_here()
    results.date = dt.datetime.now(tz=dt.timezone.utc).strftime("%Y-%m-%d")
    if results.slurm:
        results.save()
