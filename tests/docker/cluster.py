"""A cluster of containers as its people meet it: commands on its hosts, hosts that die, and a site's settings."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polling import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
SCRIPT = HERE.parents[1] / "docker" / "cluster.sh"

NODES = tuple(f"c{number}" for number in range(1, 9))
#: Every state of a point that does not change any more.
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}
#: A job that needs next to nothing of a node.
ONE = ("payload=command", "resources.time=5", "resources.mem=100M")

_NUMBERS = itertools.count(1)


def command(*words: str) -> str:
    """A command as Hydra's list of quoted words."""
    return "payload.command=[" + ",".join("'" + word.replace("'", "\\'") + "'" for word in words) + "]"


def shell(text: str) -> str:
    """A line of bash as the command of a payload."""
    return command("bash", "-c", text)


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        release: of Slurm, such as ``24.11``.
        name: before the dash in the name of each container.
    """

    release: str
    name: str

    def script(self, verb: str, timeout: float = 900) -> str:
        """Run ``docker/cluster.sh VERB RELEASE``; returns what it noted."""
        done = subprocess.run(
            [str(SCRIPT), verb, self.release],
            env={**os.environ, "CLUSTER": self.name},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert done.returncode == 0, f"{SCRIPT.name} {verb} {self.release}\n{done.stdout}\n{done.stderr}"
        return done.stderr

    def docker(self, *words: str, check: bool = True, timeout: float = 60) -> str:
        """Run ``docker WORDS`` here; returns its stdout."""
        done = subprocess.run(
            ["docker", *words], capture_output=True, text=True, check=False, timeout=timeout
        )
        assert done.returncode == 0 or not check, f"docker {words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(
        self,
        *argv: str,
        host: str = "login",
        user: str = "root",
        cwd: str | None = None,
        code: int | None = 0,
        stdin: str | None = None,
        timeout: float = 90,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host.

        Args:
            argv: the command.
            host: of this cluster.
            user: who runs it there.
            cwd: where; None is the user's home.
            code: what it must exit with; None is anything.
            stdin: what it reads; None is nothing.
            timeout: seconds until the test fails.
            env: variables added to those of the host.
        """
        home = "/root" if user == "root" else f"/home/{user}"
        variables = [f"--env={key}={value}" for key, value in {"HOME": home, "USER": user, **env}.items()]
        flags = [
            f"--user={user}",
            f"--workdir={cwd or home}",
            *variables,
            *(["-i"] if stdin is not None else []),
        ]
        done = subprocess.run(
            ["docker", "exec", *flags, f"{self.name}-{host}", *argv],
            capture_output=True,
            text=True,
            check=False,
            input=stdin,
            timeout=timeout,
        )
        assert code is None or done.returncode == code, (
            f"{user}@{host}: {' '.join(argv)} exited {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def person(self, folder: str, user: str = "alice") -> Person:
        """A person on the login host, with a folder of their own for a test."""
        cwd = f"/home/{user}/{folder}-{os.getpid()}"
        self.run("mkdir", "-p", cwd, user=user)
        return Person(self, user, cwd)

    # --- Hosts ---------------------------------------------------------------------------------------

    def kill(self, host: str) -> None:
        """Let a host die: no daemon of it says goodbye."""
        self.docker("kill", f"{self.name}-{host}")

    def start(self, host: str) -> None:
        """Start a host that is off, or died."""
        self.docker("start", f"{self.name}-{host}")

    def restart(self, host: str) -> None:
        """Start a host anew, as after a reboot."""
        self.docker("restart", "--time=1", f"{self.name}-{host}")

    def pause(self, host: str) -> None:
        """Freeze a host: it is there, and answers nothing."""
        self.docker("pause", f"{self.name}-{host}")

    def unpause(self, host: str) -> None:
        """Let a host go on where it stopped; one that was not frozen goes on anyway."""
        self.docker("unpause", f"{self.name}-{host}", check=False)

    def running(self, host: str) -> bool:
        """Whether a host is on."""
        shown = self.docker("inspect", "--format={{.State.Running}}", f"{self.name}-{host}", check=False)
        return shown.strip() == "true"

    def wait_healthy(self, host: str, timeout: float = 60) -> None:
        """Wait until a host does what its role promises."""
        health = ("inspect", "--format={{.State.Health.Status}}", f"{self.name}-{host}")
        wait_until(lambda: self.docker(*health).strip() == "healthy", timeout, f"{host} to be healthy")

    # --- Slurm ---------------------------------------------------------------------------------------

    def answers(self) -> bool:
        """Whether slurmctld answers."""
        return "is UP" in self.run("scontrol", "ping", code=None).stdout

    def job(self, job: str) -> dict[str, str]:
        """``scontrol show job`` as a mapping; empty where Slurm has forgotten it."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job, code=None).stdout
        return dict(item.split("=", 1) for item in shown.split() if "=" in item)

    def wait_state(self, job: str, *states: str, timeout: float = 60) -> dict[str, str]:
        """Wait until a job is in one of these states; returns what Slurm shows of it then."""
        return wait_until(
            lambda: shown if (shown := self.job(job)).get("JobState") in states else None,
            timeout,
            lambda: f"job {job} to be {' or '.join(states)}; it is {self.job(job)}",
        )

    def accounted(self, *fields: str, name: str = "", job: str = "") -> list[list[str]]:
        """Rows of sacct, each life of a job one row, without its steps."""
        select = [f"--name={name}"] if name else [f"--jobs={job}"]
        words = [
            "sacct",
            "-nXPD",
            "--allusers",
            "--starttime=now-1days",
            *select,
            f"--format={','.join(fields)}",
        ]
        return [line.split("|") for line in self.run(*words).stdout.splitlines()]

    def node(self, node: str) -> dict[str, str]:
        """``scontrol show node`` as a mapping."""
        shown = self.run("scontrol", "--oneliner", "show", "node", node).stdout
        return dict(item.split("=", 1) for item in shown.split() if "=" in item)

    def read(self, path: str, host: str = "login") -> str:
        """The text of a file on a host; empty where there is none."""
        return self.run("cat", path, host=host, code=None).stdout

    @contextmanager
    def settings(self, *lines: str, restart: bool = False) -> Iterator[None]:
        """Add lines to slurm.conf as the site's admin, and take them back after.

        Args:
            lines: a key that is there already is replaced; a key alone is taken out.
            restart: whether slurmctld must start anew to read them; else ``scontrol reconfigure``.
        """
        conf = "/etc/slurm/slurm.conf"
        before = self.read(conf)
        keys = {line.partition("=")[0] for line in lines}
        kept = [line for line in before.splitlines() if line.partition("=")[0] not in keys]
        added = [line for line in lines if "=" in line]
        try:
            self._configure(conf, "\n".join([*kept, *added]) + "\n", restart=restart)
            yield
        finally:
            self._configure(conf, before, restart=restart)

    def _configure(self, conf: str, text: str, *, restart: bool) -> None:
        # In one piece, as an editor does it: a node may read the file at any moment.
        self.run("sh", "-c", f"cat >{conf}.new && mv {conf}.new {conf}", stdin=text)
        if restart:
            # With time to save its state: one that is killed forgets the last seconds, and runs a job twice.
            self.docker("restart", "--time=20", f"{self.name}-slurmctld")
            self.wait_healthy("slurmctld")
        else:
            wait_until(
                lambda: self.run("scontrol", "reconfigure", code=None).returncode == 0, 30, "reconfigure"
            )
        wait_until(self.answers, 60, "slurmctld to answer with its new settings")

    def diagnostics(self) -> str:
        """All that explains a failure: nodes, jobs, and the tail of each log."""
        parts = [self.docker("ps", "--all", f"--filter=name={self.name}-", "--format={{.Names}} {{.Status}}")]
        log = "/var/lib/slurmlab/log"
        for host, words in (
            ("login", ("sinfo", "--Node", "--long")),
            ("login", ("scontrol", "show", "job")),
            ("slurmctld", ("tail", "-n", "60", f"{log}/slurmctld.log")),
            ("slurmdbd", ("tail", "-n", "10", f"{log}/slurmdbd.log")),
        ):
            parts.append(f"--- {host}: {' '.join(words)}\n{self._said(host, words)}")
        return "\n".join(parts)

    def _said(self, host: str, words: Sequence[str]) -> str:
        """What a command prints, also on a host that does not answer any more."""
        try:
            done = self.run(*words, host=host, code=None, timeout=30)
        except subprocess.TimeoutExpired as error:
            return str(error)
        return done.stdout + done.stderr


@dataclass(frozen=True)
class Person:
    """An ordinary user on the login host, in a folder of their own."""

    cluster: Cluster
    user: str
    cwd: str

    def run(self, *argv: str, code: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder, or where ``cwd`` says."""
        return self.cluster.run(*argv, user=self.user, code=code, **{"cwd": self.cwd, **options})

    def slurmkit(self, *words: str, code: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        """``slurmkit WORDS``; whatever it exits with, a traceback fails the test."""
        done = self.run("slurmkit", *words, code=code, **options)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def submit(self, *words: str, **options: Any) -> str:
        """Submit under a name that no other run has; returns the run's folder, which every host sees."""
        return self.slurmkit("submit", self.new_name(), *words, **options).stdout.strip()

    def new_name(self) -> str:
        """The override for a name that no other run of this cluster has, also where it outlives the session."""
        return f"name=t{os.getpid()}-{next(_NUMBERS)}"

    def status(self, run: str) -> list[dict[str, Any]]:
        """The points of a run, as ``slurmkit status --json`` tells them."""
        points: list[dict[str, Any]] = json.loads(self.slurmkit("status", run, "--json").stdout)["points"]
        return points

    def wait_ended(self, run: str, timeout: float = 90) -> list[dict[str, Any]]:
        """Wait until all points of a run have ended."""

        def ended() -> list[dict[str, Any]] | None:
            points = self.status(run)
            return points if points and {point["state"] for point in points} <= ENDED else None

        return wait_until(ended, timeout, lambda: f"{run} to end; {self.status(run)}")

    def attempts(self, run: str) -> list[dict[str, Any]]:
        """The submissions that the ledger of a run has."""
        listed = self.run(
            "sh", "-c", f"find {run}/attempts -name '*.json' 2>/dev/null | sort | xargs -r cat"
        ).stdout
        decoder, found, at = json.JSONDecoder(), [], 0
        while at < len(listed.rstrip()):
            attempt, end = decoder.raw_decode(listed, at)
            found.append(attempt)
            at = end + len(listed[end:]) - len(listed[end:].lstrip())
        return found

    def begun(self, run: str) -> set[str]:
        """The ids of the jobs that have left something in a run's folder, or whose end is kept there."""
        text = self.run("sh", "-c", f"cat '{run}'/lives/*.jsonl '{run}/ended.jsonl' 2>/dev/null || :").stdout
        return {str(json.loads(line)["job"]).partition("_")[0] for line in text.splitlines()}

    def job_of(self, run: str) -> str:
        """The job id of a run's newest submission."""
        return str(self.attempts(run)[-1]["job_id"])

    def log(self, run: str, point: int = 0) -> str:
        """What a point has printed so far."""
        return self.cluster.read(f"{run}/points/{point // 1000}/{point}/log")

    def lines(self, run: str, file: str, point: int = 0) -> list[dict[str, Any]]:
        """The whole lines of a JSON-lines file of a point, such as ``metrics.jsonl``."""
        text = self.cluster.read(f"{run}/points/{point // 1000}/{point}/{file}")
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def wait_printed(self, run: str, text: str = "\n", point: int = 0, timeout: float = 60) -> None:
        """Wait until a point has printed something: RUNNING in the queue does not mean that it has begun."""
        wait_until(lambda: text in self.log(run, point), timeout, f"{text!r} in the log of {run}")

    def agree(self, run: str, states: Sequence[str]) -> None:
        """Nothing is lost: the ledger and Slurm's accounting know the same jobs, lives and ends of a run.

        Args:
            run: its folder.
            states: how its points ended, in order.
        """
        points = sorted(self.status(run), key=lambda point: point["point"])
        assert [point["state"] for point in points] == list(states)
        told = {str(point["job"]): (point["restarts"] + 1, point["state"]) for point in points}
        name = json.loads(self.cluster.read(f"{run}/run.json"))["name"]
        jobs = {str(attempt["job_id"]) for attempt in self.attempts(run)} | self.begun(run)

        def accounted() -> dict[str, tuple[int, str]]:
            known: dict[str, tuple[int, str]] = {}
            for job, state in self.cluster.accounted("JobID", "State", name=name):
                known[job] = (known.get(job, (0, ""))[0] + 1, state.split()[0])
            return known

        def same() -> bool:
            known = accounted()
            return told.items() <= known.items() and {job.partition("_")[0] for job in known} == jobs

        # slurmdbd hears of a job a little later than squeue shows it.
        wait_until(same, 30, lambda: f"sacct to say {told} of jobs {jobs}; it says {accounted()}")
