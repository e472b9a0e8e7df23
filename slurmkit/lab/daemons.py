"""A lab: start it, find it again, run commands in it, end it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from slurmkit.errors import LabError
from slurmkit.lab import machine
from slurmkit.lab.boot import boot, write_files
from slurmkit.lab.config import LabShape, LabSpec, check_path, release_name
from slurmkit.lab.ports import claim, free_ports
from slurmkit.lab.record import Record, remove_lab
from slurmkit.lab.report import LabStatus, diagnose, read_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Lab"]


def _silent(_: str) -> None:
    pass


class Lab:
    """A running Slurm of its own.

    ::

        lab = Lab.up("demo", nodes=2)
        print(lab.run(["sinfo"]).stdout)
        lab.down()
    """

    def __init__(self, record: Record) -> None:
        self._record = record

    @property
    def name(self) -> str:
        """What tells it from other labs."""
        return self._record.name

    @property
    def spec(self) -> LabSpec:
        """Its shape and places."""
        return self._record.spec

    @property
    def root(self) -> Path:
        """Its folder."""
        return self._record.root

    @property
    def conf(self) -> Path:
        """Its slurm.conf."""
        return self._record.conf

    @property
    def pids(self) -> dict[str, int]:
        """The process of each daemon: ``munged``, ``slurmctld``, ``slurmd n1`` and so on."""
        return {daemon.name: daemon.pid for daemon in self._record.daemons}

    @property
    def hook_state(self) -> Path:
        """Where Prolog and Epilog write: one folder a node."""
        return self.root / "hooks" / "state"

    @property
    def env(self) -> dict[str, str]:
        """Our environment, turned towards this lab, without what an outer job says to Slurm's commands."""
        return self._record.env

    @property
    def export_line(self) -> str:
        """The line that turns a shell towards this lab."""
        return f"export SLURM_CONF={self.conf}"

    @classmethod
    def up(
        cls,
        name: str = "lab",
        *,
        nodes: int | None = None,
        gpus: int | None = None,
        leaf: int | None = None,
        accounting: bool | None = None,
        user_signal: bool | None = None,
        extra: str | None = None,
        folder: Path | None = None,
        note: Callable[[str], None] = _silent,
    ) -> Lab:
        """Start a lab and wait until all of its nodes are idle; one that runs already is taken as it is.

        Args:
            name: tells labs of one user apart.
            nodes: how many slurmd; None is 8, or whatever a running lab has. So it is with the next ones.
            gpus: fake ``gpu:a100`` of each node; None is 4.
            leaf: nodes under one leaf switch; None is 4.
            accounting: whether to start slurmdbd too; None is not to.
            user_signal: whether preempted jobs get the signal of their ``--signal``; None is SIGTERM.
            extra: lines added to slurm.conf.
            folder: where labs live; None is :func:`~slurmkit.lab.machine.labs_folder`.
            note: told each step, in a line.

        Returns:
            The running lab.

        Raises:
            ConfigError: if a value of the shape is not accepted.
            MissingProgramError: if Slurm is not installed.
            LabError: if a daemon does not come up; whatever was started is ended first.
        """
        asked = {
            key: value
            for key, value in (
                ("nodes", nodes),
                ("gpus", gpus),
                ("leaf", leaf),
                ("accounting", accounting),
                ("user_signal", user_signal),
                ("extra", extra),
            )
            if value is not None
        }
        shape = LabShape(name=name, **asked)  # type: ignore[arg-type] # each has the type of its argument
        root = _root(name, folder)
        with _alone(root, name):
            if root.exists():
                running = _take_over(root, name, asked, note)
                if running:
                    return cls(running)
            return cls(_start(shape, root, note))

    @classmethod
    def open(cls, name: str = "lab", folder: Path | None = None) -> Lab:
        """Find a lab that was started before.

        Raises:
            LabError: if there is none of that name on this machine.
        """
        root = _root(name, folder)
        with _its_folder(root):
            record = Record.load(root)
        if record is None:
            there = sorted(path.parent.name for path in root.parent.glob("*/lab.json"))
            raise LabError(
                f"there is no lab {name} in {root.parent}; there is {', '.join(there) or 'none at all'}",
                f'start it: eval "$(slurmkit lab up --name {name})"',
            )
        return cls(record)

    @classmethod
    def end(
        cls, name: str = "lab", folder: Path | None = None, note: Callable[[str], None] = _silent
    ) -> bool:
        """End a lab in whatever state it is, and remove its folder.

        Returns:
            Whether there was one.

        Raises:
            LabError: if it runs on another machine, or one of its processes cannot be ended.
        """
        root = _root(name, folder)
        with _alone(root, name):
            if not root.exists():
                note(f"there is no lab {name} in {root.parent}: nothing to end")
                return False
            record = Record.load(root)
            begin = time.monotonic()
            count = remove_lab(root, record)
            note(
                f"lab {name}: {count} processes ended and {root} removed in {time.monotonic() - begin:.1f} s"
            )
            return True

    def down(self) -> None:
        """End this lab: all of its processes, jobs and files."""
        Lab.end(self.name, self.root.parent)

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        timeout: float = 60.0,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the lab and capture what it prints.

        Args:
            argv: the command.
            check: whether another exit code than 0 is an error.
            timeout: seconds until it is killed.
            stdin: what it reads; None is nothing.
            env: variables added to :attr:`env`.
            cwd: where it runs.

        Returns:
            Its exit code, stdout and stderr.

        Raises:
            LabError: if it fails and ``check`` is set; ``detail`` has what it printed.
        """
        done = subprocess.run(
            list(argv),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            input=stdin or "",
            env={**self.env, **(env or {})},
            cwd=cwd,
        )
        if check and done.returncode:
            raise LabError(
                f"{' '.join(argv)} exited {done.returncode} in lab {self.name}",
                f"slurmkit lab status --name {self.name} tells whether its daemons live",
                done.stdout + done.stderr,
            )
        return done

    def status(self) -> LabStatus:
        """Ask whether each daemon lives, and count nodes and jobs by state."""
        return read_status(self._record)

    def diagnostics(self) -> str:
        """All that explains a failure: nodes, jobs, and the tail of each log."""
        return diagnose(self._record)


def _root(name: str, folder: Path | None) -> Path:
    """The folder of a lab; the name is checked, since it becomes part of a path that ``down`` removes."""
    return (folder or machine.labs_folder(os.environ)).resolve() / LabShape(name=name).name


@contextlib.contextmanager
def _alone(root: Path, name: str) -> Iterator[None]:
    with claim(f"lab {root}") as ours:
        if not ours:
            raise LabError(
                f"lab {name} is just being started or ended by another process",
                "try again when that is done",
            )
        with _its_folder(root):
            yield


@contextlib.contextmanager
def _its_folder(root: Path) -> Iterator[None]:
    """Say of a file that could not be read or written, or of a full disk, that it is the folder of labs.

    Other users reach root's lab through its files, and its daemons inherit the mask: it is the usual one.
    """
    mask = os.umask(0o022)
    try:
        yield
    except BrokenPipeError:  # whoever reads our notes has gone: that is no matter of the folder
        raise
    except OSError as error:
        raise LabError(
            f"lab {root.name}: {error.filename or root}: {error.strerror or error}",
            f"labs live in {root.parent}; set SLURMKIT_LAB_DIR to a folder of yours with room in it",
        ) from error
    finally:
        os.umask(mask)


def _take_over(
    root: Path, name: str, asked: Mapping[str, object], note: Callable[[str], None]
) -> Record | None:
    """Take a lab that runs already, or clear away what is left of a dead one."""
    record = Record.load(root)
    if record is None or not record.complete or not any(daemon.alive for daemon in record.daemons):
        note(f"lab {name}: {root} was left over by a start that was cut off, or a reboot: starting anew")
        remove_lab(root, record)
        return None
    if trouble := read_status(record).trouble:
        raise trouble
    shape = record.spec.shape
    differ = [f"{key} {getattr(shape, key)}" for key, value in asked.items() if getattr(shape, key) != value]
    if differ:
        raise LabError(
            f"lab {name} runs already, in another shape: {', '.join(differ)}",
            f"end it first: slurmkit lab down --name {name}",
        )
    note(f"lab {name} runs already: Slurm {release_name(record.spec.release)}, {shape}")
    return record


def _start(shape: LabShape, root: Path, note: Callable[[str], None]) -> Record:
    """Start a lab where there is none; on any failure, and on Ctrl-C, leave nothing of it."""
    begin = time.monotonic()
    check_path(str(root))
    programs = machine.find_programs(accounting=shape.accounting)
    release = machine.read_release(programs["slurmctld"])
    with free_ports(shape.nodes + 2) as port, contextlib.ExitStack() as undo:
        root.mkdir(parents=True)
        undo.callback(_undo, root)
        run = machine.run_folder(root)
        # Until the record says where it is, only this knows of a run folder that lies elsewhere.
        undo.callback(shutil.rmtree, run, ignore_errors=True)
        spec = LabSpec(
            shape=shape,
            root=str(root),
            run=str(run),
            release=release,
            user=machine.user_name(os.geteuid()),
            port=port,
            devices=machine.fake_gpus(root / "dev", shape.gpus),
        )
        record = Record(spec)
        record.save()
        note(f"lab {shape.name}: Slurm {release_name(release)}, {shape}, in {root}")
        if os.geteuid() == 0 and machine.hidden_from_others(root):
            note(f"lab {shape.name}: only root can reach it there; set SLURMKIT_LAB_DIR for other users")
        if not machine.own_name_resolves():
            host = socket.gethostname()
            remedy = f"put '127.0.0.1 {host}' into /etc/hosts"
            note(f"lab {shape.name}: {host} has no address, and srun will hang: {remedy}")
        write_files(record)
        boot(record, programs, note)
        undo.pop_all()
    note(f"lab {shape.name}: up, all nodes idle, after {time.monotonic() - begin:.1f} s")
    return record


def _undo(root: Path) -> None:
    """Remove what a start has left, and let no second Ctrl-C cut that short."""
    with contextlib.ExitStack() as after:
        if threading.current_thread() is threading.main_thread():
            after.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_IGN))
        remove_lab(root, Record.load(root))
