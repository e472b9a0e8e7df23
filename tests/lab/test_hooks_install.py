"""``slurmkit hooks`` as an admin uses it: on a real Slurm, and where disks and permissions are against it."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import slurmkit
from labs import AS_SOMEBODY, SOMEBODY
from polling import wait_until

from slurmkit.cli import main
from slurmkit.errors import SlurmkitError, UsageError
from slurmkit.hooks import files
from slurmkit.hooks.advice import read_site
from slurmkit.hooks.install import install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

ONE = {"nodes": 1, "gpus": 0}


def words(tmp_path: Path, verb: str, *more: str) -> list[str]:
    return ["hooks", verb, f"--dir={tmp_path}/ours", *more]


def without(*lines: str) -> Callable[[str], str]:
    return lambda text: "".join(row for row in text.splitlines(keepends=True) if row.strip() not in lines)


def jobs_of(state: Path) -> list[tuple[str, int]]:
    """Event and job of each record."""
    file = state / "n1" / "jobs.jsonl"
    records = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    return [(record["event"], record["job"]) for record in records]


def run_job(lab: Lab) -> int:
    """Run a job to its end, its Epilog included."""
    job = lab.run(["sbatch", "--parsable", "--wait", "--output=/dev/null", "--wrap=true"]).stdout.strip()
    wait_until(
        lambda: set(lab.status().nodes or ()) == {"idle"}, 30, "the node to be idle: nothing drained it"
    )
    return int(job)


def reconfigure(lab: Lab, change: Callable[[str], str], state: Path, *, recorded: bool) -> int:
    """Edit slurm.conf, and run jobs until slurmd too has read it; returns the job that shows it."""
    lab.conf.write_text(change(lab.conf.read_text()))
    lab.run(["scontrol", "reconfigure"])

    def shown() -> int | None:
        job = run_job(lab)
        mine = [event for event, number in jobs_of(state) if number == job]
        return job if mine == (["start", "end"] if recorded else []) else None

    return wait_until(shown, 30, "a job that shows the new slurm.conf")


def test_slurm_conf_names_them(start_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """Installed, named, run at a job; not to be removed while named; and gone without a trace afterwards."""
    state = tmp_path / "state"
    install(tmp_path / "ours", str(state), site=None)
    lines = [f"Prolog={tmp_path}/ours/prolog", f"Epilog={tmp_path}/ours/epilog"]
    lab = start_lab(**ONE, extra="\n".join(lines))
    job = run_job(lab)
    assert jobs_of(state) == [("start", job), ("end", job)]

    again = slurmkit(lab, tmp_path, *words(tmp_path, "install"))
    assert again.stdout == ""
    assert "slurm.conf has them already" in again.stderr
    status = json.loads(slurmkit(lab, tmp_path, *words(tmp_path, "status", "--json")).stdout)
    assert (status["version"], status["troubles"]) == (1, [])
    assert status["runs"] == {"prolog": True, "epilog": True}
    assert [(record["node"], record["event"]) for record in status["records"]] == [("n1", "end")]

    for force in ([], ["--force"]):
        refused = slurmkit(lab, tmp_path, *words(tmp_path, "uninstall", *force), code=1)
        assert lines[0] in refused.stderr
        assert "scontrol reconfigure" in refused.stderr
    assert {item.state for item in files.inspect(tmp_path / "ours")} == {"ok"}

    reconfigure(lab, without(*lines), state, recorded=False)
    assert "does not run" in slurmkit(lab, tmp_path, *words(tmp_path, "status"), code=1).stdout
    slurmkit(lab, tmp_path, *words(tmp_path, "uninstall"))
    assert not (tmp_path / "ours").exists()
    run_job(lab)


def several_count(lab: Lab) -> bool:
    """Whether every Prolog line of slurm.conf counts, or the last one alone."""
    return lab.spec.release >= (24, 5)


def paste(lab: Lab, told: subprocess.CompletedProcess[str]) -> bool:
    """Do the commands that install says, to the letter; whether there were any."""
    commands = "\n".join(line for line in told.stderr.splitlines() if line.startswith("  "))
    lab.run(["bash", "-euc", commands])
    return bool(commands)


def follow(lab: Lab, told: subprocess.CompletedProcess[str], state: Path) -> int:
    """Do what install says, to the letter: its commands, then its lines; returns a job that shows both."""
    assert paste(lab, told) == (not several_count(lab))
    return reconfigure(lab, lambda text: text + told.stdout, state, recorded=True)


def test_beside_hooks_of_the_site(start_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """What install tells a site that has a Prolog, done to the letter, runs both."""
    lab = start_lab(**ONE)
    state = tmp_path / "state"
    told = slurmkit(lab, tmp_path, *words(tmp_path, "install", f"--state-dir={state}"))
    ours, folder = tmp_path / "ours", lab.root / "hooks"
    named = {hook: f"{folder}/{hook}.slurmkit-{hook}.d/*" for hook in files.HOOKS}
    if several_count(lab):
        named = {hook: f"{ours}/{hook}" for hook in files.HOOKS}
    # PrologFlags and a timeout it has.
    assert told.stdout.splitlines() == [f"{hook.capitalize()}={path}" for hook, path in named.items()]
    job = follow(lab, told, state)
    assert jobs_of(lab.hook_state)[-2:] == [("start", job), ("end", job)]
    assert slurmkit(lab, tmp_path, *words(tmp_path, "install")).stdout == ""
    status = slurmkit(lab, tmp_path, *words(tmp_path, "status"))
    assert not status.stderr
    by = "slurm.conf: " if several_count(lab) else f"{folder}/prolog.slurmkit-prolog.d/zz-slurmkit-prolog:2: "
    assert by in status.stdout
    assert by in slurmkit(lab, tmp_path, *words(tmp_path, "uninstall"), code=1).stderr


def test_a_node_that_comes_after_slurm_conf(start_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """It has nothing of what slurm.conf names: status says what comes of it, and what install prints has both run there."""
    lab = start_lab(**ONE)
    state = tmp_path / "state"

    def named(text: str) -> str:
        """A site that made folders for its hooks and ours, on the nodes that it had."""
        for hook in files.HOOKS:
            theirs = f"{hook.capitalize()}={lab.root / 'hooks' / hook}"
            text = text.replace(f"{theirs}\n", f"{theirs}.slurmkit-{hook}.d/*\n")
        return text

    lab.conf.write_text(named(lab.conf.read_text()))
    lab.run(["scontrol", "reconfigure"])
    told = slurmkit(lab, tmp_path, *words(tmp_path, "install", f"--state-dir={state}"))
    status = slurmkit(lab, tmp_path, *words(tmp_path, "status"), code=1).stderr
    assert "prolog.slurmkit-prolog.d/*, which matches no file here" in status

    def drained() -> bool:
        lab.run(["sbatch", "--output=/dev/null", "--wrap=true"])  # slurmd may not have read it yet
        return "Prolog error" in lab.run(["sinfo", "-hR"]).stdout

    wait_until(drained, 30, "the node to be drained: it was true")
    lab.run(["scancel", "--me"])
    assert paste(lab, told)
    lab.run(["scontrol", "update", "NodeName=n1", "State=RESUME"])
    job = reconfigure(lab, lambda text: text + told.stdout, state, recorded=True)
    assert not slurmkit(lab, tmp_path, *words(tmp_path, "status")).stderr
    assert [event for event, number in jobs_of(lab.hook_state) if number == job] == ["start", "end"]


def test_one_pattern_for_both_hooks(start_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """A folder that Prolog and Epilog both run: each job has one start and one end, and no node is drained."""
    site = tmp_path / "site.d"
    site.mkdir()
    (site / "10-site").write_text("#!/bin/sh\nexit 0\n")
    (site / "10-site").chmod(0o755)
    lab = start_lab(**ONE, extra=f"Prolog={site}/*\nEpilog={site}/*")
    state = tmp_path / "state"
    told = slurmkit(lab, tmp_path, *words(tmp_path, "install", f"--state-dir={state}"))
    assert bool(told.stdout) == several_count(lab)
    job = follow(lab, told, state)
    assert [(event, number) for event, number in jobs_of(state) if number == job] == [
        ("start", job),
        ("end", job),
    ]
    assert not slurmkit(lab, tmp_path, *words(tmp_path, "status")).stderr


def test_a_folder_that_slurm_conf_sweeps(start_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """record.bash in a folder of hooks would drain every node: nothing is put there."""
    lab = start_lab(**ONE, extra=f"Prolog={tmp_path}/ours/*\nEpilog=/bin/true")
    refused = slurmkit(lab, tmp_path, *words(tmp_path, "install"), code=1)
    assert f"Prolog={tmp_path}/ours/*" in refused.stderr
    assert "drains nodes" in slurmkit(lab, tmp_path, *words(tmp_path, "status"), code=1).stderr
    assert not (tmp_path / "ours").exists()


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Slurm is to be found."""
    monkeypatch.setenv("SLURM_CONF", f"{tmp_path}/no-slurm.conf")


def call(capfd: pytest.CaptureFixture[str], *argv: str, code: int) -> tuple[str, str]:
    assert main.run(list(argv)) == code
    out = capfd.readouterr()
    assert "Traceback" not in out.err
    return out.out, out.err


@pytest.mark.usefixtures("nowhere")
def test_without_slurm(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Install goes on and prints what any slurm.conf needs; uninstall will not, since nobody knows who names them."""
    out, err = call(capfd, *words(tmp_path, "install", f"--state-dir={tmp_path}/state"), code=0)
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    ours = tmp_path / "ours"
    assert lines[:2] == [f"Prolog={ours}/prolog", f"Epilog={ours}/epilog"]
    assert "no-slurm.conf" in err
    assert "no-slurm.conf" in call(capfd, *words(tmp_path, "status"), code=4)[1]
    assert json.loads(call(capfd, *words(tmp_path, "status", "--json"), code=4)[0])["runs"] is None
    (ours / "prolog").chmod(0o644)
    assert "0644" in call(capfd, *words(tmp_path, "status"), code=1)[1]
    assert "--force" in call(capfd, *words(tmp_path, "uninstall"), code=4)[1]
    assert ours.exists()
    assert f"stay in {tmp_path}/state" in call(capfd, *words(tmp_path, "uninstall", "--force"), code=0)[1]
    assert not ours.exists()
    assert "is not there" in call(capfd, *words(tmp_path, "status"), code=1)[1]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("path", ["", "here", "./here", "~/here"])
def test_a_path_that_slurmd_would_not_find(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A relative path, or a variable that was empty, is refused before anything is looked at."""
    for option in ("--dir", "--state-dir"):
        assert "no absolute path" in call(capfd, "hooks", "install", f"{option}={path}", code=2)[1]


@pytest.mark.usefixtures("nowhere", "as_root")
def test_an_ordinary_user_is_told_to_be_root(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No traceback, exit code 1, and what to do instead; nothing half made."""
    tmp_path.chmod(0o700)
    os.seteuid(pwd.getpwnam(SOMEBODY).pw_uid)
    try:
        for verb, more in (("install", []), ("uninstall", ["--force"]), ("status", [])):
            assert "as root" in call(capfd, *words(tmp_path, verb, *more), code=1)[1]
        assert "as root" in call(capfd, "hooks", "install", "--dir=/usr/slurmkit-hooks", code=1)[1]
    finally:
        os.seteuid(0)
    assert not list(tmp_path.iterdir())
    assert not Path("/usr/slurmkit-hooks").exists()


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def attempt(folder: Path, state: str) -> SlurmkitError | None:
    """Install, and return what stood in the way."""
    try:
        install(folder, state, force=True, site=None)
    except SlurmkitError as error:
        return error
    return None


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("options", ["size=256k", "nr_inodes=64"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_full_disk(tmp_path: Path, options: str, fresh: bool) -> None:
    """However little is free, the hooks are those from before or the new ones, whole, and nothing else is left."""
    small, state = tmp_path / "small", str(tmp_path / "state")
    failures = 0
    with mounted(small, options):
        if not fresh:
            install(small / "ours", state, site=None)
            (small / "ours" / "prolog").write_text("#!/bin/sh\n")
        filler = []
        with contextlib.suppress(OSError):
            while True:
                filler.append(small / f"filler{len(filler)}")
                filler[-1].write_bytes(b"x" * 4096)
        before = tree(small)
        while error := attempt(small / "ours", state):
            assert "No space left" in error.message
            assert "nothing was changed" in error.message
            assert "free some space" in error.hint
            assert tree(small) == before
            failures += 1
            filler.pop().unlink(missing_ok=True)
            before = tree(small)
        assert {item.state for item in files.inspect(small / "ours")} == {"ok"}
    assert failures > 3


@pytest.mark.usefixtures("as_root")
def test_a_mount_that_forbids_programs(tmp_path: Path) -> None:
    """On noexec every Prolog would fail: it is seen before slurm.conf names one."""
    with mounted(tmp_path / "small", "noexec"):
        with pytest.raises(SlurmkitError, match=r"noexec.*nothing was changed"):
            install(tmp_path / "small" / "ours", str(tmp_path / "state"), site=None)
        assert not list((tmp_path / "small").iterdir())
    assert not (tmp_path / "state").exists()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user can look into; pytest's own is closed."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.usefixtures("as_root")
def test_a_slurmduser_that_is_not_root(reachable: Path) -> None:
    """The hooks of root's install note a job as SlurmdUser; where they cannot, it is said with what mends it."""
    uid, ours, state = pwd.getpwnam(SOMEBODY).pw_uid, reachable / "ours", reachable / "state"
    site = read_site({"SlurmdUser": f"{SOMEBODY}({uid})"}, (22, 5))
    env = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}

    def records() -> int:
        shutil.rmtree(state / "n1", ignore_errors=True)
        subprocess.run([*AS_SOMEBODY, ours / "prolog"], env={**os.environ, **env}, check=True)
        return len(jobs_of(state))

    assert install(ours, str(state), site=site).kept_out == ()
    assert (state.stat().st_uid, ours.stat().st_uid, records()) == (uid, 0, 1)
    assert install(ours, None, site=site).kept_out == ()
    for place, owner, mode in (
        (state, 0, 0o755),
        (state, uid, 0o555),
        (state, uid, 0o655),
        (reachable, 0, 0o700),
    ):
        os.chown(place, owner, -1)
        place.chmod(mode)
        ((_, remedy), *_) = install(ours, None, site=site).kept_out
        subprocess.run(["/bin/sh", "-c", remedy], check=True)
        assert records() == 1
    with pytest.raises(SlurmkitError, match=f"state belongs to {SOMEBODY}, who could lead elsewhere"):
        install(ours, None, site=None)
    os.chown(ours, uid, -1)  # root itself runs what is there, at each install
    with pytest.raises(SlurmkitError, match=f"ours belongs to {SOMEBODY}, who could replace"):
        install(ours, None, site=site)


@pytest.mark.usefixtures("as_root")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    """Whoever owns a folder above owns what root runs: the owner is named."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, -1)
    with pytest.raises(SlurmkitError, match=r"theirs belongs to uid 12345") as caught:
        install(tmp_path / "theirs" / "ours", str(tmp_path / "state"), site=None)
    assert not isinstance(caught.value, UsageError)
    assert f"chown -h root {tmp_path}/theirs" in caught.value.hint
