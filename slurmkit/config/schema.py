"""The experiment as frozen dataclasses: one tree, mounted at the top of our apps and under ``hydra.launcher``.

Each class checks itself when it is made, so that what reaches the compiler is already sound, and every
message names the override that mends it. Names are Slurm's.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, get_type_hints

from slurmkit.errors import ConfigError
from slurmkit.units import parse_duration, parse_gres, parse_memory, read_gres

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ASKED",
    "SECTIONS",
    "Env",
    "Experiment",
    "Payload",
    "Requeue",
    "Resources",
    "Sections",
    "Snapshot",
    "Topology",
    "each_gpu",
    "mounted_at",
]

#: Where the sections lie that are being made, such as ``hydra.launcher.``; empty at the top.
_MOUNT: ContextVar[str] = ContextVar("mount", default="")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
#: The names that sbatch takes in ``--signal``.
_SIGNALS = ("HUP", "INT", "QUIT", "ABRT", "KILL", "ALRM", "TERM", "USR1", "USR2", "URG", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "XCPU")  # fmt: skip
#: Options that the compiler writes itself, or that would take the job from it, and the key that says the same.
_OWNED = {
    "array": "",
    "chdir": "",
    "error": "",
    "export": "env.vars",
    "job-name": "name",
    "no-requeue": "requeue.enabled",
    "open-mode": "",
    "output": "",
    "parsable": "",
    "requeue": "requeue.enabled",
    "signal": "requeue.signal",
    "switches": "topology.switches",
    "test-only": "",
    "wait": "",
    "wrap": "payload.command",
}


@contextlib.contextmanager
def mounted_at(mount: str) -> Iterator[None]:
    """Let every section that is made inside name its keys as they are where it is mounted.

    Args:
        mount: such as ``hydra.launcher.``; empty at the top.
    """
    token = _MOUNT.set(mount)
    try:
        yield
    finally:
        _MOUNT.reset(token)


def _at(key: str) -> str:
    """A key of our sections in full."""
    return f"{_MOUNT.get()}{key}"


def _text(key: str, value: Any, kinds: tuple[type, ...] = (str,)) -> None:
    """Refuse a list or a mapping where one text is meant: ``- echo cuda: on`` is a mapping to YAML.

    Args:
        key: in full.
        value: a leaf that OmegaConf does not check: an item of a list, or one of any type.
        kinds: what is accepted.
    """
    if not isinstance(value, kinds):
        what = "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "no text"
        raise ConfigError(
            f"{key}: {value!r} is {what} to Hydra and YAML, accepted is one text", 'write it in quotes: "…"'
        )


def _printable(key: str, value: str) -> None:
    """Refuse what would end a ``#SBATCH`` line early, and what a terminal would obey or cannot show."""
    odd = next((character for character in value if unicodedata.category(character) in {"Cc", "Cs"}), None)
    if odd is not None:
        raise ConfigError(
            f"{key}: {value!r} has {odd!r} in it; accepted is one line of text without control characters",
            f"write {key} without it",
        )


def _at_least(key: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ConfigError(
            f"{key}: got {value}, accepted is a whole number from {least} up", f"set {key}={least} or more"
        )


def each_gpu(text: str) -> str:
    """``--gpus-per-node`` in the words of ``--gres``: ``a100:2,h100:1`` is ``gpu:a100:2,gpu:h100:1``."""
    return ",".join(f"gpu:{item}" for item in text.split(","))


@dataclass(frozen=True)
class Resources:
    """What is asked of Slurm, in the words of ``sbatch``."""

    nodes: int = 1
    ntasks_per_node: int = 1
    cpus_per_task: int | None = None
    """CPUs of each rank; Slurm's default, one, when unset."""
    cpus_per_gpu: int | None = None
    gpus_per_node: str | None = None
    gpus_per_task: str | None = None
    gres: str | None = None
    """Generic resources a node, such as ``gpu:a100:2`` (types are case-sensitive)."""
    mem: str | None = None
    """Memory a node, such as ``16G``."""
    mem_per_cpu: str | None = None
    mem_per_gpu: str | None = None
    time: str = "1:00:00"
    """Wall time a life of the job: ``90`` is 90 minutes, ``1-12:00:00`` a day and a half, ``0`` no limit."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    exclusive: Any = None
    """``true``, or ``user``, ``mcs``, ``topo`` where the release has it."""
    dependency: str | None = None
    comment: str | None = None
    wckey: str | None = None
    mail_type: str | None = None
    mail_user: str | None = None
    array_parallelism: int | None = None
    """How many points of a sweep may run at once; all when unset."""
    srun_args: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    """Any other long option of ``sbatch``, without the dashes: ``{nice: 100, reservation: course}``."""

    def __post_init__(self) -> None:
        for key in ("nodes", "ntasks_per_node", "cpus_per_task", "cpus_per_gpu", "array_parallelism"):
            _at_least(_at(f"resources.{key}"), getattr(self, key), 1)
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, str):
                _printable(_at(f"resources.{item.name}"), value)
        for word in self.srun_args:
            _text(_at("resources.srun_args"), word)
        parse_duration(self.time, _at("resources.time"))
        for key in ("mem", "mem_per_cpu", "mem_per_gpu"):
            if getattr(self, key) is not None:
                parse_memory(getattr(self, key), _at(f"resources.{key}"))
        for keys in (("mem", "mem_per_cpu", "mem_per_gpu"), ("cpus_per_gpu", "cpus_per_task")):
            self._only_one_of(keys)
        self._check_exclusive()
        self._check_gres()
        self._check_extra()

    def _only_one_of(self, keys: tuple[str, ...]) -> None:
        asked = [key for key in keys if getattr(self, key) is not None]
        if len(asked) > 1:
            raise ConfigError(
                f"{_at('resources')}: {' and '.join(asked)} exclude each other in Slurm",
                f"set {asked[1]}: null in your config, or {_at('resources')}.{asked[1]}=null",
            )

    def _check_exclusive(self) -> None:
        if str(self.exclusive).lower() in {"true", "false"}:
            object.__setattr__(self, "exclusive", str(self.exclusive).lower() == "true")
        elif self.exclusive is not None and not re.fullmatch("[a-z]+", str(self.exclusive)):
            raise ConfigError(
                f"{_at('resources.exclusive')}: got {self.exclusive!r}, accepted are true, false, user, mcs and topo",
                f"set {_at('resources.exclusive')}=true",
            )

    def _check_gres(self) -> None:
        if self.gres is not None:
            parse_gres(self.gres, _at("resources.gres"))
            # scontrol writes gres/gpu:4, which sbatch of 22.05 refuses: the same without the prefix.
            object.__setattr__(self, "gres", re.sub(r"(?:^|(?<=,))gres[/:]", "", self.gres))
        for key in ("gpus_per_node", "gpus_per_task"):
            text, name = getattr(self, key), _at(f"resources.{key}")
            if text is not None and read_gres(each_gpu(text))[1]:
                raise ConfigError(
                    f"{name}: got {text!r}, accepted is a count, a type, or both as TYPE:COUNT",
                    f"write it without gpu: {name}=2 or {name}=a100:2",
                )

    def _check_extra(self) -> None:
        for name, value in self.extra.items():
            option, key = str(name).replace("_", "-"), _at(f"resources.extra.{name}")
            if not _OPTION.fullmatch(option):
                raise ConfigError(
                    f"{_at('resources.extra')}: {name!r} is no long option of sbatch",
                    "write the option's name without dashes, such as nice",
                )
            own = option.replace("-", "_")
            if own in {item.name for item in fields(self)}:
                raise ConfigError(
                    f"{key}: slurmkit writes --{option} itself", f"use {_at(f'resources.{own}')}"
                )
            if option in _OWNED:
                use = _OWNED[option]
                hint = f"use {_at(use)}" if use else f"remove {key}"
                raise ConfigError(f"{key}: slurmkit writes --{option} itself", hint)
            if value is not None:
                _text(key, value, (str, int, float))
            _printable(key, str(value))


@dataclass(frozen=True)
class Topology:
    """Where in the fabric the job should lie."""

    switches: int | None = None
    """Leaf switches at most (``--switches=COUNT``); any number when unset."""
    wait: str = "5:00"
    """How long to wait for that many before taking any (``--switches=COUNT@WAIT``)."""

    def __post_init__(self) -> None:
        _at_least(_at("topology.switches"), self.switches, 1)
        parse_duration(self.wait, _at("topology.wait"))


@dataclass(frozen=True)
class Requeue:
    """What happens when Slurm takes the nodes away."""

    enabled: bool = True
    signal: str | None = "auto"
    """Sent to every rank ahead of the time limit: a name such as ``USR1``, or ``null`` for none (SIGTERM still
    comes). ``auto``: USR1 to a trainer, and nothing to a program that may not know it, which it would end."""
    signal_lead: int = 120
    """Seconds ahead of the time limit. Slurm looks every 30 s, so it comes up to 60 s early."""

    def __post_init__(self) -> None:
        if self.signal not in {None, "auto", *_SIGNALS}:
            name = str(self.signal).upper().removeprefix("SIG")
            raise ConfigError(
                f"{_at('requeue.signal')}: got {self.signal!r}, accepted are auto, null, {', '.join(_SIGNALS)}",
                f"set {_at('requeue.signal')}={name if name in _SIGNALS else 'USR1'}",
            )
        if not 0 <= self.signal_lead <= 65535:  # noqa: PLR2004 - sbatch's own bound
            raise ConfigError(
                f"{_at('requeue.signal_lead')}: got {self.signal_lead}, accepted are 0 to 65535 seconds",
                f"set {_at('requeue.signal_lead')}=120",
            )


@dataclass(frozen=True)
class Env:
    """What the payload finds around it on the node."""

    python: str | None = None
    """The interpreter on the node; the one that compiles when unset."""
    setup: list[str] = field(default_factory=list)
    """Lines of bash that run in the batch script before the payload, such as ``module load cuda``."""
    teardown: list[str] = field(default_factory=list)
    """Lines of bash that run after it; the payload's exit code stays the job's."""
    vars: dict[str, str] = field(default_factory=dict)
    """Variables exported inside the script, quoted, so that commas and quotes arrive as written."""

    def __post_init__(self) -> None:
        for key in ("setup", "teardown"):
            for line in getattr(self, key):
                _text(_at(f"env.{key}"), line)
        for name in self.vars:
            if not _VARIABLE.fullmatch(str(name)):
                raise ConfigError(
                    f"{_at('env.vars')}: {name!r} is no name of an environment variable",
                    "use letters, digits and _, such as OMP_NUM_THREADS",
                )


@dataclass(frozen=True)
class Payload:
    """What runs, once a task (rank)."""

    kind: str = "trainer"
    """``trainer`` (our DDP trainer), ``command`` (any program) or ``function`` (the task of another Hydra
    app, which ``hydra/launcher=slurmkit`` alone can start)."""
    command: list[str] = field(default_factory=list)
    """The argument vector; for ``trainer`` it is made from the overrides."""

    def __post_init__(self) -> None:
        kinds = ("trainer", "command", "function")
        if self.kind not in kinds:
            raise ConfigError(
                f"payload.kind: got {self.kind!r}, accepted are {', '.join(kinds)}",
                "set payload=trainer or payload=command",
            )
        for word in self.command:
            _text("payload.command", word)
        if self.kind != "trainer" and not self.command:
            raise ConfigError(
                f"payload.command: a payload of kind {self.kind!r} needs one",
                "set payload=command payload.command=[hostname], or payload=trainer",
            )


@dataclass(frozen=True)
class Snapshot:
    """The copy of the project that the job runs from, so that later edits do not change what runs."""

    enabled: bool = True
    max_mb: int = 100
    """Refuse to copy more than this; a project of code is small, a folder of data is not."""

    def __post_init__(self) -> None:
        _at_least(_at("snapshot.max_mb"), self.max_mb, 1)


@dataclass(frozen=True)
class Sections:
    """What both mounts share."""

    resources: Resources = field(default_factory=Resources)
    topology: Topology = field(default_factory=Topology)
    requeue: Requeue = field(default_factory=Requeue)
    env: Env = field(default_factory=Env)
    snapshot: Snapshot = field(default_factory=Snapshot)


#: The same by name.
SECTIONS: dict[str, type] = get_type_hints(Sections)

#: Marks a field that nobody asks for: what is known of how the rest was composed.
_KNOWN = {"asked": False}


@dataclass(frozen=True)
class Experiment(Sections):
    """Everything that the compiler needs to know."""

    name: str = "experiment"
    runs_dir: str = "runs"
    """The folder that holds the run folders, on a file system that every node sees."""
    payload: Payload = field(default_factory=Payload)
    config: dict[str, Any] = field(default_factory=dict, metadata=_KNOWN)
    """The whole composed config, resolved, as the run's manifest keeps it."""
    unseen: str = field(default="", metadata=_KNOWN)
    """The data file of a trainer that cannot be seen from where it was composed; empty where it can."""
    mount: str = field(default="", metadata=_KNOWN)
    """Where the sections are mounted, for what a person is told to type: ``hydra.launcher.`` in another Hydra app."""

    def __post_init__(self) -> None:
        _printable("name", self.name)
        if not self.name.strip():
            raise ConfigError("name: an empty name", "set name=my_experiment")
        if not self.runs_dir:
            raise ConfigError("runs_dir: an empty path", "set runs_dir=FOLDER, or unset SLURMKIT_RUNS_DIR")

    @property
    def signal(self) -> str | None:
        """What every rank gets ahead of the time limit, without SIG; ``None`` for nothing."""
        asked = self.requeue.signal if self.requeue.signal_lead else None
        if asked == "auto":
            return "USR1" if self.payload.kind == "trainer" else None
        return asked


#: The keys at the top that a person asks for; all points of a sweep share them, since they are one job array.
ASKED = frozenset(item.name for item in fields(Experiment) if item.metadata.get("asked", True))
