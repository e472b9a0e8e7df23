"""A real Slurm for the tests in this folder: ``lab`` for the session, ``start_lab`` for other shapes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from guard import end_labs, guard
from polling import wait_until

from slurmkit.errors import MissingProgramError
from slurmkit.lab import machine
from slurmkit.lab.daemons import Lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def lab_folder() -> Iterator[Path]:
    """A folder for labs, short and reachable by every user; it must be empty at the end.

    Where the end does not come, as after ``kill -9`` of this process, a guard ends the labs in it.
    """
    try:
        machine.find_programs(accounting=False)
    except MissingProgramError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI runs the lab tests: {error}; {error.hint}")
        pytest.skip(f"{error}; {error.hint}")
    folder = Path(tempfile.mkdtemp(prefix="slurmkit-test-", dir="/tmp"))
    folder.chmod(0o755)
    guard(folder)
    yield folder
    left = [path.name for path in folder.iterdir()]
    end_labs(folder)
    assert not left, f"labs were not ended: {left}"


@pytest.fixture(scope="session")
def start_lab(lab_folder: Path) -> Iterator[Callable[..., Lab]]:
    """Start a lab of another shape: takes the arguments of ``Lab.up``, and ends it with the session."""
    names: list[str] = []

    def start(name: str = "", **shape: object) -> Lab:
        name = name or f"t{os.getpid()}-{len(names)}"
        names.append(name)
        return Lab.up(name, folder=lab_folder, **shape)

    yield start
    for name in names:
        Lab.end(name, lab_folder)


@pytest.fixture(scope="session")
def lab(start_lab: Callable[..., Lab]) -> Lab:
    """The lab that all tests share: 8 nodes of 4 GPUs, 4 nodes a leaf. Each test gets it idle."""
    return start_lab(f"t{os.getpid()}")


@pytest.fixture
def as_root(missing: Callable[[str], None]) -> None:
    """For a test that mounts, or becomes another user; CI runs as root."""
    if os.getuid() != 0:
        missing("only root can mount a file system or become another user")


@pytest.fixture(autouse=True)
def _idle_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test leaves in the shared lab is gone before the next one begins."""
    yield
    if "lab" not in request.fixturenames:
        return
    lab: Lab = request.getfixturevalue("lab")
    try:
        _make_idle(lab)
    except AssertionError as error:  # the report comes after the lab has ended, where this was the last test
        raise AssertionError(f"{error}\n{lab.diagnostics()}") from None


def _make_idle(lab: Lab) -> None:
    def gone() -> bool:
        if not lab.run(["squeue", "--noheader"]).stdout:
            return True
        # Again and again: what a job does on SIGTERM may be to requeue itself.
        for partition in ("low", "high"):
            lab.run(["scancel", f"--partition={partition}"], check=False)
            lab.run(["scancel", f"--partition={partition}", "--signal=KILL", "--full"], check=False)
        return False

    # A job that is cancelled just as it starts can stay COMPLETING until slurmctld asks its nodes again,
    # which is a minute later; of a node that is down it asks nothing.
    try:
        wait_until(gone, 3, "the jobs of a test to be gone")
    except AssertionError:
        lab.run(["scontrol", "update", "nodename=ALL", "state=down", "reason=test"])
        wait_until(gone, 10, "the jobs of a test to be gone with their nodes")
    unfit = ["sinfo", "--noheader", "--Node", "--states=drain,down,fail", "--format=%N"]
    if unfit_nodes := sorted(set(lab.run(unfit).stdout.split())):
        lab.run(["scontrol", "update", f"nodename={','.join(unfit_nodes)}", "state=resume"])
    wait_until(lambda: set(lab.status().nodes or ()) == {"idle"}, 30, "all nodes to be idle after a test")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add what explains a failure to its report: nodes, jobs and the tails of the logs."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Lab) and value.root.exists():
                report.sections.append((f"lab {value.name}", value.diagnostics()))
