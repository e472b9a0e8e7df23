"""Install and uninstall: all or nothing, and never what is somebody else's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import MissingProgramError, SlurmkitError
from slurmkit.hooks import files, safe, trial
from slurmkit.hooks.advice import read_site
from slurmkit.hooks.install import install, uninstall

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
NAMES = ["record.bash", "prolog", "epilog"]
#: A slurm.conf that names no hook.
BARE = read_site({}, (22, 5))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def tree(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
    }


def older(place: Path) -> None:
    """An earlier version, as its own install left it."""
    digests = files.known(place)
    for name in NAMES:
        content = (place / name).read_bytes() + b"# an older one\n"
        (place / name).write_bytes(content)
        digests[name] = files.digest(content)
    (place / files.MANIFEST).write_text(json.dumps({"version": 1, "sha256": digests}))


def before_the_move_of(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object]
) -> None:
    """Let something happen to the staging folder just before a file is renamed into place."""
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if target == place / name and path.parent.parent == place:
            act(path.parent)
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)


def states(place: Path) -> dict[str, str]:
    return {item.name: item.state for item in files.inspect(place)}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_they_run_and_write_where_they_were_told(place: Path, state: str, umask: int) -> None:
    """After an install slurmd finds both hooks, whatever root's umask is; their record is in the state folder."""
    before = os.umask(umask)
    try:
        done = install(place, state, site=None)
    finally:
        os.umask(before)
    assert done.changed == (*NAMES, files.SETTINGS, files.MANIFEST)
    assert done.took.keys() == {"prolog", "epilog"}
    modes = {name: (place / name).stat().st_mode & 0o777 for name in (*NAMES, files.SETTINGS)}
    assert modes == {"record.bash": 0o644, "prolog": 0o755, "epilog": 0o755, files.SETTINGS: 0o644}
    assert [path.stat().st_mode & 0o777 for path in (place, Path(state))] == [0o755, 0o755]
    assert not list(Path(state).iterdir())  # the trial is nobody's record
    assert names(place) == sorted(done.changed)
    env = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    assert subprocess.run([place / "prolog"], env=env, check=False).returncode == 0
    assert '"job":7' in (Path(state) / "n1" / "jobs.jsonl").read_text()


def test_a_second_install_changes_nothing(place: Path, state: str) -> None:
    """Up to date is up to date: no file is written, not even anew."""

    def written() -> dict[str, tuple[int, int]]:
        found = {name: (place / name).stat() for name in names(place)}
        return {name: (stat.st_ino, stat.st_ctime_ns) for name, stat in found.items()}

    install(place, state, site=None)
    before = written()
    assert install(place, None, site=None).changed == ()
    assert install(place, state, site=None).changed == ()
    assert written() == before


def test_a_dry_run_does_nothing(place: Path, state: str, tmp_path: Path) -> None:
    """It says the same as the real one, and leaves no trace."""
    planned = install(place, state, dry_run=True, site=None)
    assert not list(tmp_path.iterdir())
    done = install(place, state, site=None)
    assert (planned.changed, planned.made, planned.took) == (done.changed, done.made, {})


def test_an_older_version_is_brought_up(place: Path, state: str) -> None:
    """An upgrade needs no --force: what we put there is ours."""
    install(place, state, site=None)
    older(place)
    assert set(states(place).values()) == {"old", "ok"}
    assert install(place, None, site=None).changed == (*NAMES, files.MANIFEST)
    assert set(states(place).values()) == {"ok"}


def test_an_edited_hook_is_kept(place: Path, state: str) -> None:
    """It is named, with the difference; --force replaces it."""
    install(place, state, site=None)
    (place / "epilog").write_text((place / "epilog").read_text().replace("exit 0\n", "/opt/site/wipe\n"))
    before = tree(place)
    with pytest.raises(
        SlurmkitError, match=r"epilog hold what slurmkit did not put there.*nothing"
    ) as caught:
        install(place, None, site=None)
    assert "-/opt/site/wipe" in caught.value.detail
    assert "--force" in caught.value.hint
    assert tree(place) == before
    assert install(place, None, force=True, site=None).changed == ("epilog",)


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_no_file_is_never_replaced(place: Path, state: str, kind: str) -> None:
    """A link or a folder of that name is somebody's: not even with --force."""
    place.mkdir(parents=True)
    (place / "prolog").symlink_to("/bin/true") if kind == "link" else (place / "prolog").mkdir()
    with pytest.raises(SlurmkitError, match="nothing was changed"):
        install(place, state, force=True, site=None)
    assert [path.name for path in place.iterdir()] == ["prolog"]


def test_settings_of_the_admin_stay(place: Path, state: str) -> None:
    """What an admin wrote is kept by install, used by the trial, and kept at the end."""
    place.mkdir(parents=True)
    mine = f"# mine\nMAX_BYTES=5000\nSTATE_DIR={state}\n"
    (place / files.SETTINGS).write_text(mine)
    assert install(place, None, site=None).state_dir == Path(state)
    assert (place / files.SETTINGS).read_text() == mine
    install(place, f"{state}2", site=None)
    assert (place / files.SETTINGS).read_text() == f"# mine\nMAX_BYTES=5000\nSTATE_DIR={state}2\n"
    assert set(uninstall(place, site=BARE).gone) == set(NAMES)
    assert [path.name for path in place.iterdir()] == [files.SETTINGS]


@pytest.mark.parametrize(("name", "mode"), [("prolog", 0o644), ("record.bash", 0o666), ("prolog", 0o775)])
def test_a_wrong_mode_is_mended(place: Path, state: str, name: str, mode: int) -> None:
    """A hook that cannot be executed drains nodes, and one that others can write is theirs."""
    install(place, state, site=None)
    (place / name).chmod(mode)
    assert states(place)[name] == "unsafe"
    assert install(place, None, site=None).changed == (name,)
    assert states(place)[name] == "ok"


def test_uninstall_takes_all_of_ours_and_no_more(place: Path, state: str) -> None:
    """The folder goes with its last file; records stay."""
    install(place, state, site=None)
    (Path(state) / "n1").mkdir()
    done = uninstall(place, site=BARE)
    assert (set(done.gone), done.kept, done.state_dir) == ({*NAMES, files.SETTINGS}, (), Path(state))
    assert not place.exists()
    assert (Path(state) / "n1").is_dir()
    assert uninstall(place, site=BARE)[:2] == ((), ())


def test_uninstall_over_a_link(place: Path, state: str) -> None:
    """It takes the place that the link leads to, folder and all, as if that had been named."""
    install(place, state, site=None)
    (place.parent / "link").symlink_to(place)
    uninstall(place.parent / "link", site=BARE)
    assert not place.exists()


def test_uninstall_keeps_what_is_not_ours(place: Path, state: str) -> None:
    """An edited hook and a file of somebody else stay, and are named."""
    install(place, state, site=None)
    (place / "prolog").write_text("#!/bin/sh\n")
    (place / "notes.txt").touch()
    assert uninstall(place, site=BARE).kept == ("prolog",)
    assert names(place) == ["notes.txt", "prolog"]


def test_an_uninstall_that_may_not(place: Path, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names no option but its own: that of install is of no use there."""
    install(place, state, site=None)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(SlurmkitError, match="Permission denied; what is gone is gone") as caught:
        uninstall(place, site=BARE)
    assert caught.value.hint == "do it as root"
    monkeypatch.setattr(files, "inspect", refuse)
    with pytest.raises(SlurmkitError, match="nothing was changed") as caught:
        install(place, state, site=None)
    assert caught.value.hint == "do it as root, or name folders of your own with --dir and --state-dir"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exit 1", "exited 1"),
        ("echo hello; exit 0", "exited 0; nothing"),
        ("exit 0", "left no record"),
        ("while :; do :; done", "did not end within"),
    ],
)
def test_hooks_that_fail_here_are_not_installed(
    place: Path, state: str, body: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are tried before anything is replaced: the old ones go on."""
    install(place, state, site=None)
    before = tree(place)
    bad = {**files.shipped(), "prolog": (f"#!/bin/bash -p\n{body}\n".encode(), 0o755)}
    monkeypatch.setattr(files, "shipped", lambda: bad)
    monkeypatch.setattr(trial, "_TIMEOUT", 0.3)
    with pytest.raises(SlurmkitError, match=f"prolog failed.*{said}.*was changed"):
        install(place, None, force=True, site=None)
    assert tree(place) == before


@pytest.mark.parametrize(("body", "said"), [("exit 1", "list index"), ("echo 4 1", "this one is 4.1")])
def test_a_bash_that_is_too_old_or_broken(
    place: Path, state: str, tmp_path: Path, body: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hooks would leave no record there: nothing is installed."""
    bash = tmp_path / "bash"
    bash.write_text(f"#!/bin/sh\n{body}\n")
    bash.chmod(0o755)
    for path in (str(bash), "/nowhere/bash"):
        monkeypatch.setattr(safe, "BASH", path)
        with pytest.raises(MissingProgramError, match=said if path == str(bash) else "No such file"):
            install(place, state, site=None)
    assert not place.exists()


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), KeyboardInterrupt()])
@pytest.mark.parametrize("stop", ["prolog", "epilog", files.MANIFEST])
@pytest.mark.parametrize("fresh", [True, False])
def test_one_that_cannot_be_moved_takes_the_others_back(
    place: Path, state: str, monkeypatch: pytest.MonkeyPatch, error: BaseException, stop: str, fresh: bool
) -> None:
    """Old and new hooks are never mixed by a failure in the middle, nor by Ctrl-C."""
    if not fresh:
        install(place, state, site=None)
        older(place)
    before = tree(place.parent.parent)

    def fail(_: Path) -> None:
        raise error

    before_the_move_of(stop, place, monkeypatch, fail)
    with pytest.raises((SlurmkitError, KeyboardInterrupt)):
        install(place, state, site=None)
    assert tree(place.parent.parent) == before


@pytest.mark.parametrize("fresh", [True, False])
def test_a_staging_folder_that_is_gone(
    place: Path, state: str, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    """An uninstall elsewhere took it in the middle: an error, the files from before, and no loop."""
    if not fresh:
        install(place, state, site=None)
        older(place)
    before = tree(place.parent.parent)
    before_the_move_of("prolog", place, monkeypatch, shutil.rmtree)
    with pytest.raises(SlurmkitError, match=r"No such file.*nothing was changed"):
        install(place, state, site=None)
    assert tree(place.parent.parent) == before


def test_a_file_system_without_hard_links(place: Path, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a FUSE or a FAT one: an update works there as anywhere."""
    install(place, state, site=None)
    older(place)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert install(place, state, site=None).changed == (*NAMES, files.MANIFEST)


@pytest.mark.parametrize("ahead", [86400, -86400])
def test_the_clock_of_the_disk_counts(
    place: Path, state: str, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Whatever our own says, a live install's folder is spared by install, and what is left is taken by uninstall."""
    install(place, state, site=None)
    live = place / ".slurmkit-hooks-new-0123"
    live.mkdir()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + ahead)
    install(place, None, site=None)
    assert live.is_dir()
    os.utime(live, (now - 3600, now - 3600))
    install(place, None, site=None)
    assert not live.exists()
    live.mkdir()
    uninstall(place, site=BARE)
    assert not place.exists()


KILLED = """
import os, pathlib, signal, sys
from slurmkit.hooks import install
count, stop, real = 0, int(sys.argv[3]), pathlib.Path.replace
def replace(path, target):
    global count
    count += 1
    if count == stop:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(path, target)
pathlib.Path.replace = replace
install.install(pathlib.Path(sys.argv[1]), sys.argv[2], site=None)
"""


def test_kill_9_at_any_moment_leaves_whole_hooks(place: Path, state: str) -> None:
    """Each file is the old one or the new one, both hooks still exit 0, and the next install mends it."""
    install(place, state, site=None)
    new = {name: (place / name).read_bytes() for name in NAMES}
    for stop in range(1, 100):
        older(place)
        old = {name: (place / name).read_bytes() for name in NAMES}
        argv = [sys.executable, "-c", textwrap.dedent(KILLED), str(place), state, str(stop)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
        here = {name: (place / name).read_bytes() for name in NAMES}
        assert all(here[name] in {old[name], new[name]} for name in NAMES)
        for hook in files.HOOKS:
            env = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
            assert subprocess.run([place / hook], env=env, check=False).returncode == 0
        install(place, None, site=None)
        assert set(states(place).values()) == {"ok"}
        if done.returncode == 0:
            break
    else:
        pytest.fail("it never ended")
    assert stop > len(NAMES) * 2
    for left in place.glob(".slurmkit-hooks-new-*"):  # a live one is spared, an old one swept
        os.utime(left, (0, 0))
    install(place, None, site=None)
    assert names(place) == sorted([*NAMES, files.SETTINGS, files.MANIFEST])


def test_what_a_killed_install_left_is_seen_by_no_pattern(place: Path, state: str) -> None:
    """A folder that slurm.conf sweeps would drain nodes; uninstall takes it at any age."""
    install(place, state, site=None)
    (place / ".slurmkit-hooks-new-0123" / "trial").mkdir(parents=True)
    install(place, None, site=None)
    assert not [path for path in place.glob("*") if path.name.startswith("slurmkit-hooks-new")]
    assert (place / ".slurmkit-hooks-new-0123").is_dir()
    uninstall(place, site=BARE)
    assert not place.exists()


def test_many_nodes_install_at_once(place: Path, state: str) -> None:
    """A shared folder, and pdsh on all nodes: every one of them is good, and nothing is left."""
    code = "import pathlib, sys; from slurmkit.hooks.install import install; install(pathlib.Path(sys.argv[1]), sys.argv[2], site=None)"
    argv = [sys.executable, "-c", code, str(place), state]
    nodes = [subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    assert [(node.communicate(timeout=60)[1], node.returncode) for node in nodes] == [("", 0)] * 6
    assert set(states(place).values()) == {"ok"}
    assert names(place) == sorted([*NAMES, files.SETTINGS, files.MANIFEST])
