"""The lines of a lab's configuration that depend on where its daemons run: on one machine, or each on a host.

Pure, as all of the configuration: :mod:`slurmkit.lab.config` puts them among the lines that all labs share.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DATABASE", "MACHINE_PREFIX", "Places", "hosts", "numbered", "one_machine"]

#: In MariaDB.
DATABASE = "slurm_acct_db"
#: Of the names of nodes that are all on one machine.
MACHINE_PREFIX = "n"
_EVERY_NODE = "Nodes=ALL MaxTime=INFINITE"
_DATABASE_USER = "slurm"


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the daemons of a lab run, and what its configuration says because of it.

    Attributes:
        prefix: of the nodes' names, which are numbered from 1.
        controller: the host of slurmctld.
        database: the host of slurmdbd.
        user: who runs slurmctld and slurmdbd.
        node_user: who runs slurmd.
        munge: what tells Slurm which munged is meant; empty for the system's.
        node: how a slurmd is told from the others, in the line NodeName.
        spool: the folder of a slurmd, below that for sockets and spool.
        parameters: items of SlurmctldParameters.
        controller_lines: of slurm.conf, about slurmctld and its hooks.
        preemption_lines: of slurm.conf.
        partition_lines: of slurm.conf.
        accounting_lines: of slurm.conf, where there is slurmdbd.
        database_lines: of slurmdbd.conf.
        grants: what MariaDB is told once the database exists.
        cloud_nodes: more of them, which are off until a job of partition ``cloud`` wants them; a host list.
    """

    prefix: str
    controller: str
    database: str
    user: str
    node_user: str
    munge: str
    node: str
    spool: str
    parameters: tuple[str, ...]
    controller_lines: tuple[str, ...]
    preemption_lines: tuple[str, ...]
    partition_lines: tuple[str, ...]
    accounting_lines: tuple[str, ...]
    database_lines: tuple[str, ...]
    grants: str
    cloud_nodes: str = ""


def numbered(prefix: str, first: int, last: int) -> str:
    """Write a host list: ``n[1-4]``, or ``n1`` for one."""
    return f"{prefix}{first}" if first == last else f"{prefix}[{first}-{last}]"


def one_machine(root: str, run: str, user: str, ports: str) -> Places:
    """All daemons here under one user, with a munged of their own; preemption by partition needs no accounting.

    Args:
        root: the lab's folder.
        run: its folder for sockets and spool.
        user: who runs the daemons.
        ports: where the slurmd listen, as Slurm writes a range.
    """
    munge = f"{run}/munge.sock"
    return Places(
        prefix=MACHINE_PREFIX,
        controller="localhost",
        database="localhost",
        user=user,
        node_user=user,
        munge=f"socket={munge}",
        node=f"NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports} ",
        spool="spool/%n",
        parameters=(),
        controller_lines=(
            f"Prolog={root}/hooks/prolog",
            f"Epilog={root}/hooks/epilog",
            "PrologFlags=Alloc",
            "PrologEpilogTimeout=20",
        ),
        preemption_lines=("PreemptType=preempt/partition_prio",),
        partition_lines=(
            f"PartitionName=low {_EVERY_NODE} Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=20",
            f"PartitionName=high {_EVERY_NODE} PriorityTier=10 PreemptMode=OFF",
        ),
        accounting_lines=(
            "# The lab's own munge: without it slurmctld asks the machine's, and dies.",
            f"AccountingStoragePass={munge}",
        ),
        database_lines=(
            "# The private socket of this MariaDB is in MYSQL_UNIX_PORT: it needs no password.",
            "StorageHost=localhost",
            "StorageUser=root",
        ),
        grants="",
    )


def hosts(nodes: int, cloud: int, *, password: str, jwt_key: str, programs: str) -> Places:
    """Each daemon on a host of its own, found by its name, with the system's munged.

    Preemption goes by QOS, and the limits of associations and QOS are enforced, as sites with accounting have
    it. Prolog and Epilog are not there: an admin installs them.

    Args:
        nodes: how many are always there, ``c1`` and up.
        cloud: how many more come when they are wanted, ``p1`` and up; at least one.
        password: of slurmdbd in MariaDB.
        jwt_key: the file with the key of the tokens for slurmrestd.
        programs: the folder of ``resume`` and ``suspend``, which turn cloud nodes on and off.
    """
    token = ("AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={jwt_key}")
    power = (
        f"ResumeProgram={programs}/resume",
        f"SuspendProgram={programs}/suspend",
        "ResumeTimeout=60",
        "SuspendTimeout=10",
        "SuspendTime=INFINITE",
        "DebugFlags=Power",
    )
    prefix, cloud_nodes = "c", numbered("p", 1, cloud)
    return Places(
        prefix=prefix,
        controller="slurmctld",
        database="slurmdbd",
        user="slurm",
        node_user="root",
        munge="",
        node="",
        spool="spool",  # 22.05 looks for the configuration of a configless node in a folder without its name
        parameters=("enable_configless", "cloud_dns"),
        controller_lines=(*token, "SlurmdTimeout=20", *power),
        preemption_lines=("PreemptType=preempt/qos",),
        partition_lines=(
            f"PartitionName=main Nodes={numbered(prefix, 1, nodes)} Default=YES MaxTime=INFINITE",
            f"PartitionName=cloud Nodes={cloud_nodes} MaxTime=INFINITE SuspendTime=15",
        ),
        accounting_lines=("AccountingStorageEnforce=associations,limits,qos",),
        database_lines=(*token, "StorageHost=db", f"StorageUser={_DATABASE_USER}", f"StoragePass={password}"),
        grants=(
            f"CREATE USER IF NOT EXISTS {_DATABASE_USER}@'%' IDENTIFIED BY '{password}';\n"
            f"GRANT ALL ON {DATABASE}.* TO {_DATABASE_USER}@'%';\n"
        ),
        cloud_nodes=cloud_nodes,
    )
