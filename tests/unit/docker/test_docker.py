"""The files that make the clusters of containers, looked at without a Docker daemon."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pty
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"


def test_shellcheck_finds_nothing(missing: Callable[[str], None]) -> None:
    """Every script of docker/ and of CI is clean by shellcheck's rules."""
    if not shutil.which("shellcheck"):
        missing("shellcheck is not installed")
    files = [ROOT / ".ci" / "run", *(ROOT / ".ci").glob("*.sh")]
    files += [path for path in DOCKER.iterdir() if path.read_bytes().startswith(b"#!/bin/bash")]
    done = subprocess.run(["shellcheck", "-x", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_script_says_what_is_accepted(tmp_path: Path) -> None:
    """Without words, or with a release that there is not, a script ends with 2 and its usage, and asks no Docker."""
    path = f"{tmp_path}:/usr/bin:/bin"
    (tmp_path / "docker").write_text("#!/bin/sh\nsleep 600\n")
    (tmp_path / "docker").chmod(0o755)
    for words in (
        ["test.sh", "--only"],
        ["cluster.sh"],
        ["test.sh"],
        ["suite.sh"],
        ["image.sh"],
        ["image.sh", "23.02"],
        ["cluster.sh", "up", "23.02"],
    ):
        script = [DOCKER / words[0], *words[1:]]
        done = subprocess.run(script, capture_output=True, text=True, check=False, env={"PATH": path})
        assert done.returncode == 2, words
        assert all(release in done.stderr for release in ("22.05", "24.11", "26.05")), words


@pytest.mark.parametrize("only", [(), ("--only", "core")], ids=["whole", "core"])
def test_all_is_each_release(tmp_path: Path, only: tuple[str, ...]) -> None:
    """Every release has its image, its tests and, unless it is the core alone, its lab tests; one that fails stops no other."""
    shutil.copytree(DOCKER, tmp_path / "docker")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "docker").mkdir(parents=True)
    (tmp_path / "tests" / "docker" / "test_it.py").write_text("@pytest.mark.core\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for script in ("docker/cluster.sh", "docker/suite.sh", ".venv/bin/python"):
        (tmp_path / script).write_text(f'#!/bin/sh\necho "{Path(script).stem} $*" >>{tmp_path}/called\n')
        (tmp_path / script).chmod(0o755)
    with (tmp_path / ".venv" / "bin" / "python").open("a") as python:
        python.write("case $* in *24.11*) exit 1; esac\n")
    done = subprocess.run(
        [tmp_path / "docker" / "test.sh", *only, "all"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "failed on 24.11: tests/docker\n" in done.stderr
    words = " -m core" if only else ""
    expected = [
        call
        for release in ("22.05", "24.11", "26.05")
        for call in (
            f"cluster image {release}",
            *(() if only else (f"suite {release}",)),
            f"python -m pytest tests/docker --slurm={release}{words}",
        )
    ]
    page = [] if only else [f"python {tmp_path}/tests/docker/compatibility.py"]
    assert (tmp_path / "called").read_text().splitlines() == expected + page


def test_an_image_without_its_tools_says_what_to_type(tmp_path: Path) -> None:
    """Without .venv nothing is built; where no base image comes, Docker's own last words say why."""
    shutil.copytree(DOCKER, tmp_path / "docker")
    path = tmp_path / "path"
    path.mkdir()
    for name, line in (
        ("docker", 'case $1 in pull) printf "Error\\nlookup of the name: no such host\\n" >&2; exit 1;; image) exit 1;; esac'),
        ("debootstrap", "exit 3"),
    ):  # fmt: skip
        (path / name).write_text(f"#!/bin/sh\n{line}\n")
        (path / name).chmod(0o755)

    def said(*words: str) -> str:
        script = [tmp_path / "docker" / words[0], *words[1:]]
        env = {"PATH": f"{path}:/usr/bin:/bin"}
        done = subprocess.run(script, capture_output=True, text=True, check=False, env=env, timeout=60)
        assert done.returncode == 1
        return done.stderr

    assert "there is no" in (venv := said("cluster.sh", "image", "22.05"))
    assert "make setup" in venv
    assert "it cannot be pulled: lookup of the name: no such host" in said("base.sh", "bookworm")


#: A docker that notes how it is called, in $LOG, and answers as one that knows the containers of $THERE.
STUB = r"""#!/bin/bash
echo "docker $*" >>"$LOG"
case "$*" in
  info*) [ -z "$INFO" ] || { printf "$INFO\n" >&2; exit 1; } ;;
  context*) exit 1 ;;
  ps*) [ -z "$THERE" ] || echo id ;;
  "inspect --format {{.State.Running}}"*) [ -z "$THERE" ] || echo true ;;
  inspect*) echo "$THERE" ;;
  "image inspect --format"*) echo new ;;
  run*) echo slurm 24.11.5 ;;
  network*) [ -n "$NET" ] && echo "$NET" ;;
  exec*sinfo*) sed -n 1p "$NODES" | tr , '\n'; sed -i '1{$!d}' "$NODES" ;;
  compose*up*) [ -z "$SAYS" ] || { echo "$SAYS" >&2; [ "$SAYS" != Ctrl-C ] || kill -INT $(cat "$LOG.pid"); exit 1; } ;;
esac
"""
SAME = "slurmkit/cluster:24.11 new"


class Site:
    """A checkout of docker/ alone, on a machine with a stub of Docker."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        shutil.copytree(DOCKER, folder / "docker")
        self.write("path/docker", STUB)
        self.write(".venv/bin/python", "#!/bin/sh\n")
        for release in ("22.05", "24.11"):
            # As many wheels as the stub of Python asks for.
            self.write(f"build/docker/{release}/wheels/requirements.txt", "")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, *words: str, nodes: str = "c1 idle,c2 idle", **env: str) -> subprocess.Popen[str]:
        """Run cluster.sh; each line of nodes is what sinfo prints once, the last one from then on."""
        self.log.write_text("")
        (self.folder / "nodes").write_text(nodes + "\n")
        empty = dict.fromkeys(("INFO", "THERE", "NET", "SAYS"), "")
        said = {
            "PATH": f"{self.folder}/path:/usr/bin:/bin",
            "HOME": str(self.folder),
            "LOG": str(self.log),
            "NODES": str(self.folder / "nodes"),
        }
        # Its id is for the stub, which plays the terminal of whoever types Ctrl-C.
        line = 'echo $$ >"$LOG.pid"; exec "$@"'
        return subprocess.Popen(
            ["bash", "-c", line, "bash", str(self.folder / "docker" / "cluster.sh"), *words],
            env=empty | said | env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, code: int = 0, **env: str) -> str:
        """What cluster.sh says, which must exit with code."""
        process = self.start(*words, **env)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == code, said
        return said

    def called(self, *words: str) -> list[str]:
        """The calls of docker that have all of these words."""
        return [line for line in self.log.read_text().splitlines() if all(word in line for word in words)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_up_leaves_a_cluster_as_it_is(site: Site) -> None:
    """Nothing is made anew; a fresh one must be idle, one that was there has jobs and drained nodes, but answers."""
    assert "24.11: up, all nodes idle" in site.run("up", "24.11", nodes="c1 unknown*\nc1 mixed\nc1 idle")
    ups = site.called("compose", " up ")
    assert (len(ups), len(site.called("sinfo"))) == (2, 3)
    assert all("--no-recreate" in line for line in ups)
    nodes = "c1 idle*,c2 drained\nc1 down,c2 drained\nc1 mixed,c2 drained,c3 draining"
    said = site.run("up", "24.11", THERE=SAME, nodes=nodes)
    assert "is up already, and left as it is; drained: c2 c3" in said
    assert len(site.called("sinfo")) == 4
    assert all("--no-recreate" in line for line in site.called("compose", " up "))


@pytest.mark.parametrize(("name", "suffix"), [("", ""), ("mine", " CLUSTER=mine")])
def test_up_refuses_what_it_would_have_to_replace(site: Site, name: str, suffix: str) -> None:
    """Another image, a mixture, another network: Compose is not called; the command that removes it is said."""
    mend = f"make cluster-down SLURM=24.11{suffix} first"
    for there in ("slurmkit/cluster:24.11 old", f"{SAME}\nslurmkit/cluster:24.11 old"):
        assert mend in site.run("up", "24.11", code=1, THERE=there, CLUSTER=name)
        assert not site.called("compose", "up")
    other = {"THERE": SAME, "NET": "198.18.3.0/24", "SUBNET": "198.19.1"}
    assert f"has network 198.18.3.0/24, not 198.19.1.0/24. To have another: {mend}" in site.run(
        "up", "24.11", code=1, CLUSTER=name, **other
    )
    assert not site.called("compose", "up")


@pytest.mark.parametrize("verb", ["up", "shell", "down"])
def test_the_wrong_release_is_refused(site: Site, verb: str) -> None:
    """It names the one that is there and what to type; so for what is no cluster of ours. Nothing is touched."""
    said = site.run(verb, "22.05", code=1, CLUSTER="mine", THERE=SAME)
    assert "mine is there with Slurm 24.11, not 22.05" in said
    assert f"make cluster-{'down' if verb == 'up' else verb} SLURM=24.11 CLUSTER=mine" in said
    foreign = site.run(verb, "22.05", code=1, CLUSTER="mine", THERE="postgres:15 x")
    assert "no cluster of slurmkit, it has containers of postgres:15" in foreign
    assert not [*site.called("build"), *site.called("compose", "--file"), *site.called("docker exec")]


@pytest.mark.parametrize("verb", ["up", "down"])
def test_one_up_or_down_at_a_time(site: Site, verb: str) -> None:
    """The second waits until the first is done, of whatever checkout, and touches nothing before."""
    site.run(verb, "24.11", CLUSTER="mine")
    with (site.folder / ".cache" / "slurmkit" / "cluster-mine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = site.start(verb, "24.11", CLUSTER="mine")
        assert process.stderr
        assert "waiting for another up or down of mine" in process.stderr.readline()
        assert not [*site.called("build"), *site.called("--file")]
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert site.called("compose", "--file", verb)


@pytest.mark.parametrize(
    ("says", "said"),
    [
        ("Error: Pool overlaps with other one on this address space", "set SUBNET to three other numbers"),
        (
            'Conflict. The container name "/mine-db" is already in use by container 1',
            "another user makes or has",
        ),
    ],
)
def test_composes_errors_have_a_remedy(site: Site, says: str, said: str) -> None:
    """One line with what to do, in place of Compose's own."""
    lines = site.run("up", "24.11", code=1, CLUSTER="mine", SAYS=says).splitlines()
    assert said in lines[-1]
    assert not any(says in line for line in lines)
    if "Pool" in says:  # the network is this cluster's own: it was made since we looked
        since = 'network*) ! grep -q "compose.* up " "$LOG" || NET=198.18.3.0/24;'
        site.write("path/docker", STUB.replace("network*)", since))
        assert "another user makes or has" in site.run("up", "24.11", code=1, CLUSTER="mine", SAYS=says)


@pytest.mark.parametrize(("says", "code"), [("something else", 1), ("Ctrl-C", 130)])
def test_what_a_failed_up_leaves_can_be_removed(site: Site, says: str, code: int) -> None:
    """After an error or Ctrl-C it says how, where there is something."""
    has = f'! grep -q "compose.* up " "$LOG" || THERE="{SAME}"'
    site.write("path/docker", STUB.replace("case", f"{has}\ncase", 1))
    said = site.run("up", "24.11", code=code, CLUSTER="mine", SAYS=says)
    assert "To remove it: make cluster-down SLURM=24.11 CLUSTER=mine" in said.splitlines()[-1]
    site.write("path/docker", STUB)
    assert "To remove it" not in site.run("up", "24.11", code=code, CLUSTER="mine", SAYS=says)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (
            "permission denied while trying to connect: dial unix\\nerrors pretty printing info",
            "group docker",
        ),
        ("Cannot connect to the Docker daemon at unix:///x.", "no Docker daemon answers: start it"),
    ],
)
def test_docker_says_why_it_does_not_answer(site: Site, info: str, said: str) -> None:
    """Its own last words come first, then the remedy of their kind."""
    words, remedy = site.run("shell", "24.11", code=1, INFO=info).splitlines()
    assert words.endswith(info.partition("\\n")[0])
    assert said in remedy


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        *[("up", {"CLUSTER": name}, "lower-case letters, digits") for name in ("a b", "x:y", "-x", "ü", "Mine", "_x")],
        *[("up", {"SUBNET": net}, "SUBNET=198.19.1") for net in ("198.19", "198.19.1.0/24", "a.b.c", "1.2.256", "240.1.1", "1.02.3")],
        *[(f"{verb} 24.11 rm", {}, "a release alone, not also: rm") for verb in ("image", "up", "down")],
    ],
)  # fmt: skip
def test_odd_words_are_refused_at_the_start(site: Site, words: str, env: dict[str, str], said: str) -> None:
    """Names, networks and words too many: what is accepted is said, and Docker is not asked."""
    assert said in site.run(*f"{words} 24.11".split()[: max(2, len(words.split()))], code=2, **env)
    assert not site.called("docker")


def test_make_hands_over_one_word() -> None:
    """SLURM="24.11 rm" is no release, and rm no command of the shell; so for an ONLY that no test has."""
    for target in ("up", "shell", "down"):
        make = ["make", f"cluster-{target}", "SLURM=24.11 rm", "--assume-old=.venv/.ready"]
        done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "no release 24.11 rm" in done.stderr
    for only in ("nope", "lab", "core feature"):
        script = [DOCKER / "test.sh", "--only", only, "24.11"]
        env = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": "unix:///nowhere"}
        done = subprocess.run(script, capture_output=True, text=True, check=False, env=env, timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"ONLY='{only}' is no marker of tests/docker; accepted: core feature" in done.stderr


@pytest.mark.parametrize("terminal", [True, False])
def test_a_shell_has_a_terminal_where_we_have_one(site: Site, terminal: bool) -> None:
    """On a terminal it is one; what is piped in is read as it is."""
    ours, its = pty.openpty()
    env = {
        "PATH": f"{site.folder}/path:/usr/bin:/bin",
        "LOG": str(site.log),
        "THERE": SAME,
        "CLUSTER": "mine",
    }
    script = [site.folder / "docker" / "cluster.sh", "shell", "24.11", "a b"]
    stdin = its if terminal else subprocess.PIPE
    with subprocess.Popen(script, env=env, stdin=stdin, stderr=subprocess.PIPE, text=True) as process:
        assert process.communicate(timeout=60)[1] == ""
    os.close(ours)
    os.close(its)
    flags = "-it" if terminal else "-i"
    home = "--user alice --workdir /home/alice --env HOME=/home/alice"
    assert site.called(f"docker exec {flags} {home} mine-login a b")


def test_accounts_are_made_once(tmp_path: Path) -> None:
    """A slurmctld saves its state at its first start, and asks nothing of slurmdbd at the next one."""
    own = f"lib={tmp_path} run={tmp_path}"
    role = (DOCKER / "role").read_text().replace("lib=/var/lib/slurmlab run=/run/slurmlab", own)
    (tmp_path / "role").write_text(role)
    log = tmp_path / "log"
    stubs = {
        "accounts": f"echo accounts >>{log}",
        "setpriv": f"""all="$*"; case $all in
            *slurmctld*-i) echo "${{all#*slurmctld }}" >>{log}; trap 'exit 0' TERM; while :; do sleep 0.05; done ;;
            *slurmctld*) echo "${{all#*slurmctld }}" >>{log} ;;
            esac""",
        "install": "",
        "scontrol": f"! grep -q -- -i {log} || echo is UP",
    }
    for name, line in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    for _ in range(2):
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SITE": str(tmp_path)}
        subprocess.run(["bash", tmp_path / "role", "slurmctld"], env=env, check=False, timeout=60)
    assert log.read_text().splitlines() == ["accounts", "-D -i", "-D", "-D"]


def test_hosts_have_one_address_everywhere() -> None:
    """A name in the list that all hosts have is the address that this host gets."""
    composed = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    listed = dict(item.split(":$", 1) for item in composed["x-host"]["extra_hosts"])
    hosts = composed["services"]
    assert {name for name, host in hosts.items() if host["command"] == "slurmd"} < set(listed)
    for name, address in listed.items():
        assert hosts[name]["networks"]["site"]["ipv4_address"] == f"${address}"
        assert (hosts[name]["hostname"], hosts[name]["container_name"]) == (name, f"${{CLUSTER:?}}-{name}")


def test_only_the_power_control_has_the_docker_socket() -> None:
    """Whoever has it is root on the machine: it is no host that runs a job, or Slurm."""
    composed = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    having = [name for name, host in composed["services"].items() if "docker.sock" in str(host["volumes"])]
    assert having == ["power"]


@pytest.mark.parametrize("suite", ["bookworm", "trixie", "forky"])
def test_the_image_has_the_pinned_versions(suite: str) -> None:
    """What the image gets by pip has a version, that of development; PyTorch is Debian's where it is new enough."""
    found = importlib.util.spec_from_file_location("requirements", DOCKER / "requirements.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    wanted = module.requirements(suite)
    pinned = (ROOT / "requirements-dev.txt").read_text().splitlines()
    left_out = {line for line in pinned if line and not line.startswith("#")} - set(wanted)
    debian = set() if suite == "bookworm" else module.FROM_DEBIAN
    assert {line.partition("==")[0] for line in left_out} == debian | module.NOT_NEEDED
    assert all("==" in line for line in wanted)
    assert {line.partition("==")[0] for line in set(wanted) - set(pinned)} == {"moto[server]", "s3fs"}
    assert any(line.startswith("torch==") for line in wanted) == (suite == "bookworm")
    assert any(line.startswith("hydra-core==") for line in wanted)
