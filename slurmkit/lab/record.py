"""What is kept of a lab on disk: its folder, and ``lab.json`` in it."""

from __future__ import annotations

import json
import os
import reprlib
import shutil
import socket
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from slurmkit.errors import ConfigError, LabError
from slurmkit.lab.config import LabSpec  # noqa: TC001 - lab.json is read by these types
from slurmkit.lab.machine import lab_environment, user_name
from slurmkit.lab.processes import end_all, started

__all__ = ["Daemon", "Record", "remove_lab"]

_FILE = "lab.json"
_VERSION = 1
_BEGUN = frozenset({"run", "dev", f"{_FILE}.new"})  # what a lab has before it has its file


@dataclass(frozen=True)
class Daemon:
    """One daemon of a lab.

    Attributes:
        name: such as ``slurmctld`` or ``slurmd n3``.
        pid: its process.
        started: when it started, in clock ticks since boot: pids come round again.
        log: the file of what it printed.
    """

    name: str
    pid: int
    started: int
    log: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return started(self.pid) == self.started


@dataclass
class Record:
    """A lab as it was started.

    Attributes:
        spec: its shape and places.
        daemons: what was started, in order.
        host: the machine that it runs on.
    """

    spec: LabSpec
    daemons: list[Daemon] = field(default_factory=list)
    host: str = field(default_factory=socket.gethostname)

    @property
    def name(self) -> str:
        """What tells it from other labs."""
        return self.spec.shape.name

    @property
    def root(self) -> Path:
        """Its folder."""
        return Path(self.spec.root)

    @property
    def run(self) -> Path:
        """Its folder of sockets and spool."""
        return Path(self.spec.run)

    @property
    def conf(self) -> Path:
        """Its slurm.conf."""
        return conf_of(self.root)

    @property
    def env(self) -> dict[str, str]:
        """Our environment, turned towards this lab."""
        return lab_environment(os.environ, self.conf)

    @property
    def complete(self) -> bool:
        """Whether each of its daemons was started once; a start that was cut off has left some out."""
        wanted = {"slurmctld", *(f"slurmd {node}" for node in self.spec.shape.node_names)}
        return wanted <= {daemon.name for daemon in self.daemons}

    def save(self) -> None:
        """Write ``lab.json``, whole or not at all."""
        new = self.root / f"{_FILE}.new"
        new.write_text(json.dumps({"version": _VERSION, **asdict(self)}, indent=1) + "\n")
        new.replace(self.root / _FILE)

    @classmethod
    def load(cls, root: Path) -> Record | None:
        """Read a lab back.

        Returns:
            None if it was never begun: its folder is there, and no ``lab.json``.

        Raises:
            LabError: if it belongs to another machine, which shares this folder with us, if its file is
                damaged or of another slurmkit, or if it is a copy, whose daemons are those of the original.
        """
        try:
            text = (root / _FILE).read_bytes()
        except FileNotFoundError:
            return None
        try:
            found = json.loads(text)
            if (version := found.pop("version")) != _VERSION:
                raise LabError(
                    f"{root / _FILE} has version {version!r}, and this slurmkit reads {_VERSION}",
                    f"have the lab ended by the slurmkit that started it, or end its processes by hand and remove {root}",
                )
            record: Record = _typed(cls, found)
        except (AttributeError, ConfigError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise LabError(
                f"{root / _FILE} is not what this slurmkit writes: {error!r}",
                f"end its processes by hand and remove {root}",
            ) from error
        if record.host != socket.gethostname():
            raise LabError(
                f"lab {record.name} runs on host {record.host}, and this is {socket.gethostname()}",
                f"go there, use another --name, or remove {root} if that host is gone",
            )
        if not (record.root.exists() and record.root.samefile(root)):
            raise LabError(f"{root} is a copy of the lab in {record.root}", f"remove it: rm -r {root}")
        return record


def _typed(kind: Any, value: Any) -> Any:
    """Make a value of a type, such as ``list[Daemon]``, of what JSON made of it.

    Raises:
        TypeError: if it is something else.
        ConfigError: if it is of the type, and no lab has it.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        hints = get_type_hints(kind)
        if hints.keys() == value.keys():
            return kind(**{name: _typed(hints[name], item) for name, item in value.items()})
    elif origin in {list, tuple} and isinstance(value, list):
        kinds = arguments if origin is tuple and arguments[-1] is not ... else arguments[:1] * len(value)
        if len(kinds) == len(value):
            return origin(map(_typed, kinds, value))
    elif type(value) is kind:
        return value
    raise TypeError(f"{reprlib.repr(value)} is no {getattr(kind, '__name__', kind)}")


def conf_of(root: Path) -> Path:
    """The slurm.conf of the lab in a folder."""
    return root / "etc" / "slurm.conf"


def remove_lab(root: Path, record: Record | None) -> int:
    """End every process of a lab, then remove its folders.

    Args:
        root: the lab's folder.
        record: what is known of it; None if its start was cut off before it could be kept.

    Returns:
        How many processes there were.

    Raises:
        LabError: if the folder holds something else than a lab, or is another user's, or a process does not end.
    """
    owner = root.stat().st_uid
    if os.geteuid() not in {0, owner}:
        raise LabError(
            f"{root} belongs to {user_name(owner)}, and you are {user_name(os.geteuid())}",
            "have the lab ended by its owner or by root, or set SLURMKIT_LAB_DIR to a folder of yours",
        )
    strange = [] if record else sorted(path.name for path in root.iterdir() if path.name not in _BEGUN)
    if strange:
        raise LabError(
            f"{root} is no lab: it holds {', '.join(strange[:3])}, and nothing of it was touched",
            "use another --name, or set SLURMKIT_LAB_DIR to a folder for labs only",
        )
    alive = [daemon.pid for daemon in record.daemons if daemon.alive] if record else []
    count = end_all(root, conf_of(root), alive)
    for folder in ([record.run] if record else []) + [root]:
        if folder.exists():
            shutil.rmtree(folder)
    return count
