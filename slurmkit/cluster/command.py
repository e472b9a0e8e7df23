"""Slurm through its own commands: works on every release, and needs nothing but a login node."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slurmkit.cluster import parse
from slurmkit.cluster.client import COMMAND_WIDTH
from slurmkit.cluster.model import ClusterConfig, ClusterSnapshot
from slurmkit.errors import NoCommandError, SlurmRefusedError, SlurmUnavailableError
from slurmkit.runtime.silence import has_no_conf, is_unreachable, told, tries_again

__all__ = ["CommandClient", "Runner", "WhileFull", "clean_environ", "run_slurm", "unavailable"]

#: Takes an argument vector; returns exit code, stdout and stderr.
Runner = Callable[[Sequence[str]], tuple[int, str, str]]
#: Is told the words of an sbatch that tries again; the rest of its tries are waited for in this context.
WhileFull = Callable[[str], contextlib.AbstractContextManager[None]]

_TIMEOUT = 30.0  # seconds; a controller that says nothing for so long is down for our purposes
_REFUSED = 1.5  # a host on which no slurmctld listens says so at once
_FIRST_WORDS = 1.0  # so often a command that takes longer is listened to
_SBATCH_TIMEOUT = 300.0  # sbatch retries for two minutes where the controller is full
#: squeue --Format pads and cuts to these widths. The cut list of nodes of a huge job is only shown, never read.
_QUEUE_FIELDS = {
    "ArrayJobID": 30,
    "ArrayTaskID": 30,
    "State": 30,
    "RestartCnt": 12,
    "Reason": 120,
    "NodeList": 400,
    "Command": COMMAND_WIDTH,
}
_OWN_FIELDS = {"ArrayJobID": 30, "SubmitTime": 30, "Command": COMMAND_WIDTH}
_HISTORY_FIELDS = ("JobID", "State", "NodeList", "JobName")
_FORGOTTEN = "Invalid job id"  # what Slurm says of a job that ended minutes ago
_START_A_LAB = 'eval "$(slurmkit lab up)"'
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for Slurm's commands: without what would change their meaning.

    A caller inside a job carries ``SLURM_MEM_PER_NODE`` and the like, and anybody's profile may set
    ``SBATCH_PARTITION`` or ``SQUEUE_FORMAT``; all of them silently override what we ask for.
    """
    prefixes = (
        "SLURM_",
        "SBATCH_",
        "SALLOC_",
        "SRUN_",
        "SQUEUE_",
        "SCONTROL_",
        "SINFO_",
        "SACCT_",
        "SCANCEL_",
    )
    kept = {key: value for key, value in environ.items() if key in _KEPT or not key.startswith(prefixes)}
    return {key: value for key, value in kept.items() if value or key != "SLURM_CONF"}  # empty means unset


def run_slurm(
    argv: Sequence[str],
    while_full: WhileFull | None = None,
) -> tuple[int, str, str]:
    """Run one of Slurm's commands.

    Args:
        argv: the command.
        while_full: for an sbatch that slurmctld refused for now. An exception in that context ends it first.

    Raises:
        SlurmUnavailableError: if it is not installed, did not answer in 30 s, or has no slurm.conf to begin with.
    """
    _check_conf()
    submitting = argv[0] == "sbatch"
    # The job inherits sbatch's environment, so its language stays the person's; ours is for what we parse.
    env = clean_environ(os.environ) | ({} if submitting else {"LC_ALL": "C"})
    timeout = _SBATCH_TIMEOUT if submitting else _TIMEOUT
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(
            argv, stdout=pipe, stderr=pipe, text=True, errors="replace", env=env
        ) as process:
            try:
                out, err = _listen(process, timeout, while_full)
            except BaseException:  # it shall not go on to submit; where Ctrl-C is held back, so is SIGTERM
                process.kill()
                raise
    except FileNotFoundError as error:
        raise NoCommandError(
            f"{argv[0]} is not installed here, so no Slurm cluster can be asked",
            "on a login node they may be in a module (module load slurm); elsewhere install Slurm's client commands "
            f"(Debian: slurm-client), or start a cluster: {_START_A_LAB}",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmUnavailableError(
            f"{argv[0]} got no answer from slurmctld in {timeout:.0f} s", "see: scontrol ping"
        ) from error
    return process.returncode, out, err


def _listen(
    process: subprocess.Popen[str],
    timeout: float,
    while_full: WhileFull | None,
) -> tuple[str, str]:
    """What a command prints; as soon as it says that it tries again, the rest of it in that context."""
    until = time.monotonic() + timeout
    while (left := until - time.monotonic()) > _FIRST_WORDS:
        try:
            return process.communicate(timeout=_FIRST_WORDS)
        except subprocess.TimeoutExpired as silent:
            said = (silent.stderr or b"").decode(errors="replace")
        if while_full and tries_again(said):
            with while_full(said.strip()):
                return process.communicate(timeout=left)
    return process.communicate(timeout=left)


def _check_conf() -> None:
    """Slurm's own commands look for another slurm.conf for minutes where SLURM_CONF names none."""
    conf = os.environ.get("SLURM_CONF")
    if conf:
        try:
            with Path(conf).open("rb"):
                pass
        except OSError as error:
            raise _no_conf(error.strerror or str(error)) from error


def unavailable(stderr: str) -> SlurmUnavailableError:
    """Slurm's last words that tell why, as one line, with the remedy for the kind."""
    lines = stderr.strip().splitlines() or ["no message"]
    said = next(filter(is_unreachable, reversed(lines)), lines[-1])
    if has_no_conf(stderr):
        return _no_conf(said)
    return SlurmUnavailableError(
        f"slurmctld cannot be reached: {said}",
        "see which controller is asked with: scontrol ping; if it is up for others, this host differs from theirs in "
        "munge's key or in its clock; a lab of yours with: slurmkit lab status",
    )


def _no_conf(said: str) -> SlurmUnavailableError:
    conf = os.environ.get("SLURM_CONF")
    where = f"SLURM_CONF={conf}" if conf else "/etc/slurm/slurm.conf (SLURM_CONF is not set)"
    return SlurmUnavailableError(
        f"slurm.conf cannot be read at {where}: {said}",
        f"set SLURM_CONF to the cluster's slurm.conf, or start a lab: {_START_A_LAB}",
    )


class CommandClient:
    """A ``SlurmClient`` over ``scontrol``, ``squeue``, ``sacct`` and ``scancel``.

    Args:
        run: how a command is run; tests give one that checks what it is called with.
    """

    def __init__(self, run: Runner = run_slurm) -> None:
        self._run = run

    def _ask(self, *argv: str, unless: str = "", hint: str = "") -> str:
        """What a command prints; nothing where it fails with the words ``unless``.

        Raises:
            SlurmUnavailableError: if Slurm did not answer.
            SlurmRefusedError: if it said no.
        """
        code, out, err = self._run(argv)
        if not code and not is_unreachable(err):  # sacct and scancel end with 0 where they asked nobody
            return out
        said = err.strip() or out.strip()
        if unless and unless in said:
            return ""
        if code < 0 or is_unreachable(said):
            raise unavailable(said or f"signal {-code} ended {argv[0]}")
        words = told(said) or f"exit code {code}"
        raise SlurmRefusedError(f"{argv[0]} was refused: {words}", hint or f"see it with: {shlex.join(argv)}")

    def _answers(self) -> None:
        """A ping takes 10 ms, up or down; every other command retries a dead controller for 9 s and more."""
        asked = time.monotonic()
        code, out, err = self._run(("scontrol", "ping"))
        if "is UP" in out:
            return
        waited = time.monotonic() - asked
        if waited >= _REFUSED and not err.strip():
            raise SlurmUnavailableError(
                f"slurmctld did not answer within {waited:.0f} s: it is busy, or hangs, or its host does not respond",
                "try again in a minute; see it with: scontrol ping",
            )
        raise unavailable(err or out.partition("\n")[0] or f"scontrol ping ended with {code}")

    def snapshot(self) -> ClusterSnapshot:
        """Read the cluster with four calls at once (each costs 10 ms, and 0.1 s on 10,000 nodes)."""
        self._answers()
        read_at = time.time()
        # Each with the words of a failure that is none: PrivateData hides the nodes, and a cluster is flat.
        calls = (
            (("scontrol", "--all", "show", "config"), ""),
            (("scontrol", "--all", "--oneliner", "show", "partition"), ""),
            (("scontrol", "--all", "--oneliner", "show", "node"), "permission denied"),
            (("scontrol", "--oneliner", "show", "topology"), "No topology information"),
        )
        with ThreadPoolExecutor(len(calls)) as pool:
            texts = pool.map(lambda call: self._ask(*call[0], unless=call[1]), calls)
            config, partitions, nodes, topology = texts
        return ClusterSnapshot(
            read_at=read_at,
            config=parse.parse_config(config),
            partitions=parse.parse_partitions(parse.parse_records(partitions)),
            nodes=parse.parse_nodes(parse.parse_records(nodes)),
            fabric=parse.parse_fabric(parse.parse_records(topology)),
        )

    def config(self) -> ClusterConfig:
        """See ``SlurmClient.config``."""
        self._answers()
        return parse.parse_config(self._ask("scontrol", "show", "config"))

    def cluster(self) -> str:
        """See ``SlurmClient.cluster``."""
        return self.config().cluster

    def own_jobs(self) -> list[tuple[str, float, str]]:
        """See ``SlurmClient.own_jobs``."""
        self._answers()
        own = ("--me", "--noheader", "--states=all", f"--Format={_form(_OWN_FIELDS)}")
        out = self._ask("squeue", *own, unless=_FORGOTTEN)  # of somebody without any job
        rows = (_cells(line, _OWN_FIELDS) for line in out.splitlines() if line.strip())
        # Every task of an array that has begun is a line with the id of the array.
        jobs = {row["ArrayJobID"]: (parse.parse_time(row["SubmitTime"]), row["Command"]) for row in rows}
        return [(job, *jobs[job]) for job in sorted(jobs, key=int)]

    def job(self, job_id: str) -> Mapping[str, str] | None:
        """See ``SlurmClient.job``."""
        self._answers()
        out = self._ask("scontrol", "--all", "--oneliner", "show", "job", job_id, unless=_FORGOTTEN)
        return parse.parse_job(out) or None

    def script(self, job_id: str) -> str | None:
        """See ``SlurmClient.script``."""
        self._answers()
        try:
            return self._ask("scontrol", "write", "batch_script", job_id, "-") or None
        except SlurmRefusedError:
            return None

    def queue(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        """See ``SlurmClient.queue``."""
        self._answers()
        jobs = f"--jobs={','.join(job_ids)}"
        shown = ("--all", "--array", "--noheader", "--states=all", jobs, f"--Format={_form(_QUEUE_FIELDS)}")
        out = self._ask("squeue", *shown, unless=_FORGOTTEN)
        return [_cells(line, _QUEUE_FIELDS) for line in out.splitlines() if line.strip()]

    def history(self, job_ids: Sequence[str]) -> list[Mapping[str, str]]:
        """See ``SlurmClient.history``."""
        jobs, form = f"--jobs={','.join(job_ids)}", f"--format={','.join(_HISTORY_FIELDS)}"
        shown = ("--allocations", "--noheader", "--parsable2", jobs, form)
        try:
            out = self._ask("sacct", *shown, unless="accounting storage is disabled")
        except NoCommandError:
            return []
        return [dict(zip(_HISTORY_FIELDS, line.split("|"), strict=False)) for line in out.splitlines()]

    def cancel(self, job_ids: Sequence[str]) -> None:
        """See ``SlurmClient.cancel``."""
        self._answers()
        self._ask("scancel", *job_ids, hint="see the queue with: squeue --me")


def _form(widths: Mapping[str, int]) -> str:
    return ",".join(f"{field}:{width}" for field, width in widths.items())


def _cells(line: str, widths: Mapping[str, int]) -> Mapping[str, str]:
    cells, start = {}, 0
    for field, width in widths.items():
        cells[field] = line[start : start + width].strip()
        start += width
    return cells
