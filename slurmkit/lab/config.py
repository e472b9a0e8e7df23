"""The configuration of a lab, as text: a pure function of its shape.

What the releases of Slurm want written in their own way is decided here; what depends on where the daemons run,
in :mod:`slurmkit.lab.places`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurmkit.errors import ConfigError
from slurmkit.lab.places import DATABASE, MACHINE_PREFIX, Places, numbered, one_machine
from slurmkit.units import fits_conf

__all__ = ["MAX_GPUS", "MAX_NODES", "LabShape", "LabSpec", "check_path", "lab_files", "release_name"]

MAX_NODES = 64
MAX_GPUS = 16
CPUS_A_NODE = 8
MIB_A_NODE = 16000

_LOWEST_PORT, _HIGHEST_PORT = 1024, 65535
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")
_OLDEST = (22, 5)
_PREEMPT_PARAMETERS_SINCE = (24, 11)
_CGROUP_DISABLED_SINCE = (24, 5)
_REQUEUE_DELAY_SINCE = (25, 11)


@dataclass(frozen=True, kw_only=True)
class LabShape:
    """What is asked of a lab.

    Attributes:
        name: of the lab and of its cluster.
        nodes: how many slurmd.
        gpus: fake ``gpu:a100`` of each node.
        leaf: nodes under one leaf switch.
        accounting: whether slurmdbd keeps the jobs.
        user_signal: whether a preempted job gets the signal of its ``--signal`` instead of SIGTERM.
        extra: lines added at the end of slurm.conf.
    """

    name: str = "lab"
    nodes: int = 8
    gpus: int = 4
    leaf: int = 4
    accounting: bool = False
    user_signal: bool = False
    extra: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"--name: {self.name!r} names no lab",
                "use 1 to 20 of a-z, 0-9 and -, the first one no dash",
            )
        for option, value, low, high in (
            ("--nodes", self.nodes, 1, MAX_NODES),
            ("--gpus", self.gpus, 0, MAX_GPUS),
            ("--leaf", self.leaf, 1, MAX_NODES),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{option}: {value} is not accepted", f"{option} takes {low} to {high}")

    @property
    def node_names(self) -> tuple[str, ...]:
        """Of a lab on one machine: n1, n2 and so on."""
        return tuple(f"{MACHINE_PREFIX}{number}" for number in range(1, self.nodes + 1))

    @property
    def leaves(self) -> tuple[tuple[int, int], ...]:
        """First and last node number under each leaf switch; the last leaf may have fewer nodes."""
        return tuple(
            (first, min(first + self.leaf - 1, self.nodes)) for first in range(1, self.nodes + 1, self.leaf)
        )

    def __str__(self) -> str:
        leaves = len(self.leaves)
        return (
            f"{self.nodes} node{'s' * (self.nodes > 1)} of {self.gpus} gpu:a100, "
            f"{leaves} leaf switch{'es' * (leaves > 1)} under one spine{', accounting' * self.accounting}"
        )


@dataclass(frozen=True, kw_only=True)
class LabSpec:
    """The shape of one lab and the places it uses on this machine.

    Attributes:
        shape: what was asked.
        root: the lab's folder; all paths below are absolute.
        run: the folder for sockets and spool, short enough for the 107 characters of a socket's path.
        release: of Slurm, such as ``(22, 5)``.
        user: who runs the daemons.
        port: the first of ``nodes + 2`` free ports: slurmctld, slurmdbd, then one a node.
        devices: one character device a GPU.
    """

    shape: LabShape
    root: str
    run: str
    release: tuple[int, int]
    user: str
    port: int
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.release < _OLDEST:
            raise ConfigError(
                f"Slurm {release_name(self.release)} is older than any that a lab knows",
                f"a lab knows Slurm {release_name(_OLDEST)} and later",
            )
        if len(set(self.devices)) != self.shape.gpus:
            raise ConfigError(
                f"devices: {len(set(self.devices))} distinct ones for {self.shape.gpus} GPUs",
                "name one character device for each GPU",
            )
        if not _LOWEST_PORT <= self.port <= _HIGHEST_PORT - self.shape.nodes - 1:
            raise ConfigError(
                f"port: {self.port} has not {self.shape.nodes + 2} ports from there on",
                f"use one from {_LOWEST_PORT} on, and well below {_HIGHEST_PORT}",
            )
        for path in (self.root, self.run):
            check_path(path)

    @property
    def controller_port(self) -> int:
        """Where slurmctld listens."""
        return self.port

    @property
    def database_port(self) -> int:
        """Where slurmdbd listens, with accounting."""
        return self.port + 1

    @property
    def node_ports(self) -> tuple[int, ...]:
        """Where each slurmd listens, n1 first."""
        return tuple(range(self.port + 2, self.port + 2 + self.shape.nodes))


def check_path(path: str) -> None:
    """Refuse a folder that Slurm could not read in its configuration.

    Raises:
        ConfigError: if it is relative, or has other characters than Slurm takes.
    """
    if not fits_conf(path):
        raise ConfigError(
            f"SLURMKIT_LAB_DIR: Slurm cannot read the path {path!r} in its configuration",
            "set SLURMKIT_LAB_DIR to an absolute path of letters, digits and any of / . _ + @ -",
        )


def lab_files(spec: LabSpec, places: Places | None = None) -> dict[str, str]:
    """Write every configuration file of a lab.

    Args:
        spec: its shape and places.
        places: where its daemons run; None is all of them on this machine.

    Returns:
        The text of each file by its path under ``spec.root``.
    """
    if places is None:
        ports = numbered("", spec.node_ports[0], spec.node_ports[-1])
        places = one_machine(spec.root, spec.run, spec.user, ports)
    files = {
        "etc/slurm.conf": _slurm_conf(spec, places),
        "etc/topology.conf": _topology_conf(spec, places),
        "etc/cgroup.conf": _cgroup_conf(spec),
        "hooks/slurmkit-hooks.conf": f"STATE_DIR={spec.root}/hooks/state\n",
    }
    if spec.shape.gpus:
        files["etc/gres.conf"] = _gres_conf(spec, places)
    if spec.shape.accounting:
        files["etc/slurmdbd.conf"] = _slurmdbd_conf(spec, places)
        # slurmdbd would make it, but dies of its own failed attempt with MariaDB's library of 11.8.9.
        files["etc/mariadb.sql"] = f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n{places.grants}"
    return files


def release_name(release: tuple[int, int]) -> str:
    """Write a release as Slurm does: ``22.05``."""
    return f"{release[0]}.{release[1]:02}"


def _slurm_conf(spec: LabSpec, places: Places) -> str:
    scheduler = (
        "bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0,nohold_on_prolog_fail"
    )
    if spec.release >= _REQUEUE_DELAY_SINCE:
        scheduler += ",requeue_delay=1"
    lines = [
        f"# Slurm {release_name(spec.release)}, written by slurmkit's lab",
        f"ClusterName={spec.shape.name}",
        f"SlurmctldHost={places.controller}",
        f"SlurmctldPort={spec.controller_port}",
        f"SlurmUser={places.user}",
        f"SlurmdUser={places.node_user}",
        "AuthType=auth/munge",
        "# A requeued job waits cred_expire + 1 seconds: 5 is the least that Slurm takes.",
        f"AuthInfo={','.join(filter(None, [places.munge, 'cred_expire=5']))}",
        "",
        f"StateSaveLocation={spec.root}/state",
        f"SlurmdSpoolDir={spec.run}/{places.spool}",
        f"SlurmctldPidFile={spec.run}/slurmctld.pid",
        f"SlurmdPidFile={spec.run}/%n.pid",
        f"SlurmctldLogFile={spec.root}/log/slurmctld.log",
        f"SlurmdLogFile={spec.root}/log/%n.log",
        "",
        "# Nothing of the host is tracked or limited: nodes may claim more than it has.",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "KillWait=5",
        "",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=100",
        "TopologyPlugin=topology/tree",
        f"SchedulerParameters={scheduler}",
    ]
    if spec.shape.gpus:
        lines.append("GresTypes=gpu")
    lines += [
        "",
        *places.controller_lines,
        "",
        "JobRequeue=1",
        *places.preemption_lines,
        "PreemptMode=REQUEUE",
        *_parameters(spec, places),
        "",
        *_accounting(spec, places),
        "",
        *_node_lines(spec, places),
        *places.partition_lines,
    ]
    if spec.shape.extra:
        lines += ["", spec.shape.extra.rstrip("\n")]
    return "\n".join(lines) + "\n"


def _node_lines(spec: LabSpec, places: Places) -> list[str]:
    gres = f" Gres=gpu:a100:{spec.shape.gpus}" if spec.shape.gpus else ""
    hardware = f"CPUs={CPUS_A_NODE} CoresPerSocket={CPUS_A_NODE} RealMemory={MIB_A_NODE}{gres}"
    lines = [f"NodeName={_nodes(spec, places)} {places.node}{hardware} State=UNKNOWN"]
    if places.cloud_nodes:
        lines.append(f"NodeName={places.cloud_nodes} {hardware} State=CLOUD")
    return lines


def _nodes(spec: LabSpec, places: Places) -> str:
    return numbered(places.prefix, 1, spec.shape.nodes)


def _parameters(spec: LabSpec, places: Places) -> list[str]:
    """SlurmctldParameters, in one line, since a second would replace it; and where send_user_signal went."""
    parameters, lines = list(places.parameters), []
    if spec.shape.user_signal:
        if spec.release >= _PREEMPT_PARAMETERS_SINCE:
            lines.append("PreemptParameters=send_user_signal")
        else:
            parameters.append("preempt_send_user_signal")
    return [*lines, *([f"SlurmctldParameters={','.join(parameters)}"] if parameters else [])]


def _accounting(spec: LabSpec, places: Places) -> list[str]:
    if not spec.shape.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={places.database}",
        f"AccountingStoragePort={spec.database_port}",
        *places.accounting_lines,
        *(["AccountingStorageTRES=gres/gpu"] if spec.shape.gpus else []),
        "JobAcctGatherType=jobacct_gather/linux",
    ]


def _topology_conf(spec: LabSpec, places: Places) -> str:
    ranges = [numbered(places.prefix, first, last) for first, last in spec.shape.leaves]
    if places.cloud_nodes:
        ranges.append(places.cloud_nodes)
    leaves = [f"SwitchName=leaf{number} Nodes={names}" for number, names in enumerate(ranges, 1)]
    return "\n".join([*leaves, f"SwitchName=spine Switches={numbered('leaf', 1, len(leaves))}"]) + "\n"


def _gres_conf(spec: LabSpec, places: Places) -> str:
    nodes = _nodes(spec, places) + (f",{places.cloud_nodes}" if places.cloud_nodes else "")
    gpus = "".join(f"NodeName={nodes} Name=gpu Type=a100 File={device}\n" for device in spec.devices)
    return f"AutoDetect=off\n{gpus}"


def _cgroup_conf(spec: LabSpec) -> str:
    """Name a plugin that touches nothing: slurmd loads one whether it is used or not."""
    plugin = "disabled" if spec.release >= _CGROUP_DISABLED_SINCE else "cgroup/v1"
    return f"CgroupPlugin={plugin}\n"


def _slurmdbd_conf(spec: LabSpec, places: Places) -> str:
    lines = [
        "AuthType=auth/munge",
        *([f"AuthInfo={places.munge}"] if places.munge else []),
        f"DbdHost={places.database}",
        f"DbdPort={spec.database_port}",
        f"SlurmUser={places.user}",
        "StorageType=accounting_storage/mysql",
        *places.database_lines,
        f"StorageLoc={DATABASE}",
        f"PidFile={spec.run}/slurmdbd.pid",
        f"LogFile={spec.root}/log/slurmdbd.log",
    ]
    return "\n".join(lines) + "\n"
