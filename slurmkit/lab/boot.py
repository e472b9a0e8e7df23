"""Start the daemons of a lab one after another, each as soon as the one before it answers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, TypeVar

from slurmkit.errors import LabError
from slurmkit.lab.config import lab_files
from slurmkit.lab.processes import MARK, spawn, started, tail
from slurmkit.lab.record import Daemon
from slurmkit.lab.report import answer, node_states
from slurmkit.paths import data_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from slurmkit.lab.record import Record

__all__ = ["boot", "write_files"]

T = TypeVar("T")

_TIMEOUT = 60.0
_POLL = 0.05
_ONE_SLURMD = (
    "this Slurm cannot run several slurmd on one host: that was not compiled in",
    "build Slurm with ./configure --enable-multiple-slurmd, or take Debian's packages",
)
_SECRET = frozenset({"slurmdbd.conf", "munge.key"})


def write_files(lab: Record) -> None:
    """Write the configuration, the hooks and the folders that the daemons expect."""
    for folder in ("etc", "hooks", "hooks/state", "log"):
        (lab.root / folder).mkdir()
    (lab.root / "state").mkdir(mode=0o700)
    for name in lab.spec.shape.node_names:
        (lab.run / "spool" / name).mkdir(parents=True)
    for source in data_dir("prolog_epilog").iterdir():
        if source.is_file():
            shutil.copy(source, lab.root / "hooks")
    for relative, text in lab_files(lab.spec).items():
        _write(lab.root / relative, text.encode())
    for name in ("prolog", "epilog"):  # an archive may have lost the bit, and slurmd would drain every node
        hook = lab.root / "hooks" / name
        hook.chmod(0o755)
        if not os.access(hook, os.X_OK):
            raise LabError(
                f"nothing can be run from {lab.root}, as from a file system that is mounted noexec",
                "set SLURMKIT_LAB_DIR to a folder elsewhere",
            )
    _write(lab.root / "munge.key", os.urandom(128))


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600 if path.name in _SECRET else 0o644)
    path.write_bytes(content)


def boot(lab: Record, programs: Mapping[str, str], note: Callable[[str], None]) -> None:
    """Start every daemon and wait until all nodes are idle.

    Args:
        lab: where they are recorded.
        programs: the absolute path of each program.
        note: told each step, in a line.

    Raises:
        LabError: if one dies or does not answer; those already started go on.
    """
    start = _Boot(lab)
    start.munged(programs)
    if lab.spec.shape.accounting:
        start.database(programs)
        note(f"lab {lab.name}: slurmdbd answers")
    start.slurm(programs)
    if lab.spec.shape.accounting:
        start.wait_for(
            lambda: lab.name in (answer(lab, "sacctmgr", "-n", "show", "cluster") or ""),
            "slurmdbd to know it",
        )
        start.wait_for(lambda: answer(lab, "sacct", "-n") is not None, "sacct to answer")


class _Boot:
    """The steps of a start."""

    def __init__(self, lab: Record) -> None:
        self.lab = lab
        self.env = {**lab.env, "LC_ALL": "C", MARK: str(lab.root)}

    def munged(self, programs: Mapping[str, str]) -> None:
        listening = self.lab.run / "munge.sock"
        self.launch(
            "munged",
            programs["munged"],
            "--foreground",
            "--force",  # it would rather not live under a folder that others can write to
            f"--socket={listening}",
            f"--key-file={self.lab.root}/munge.key",
            f"--pid-file={self.lab.run}/munged.pid",
            f"--log-file={self.lab.root}/log/munged.log",
            f"--seed-file={self.lab.root}/munge.seed",
        )
        self.wait_for(lambda: _connects(listening), "munged to listen")

    def database(self, programs: Mapping[str, str]) -> None:
        """Start a MariaDB that only this user can reach, and slurmdbd on it."""
        private = self.lab.run / "db"
        private.mkdir(mode=0o700)
        listening = private / "db.sock"
        data = self.lab.root / "db"
        data.mkdir(mode=0o700)
        user = [f"--user={self.lab.spec.user}"] if os.getuid() == 0 else []
        common = ["--no-defaults", f"--datadir={data}", f"--tmpdir={private}", *user]
        self.make_tables(
            [
                programs["mariadb-install-db"],
                *common,
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]
        )
        self.launch(
            "mariadbd",
            programs["mariadbd"],
            *common,
            "--skip-networking",
            f"--socket={listening}",
            f"--pid-file={private}/mariadbd.pid",
            f"--init-file={self.lab.root}/etc/mariadb.sql",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-doublewrite=0",
        )
        self.wait_for(lambda: _connects(listening), "MariaDB to listen")
        self.launch("slurmdbd", programs["slurmdbd"], "-D", MYSQL_UNIX_PORT=str(listening))
        self.wait_for(
            lambda: answer(self.lab, "sacctmgr", "-n", "show", "cluster") is not None, "slurmdbd to answer"
        )

    def make_tables(self, argv: Sequence[str]) -> None:
        try:
            made = subprocess.run(
                argv, capture_output=True, text=True, check=False, env=self.env, timeout=_TIMEOUT
            )
        except subprocess.TimeoutExpired as error:
            raise LabError(
                f"mariadb-install-db did not end in {_TIMEOUT:.0f} s",
                "try again when the machine is less busy",
            ) from error
        if made.returncode:
            raise LabError(
                f"mariadb-install-db exited {made.returncode}",
                "its words are below",
                made.stdout + made.stderr,
            )

    def slurm(self, programs: Mapping[str, str]) -> None:
        conf = str(self.lab.conf)
        self.launch("slurmctld", programs["slurmctld"], "-D", "-i", "-f", conf)
        self.wait_for(lambda: "UP" in (answer(self.lab, "scontrol", "ping") or ""), "slurmctld to answer")
        settings = self.wait_for(
            lambda: answer(self.lab, "scontrol", "show", "config"), "slurmctld to tell its settings"
        )
        if "MULTIPLE_SLURMD" not in settings:
            raise LabError(*_ONE_SLURMD)
        for name in self.lab.spec.shape.node_names:
            self.launch(f"slurmd {name}", programs["slurmd"], "-D", "-N", name, "-f", conf)
        idle = ["idle"] * self.lab.spec.shape.nodes
        states = node_states(self.lab.spec.shape)
        self.wait_for(
            lambda: (answer(self.lab, *states) or "").split() == idle, f"all {len(idle)} nodes to be idle"
        )

    def launch(self, name: str, *argv: str, **variables: str) -> None:
        log = self.lab.root / "log" / f"{name.rpartition(' ')[2]}.out"
        pid = spawn(argv, env={**self.env, **variables}, cwd=self.lab.root, output=log)
        self.lab.daemons.append(Daemon(name, pid, started(pid) or 0, str(log)))
        self.lab.save()

    def wait_for(self, ready: Callable[[], T | None], what: str) -> T:
        """Poll until something true comes, watching the daemons meanwhile."""
        deadline = time.monotonic() + _TIMEOUT
        while not (value := ready()):
            for daemon in self.lab.daemons:
                if not daemon.alive:
                    raise LabError(
                        f"{daemon.name} of lab {self.lab.name} died while we waited for {what}",
                        "its last words are below",
                        tail(daemon.log),
                    )
            if time.monotonic() > deadline:
                newest = self.lab.daemons[-1]
                raise LabError(
                    f"waited {_TIMEOUT:.0f} s in vain for {what} in lab {self.lab.name}",
                    f"the last words of {newest.name} are below",
                    tail(newest.log),
                )
            time.sleep(_POLL)
        return value


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
