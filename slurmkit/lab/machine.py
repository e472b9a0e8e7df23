"""What a lab needs of this machine: programs, folders, devices."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.errors import LabError, MissingProgramError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "fake_gpus",
    "find_programs",
    "hidden_from_others",
    "lab_environment",
    "labs_folder",
    "own_name_resolves",
    "read_release",
    "run_folder",
    "user_name",
]

_PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sinfo": "slurm-client",
    "squeue": "slurm-client",
    "scontrol": "slurm-client",
}
_ACCOUNTING_PACKAGES = {
    "slurmdbd": "slurmdbd",
    "sacct": "slurm-client",
    "sacctmgr": "slurm-client",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
#: An ordinary user's PATH lacks the folders of the daemons.
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SOCKET_PATH = 107
_LONGEST_SOCKET = "/spool/n64/n64_4294967295.4294967295.4294967295"


def labs_folder(environ: Mapping[str, str]) -> Path:
    """Where labs live: ``$SLURMKIT_LAB_DIR``, or ``slurmkit/labs`` where programs keep their state."""
    if given := environ.get("SLURMKIT_LAB_DIR"):
        return Path(given).absolute()
    state = environ.get("XDG_STATE_HOME", "")
    home = Path(state) if state.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".local/state"
    return home / "slurmkit" / "labs"


def lab_environment(environ: Mapping[str, str], conf: Path) -> dict[str, str]:
    """An environment in which Slurm's commands talk to the lab.

    What an outer job or a shell's profile says to Slurm's commands would mislead them here: it is left out.
    """
    kept = {key: value for key, value in environ.items() if not _SLURM_VARIABLE.match(key)}
    path = kept.get("PATH", "")
    missing = [folder for folder in _SYSTEM_PATH.split(":") if folder not in path.split(":")]
    return {**kept, "PATH": ":".join(filter(None, [path, *missing])), "SLURM_CONF": str(conf)}


_SLURM_VARIABLE = re.compile(
    r"(SLURM|SLURMD|SBATCH|SALLOC|SRUN|SINFO|SQUEUE|SACCT|SCANCEL|SCONTROL|SACCTMGR|SSTAT|SPRIO|PMI|PMIX)_"
)


def find_programs(*, accounting: bool) -> dict[str, str]:
    """Find every program that a lab runs.

    Args:
        accounting: whether it has slurmdbd.

    Returns:
        The absolute path of each program by its name.

    Raises:
        MissingProgramError: naming those that are missing together with the package that has each.
    """
    wanted = _PACKAGES | (_ACCOUNTING_PACKAGES if accounting else {})
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    found = {program: shutil.which(program, path=path) for program in wanted}
    missing = [program for program, place in found.items() if place is None]
    if missing:
        packages = dict.fromkeys(wanted[program] for program in missing)
        listed = ", ".join(f"{program} (package {wanted[program]})" for program in missing)
        raise MissingProgramError(
            f"a lab needs {listed}", f"on Debian and Ubuntu: apt-get install {' '.join(packages)}"
        )
    return {program: place for program, place in found.items() if place}


def read_release(slurmctld: str) -> tuple[int, int]:
    """Ask slurmctld for the release of this Slurm, such as ``(22, 5)``."""
    said = subprocess.run([slurmctld, "-V"], capture_output=True, text=True, check=False)
    match = re.search(r"(\d+)\.(\d+)", said.stdout)
    if said.returncode or not match:
        raise LabError(
            f"{slurmctld} -V tells no release: {said.stdout.strip()!r}",
            "it prints slurm 22.05.8, where Slurm is whole: install it again",
            said.stderr,
        )
    return int(match[1]), int(match[2])


def user_name(number: int) -> str:
    """The name of a user, or the number where there is no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def run_folder(root: Path) -> Path:
    """Choose the folder for sockets and spool: under the lab's, or a new short one if that is too long.

    A Unix socket's path has 107 characters at most. Other users' commands reach root's lab through it.
    """
    run = root / "run"
    if len(os.fsencode(run)) + len(_LONGEST_SOCKET) <= _SOCKET_PATH:
        run.mkdir()
        return run
    run = Path(tempfile.mkdtemp(prefix="slurmkit-", dir="/tmp"))
    if os.geteuid() == 0:
        run.chmod(0o755)
    return run


def hidden_from_others(folder: Path) -> bool:
    """Whether other users cannot reach a folder: then they cannot submit to a lab in it."""
    return any(not parent.stat().st_mode & 0o001 for parent in [folder, *folder.parents])


def own_name_resolves() -> bool:
    """Whether this host's own name has an address: without one, srun's ends get lost on their way back."""
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return False
    return True


def fake_gpus(folder: Path, count: int) -> tuple[str, ...]:
    """Make one file for each fake GPU.

    slurmd takes character devices only, and each name once; it follows symbolic links, so that nobody
    has to be root to have as many as wanted. The number at the end of the name is the GPU's index.

    Args:
        folder: where they are made.
        count: how many.

    Returns:
        Their paths.
    """
    folder.mkdir()
    made = [folder / f"gpu{number}" for number in range(count)]
    for path in made:
        path.symlink_to("/dev/null")
    return tuple(map(str, made))
