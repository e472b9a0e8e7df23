"""``python -m slurmkit.lab.hosts FOLDER``: write the configuration of a lab whose daemons run on hosts of their own.

Run where that Slurm is installed, since its release decides what is written. The keys and the password are
made once: written again, the configuration still fits what runs.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.errors import LabError, SlurmkitError
from slurmkit.lab import machine
from slurmkit.lab.config import LabShape, LabSpec, lab_files
from slurmkit.lab.places import hosts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CLOUD_NODES", "NODES", "write"]

#: As many as compose.yaml has.
NODES, CLOUD_NODES = 8, 2
#: On each host: the folder of slurmctld's state and of all logs, and that of sockets and spool.
ROOT, RUN = "/var/lib/slurmlab", "/run/slurmlab"
_PORT = 6817
_ACCOUNTS = "slurm"
#: Only slurmctld and slurmdbd, as _ACCOUNTS, may read these; munged has its own user.
_SECRETS = {
    "slurmdbd.conf": _ACCOUNTS,
    "jwt_hs256.key": _ACCOUNTS,
    "munge.key": "munge",
    "mariadb.sql": "mysql",
}


def write(folder: Path, shape: LabShape, *, cloud: int) -> None:
    """Write every file of the lab into a folder that all hosts see as /etc/slurm.

    Args:
        folder: that one.
        shape: of the lab.
        cloud: nodes that are off until they are wanted.

    Raises:
        LabError: if Slurm is not there, or tells no release.
    """
    slurmctld = shutil.which("slurmctld", path="/usr/sbin:/usr/local/sbin:/opt/slurm/sbin") or "slurmctld"
    spec = LabSpec(
        shape=shape,
        root=ROOT,
        run=RUN,
        release=machine.read_release(slurmctld),
        user=_ACCOUNTS,
        port=_PORT,
        devices=tuple(f"{ROOT}/dev/gpu{number}" for number in range(shape.gpus)),
    )
    folder.mkdir(parents=True, exist_ok=True)
    _once(folder / "munge.key", os.urandom(128))
    password = _once(folder / "storage.password", secrets.token_hex(16).encode()).decode()
    _once(folder / "jwt_hs256.key", os.urandom(32))
    places = hosts(
        shape.nodes,
        cloud,
        password=password,
        jwt_key=str(folder / "jwt_hs256.key"),
        programs="/usr/local/sbin",
    )
    files = {
        Path(path).name: text for path, text in lab_files(spec, places).items() if path.startswith("etc/")
    }
    # slurm.conf last: where it is, all is.
    for name in sorted(files, key="slurm.conf".__eq__):
        _replace(folder / name, files[name].encode())


def _once(path: Path, content: bytes) -> bytes:
    """The content of a file that is made the first time."""
    if not path.exists():
        _replace(path, content)
    return path.read_bytes()


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole, for the eyes of those only whose secret it is."""
    new = path.with_name(f".{path.name}.new")
    secret = path.name in _SECRETS or path.name == "storage.password"
    new.touch(mode=0o600 if secret else 0o644)
    new.write_bytes(content)
    if owner := _SECRETS.get(path.name):
        shutil.chown(new, owner, owner)
    new.replace(path)


def _main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m slurmkit.lab.hosts", description=__doc__)
    parser.add_argument("folder", type=Path, help="that all hosts see as /etc/slurm")
    parser.add_argument("--name", default="lab", help="of the cluster")
    asked = parser.parse_args(argv)
    try:
        write(asked.folder, LabShape(name=asked.name, nodes=NODES, accounting=True), cloud=CLOUD_NODES)
    except SlurmkitError as error:
        print(error.report(), file=sys.stderr)
        return error.exit_code
    except (OSError, LookupError) as error:
        hint = "it takes root, and the users that slurmctld, munge and mariadb-server bring along"
        trouble = LabError(f"the configuration could not be written to {asked.folder}: {error}", hint)
        print(trouble.report(), file=sys.stderr)
        return trouble.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
