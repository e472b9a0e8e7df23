"""Put the hooks in place, and take them away: whole files, tried first, and all of them or none."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slurmkit.errors import SlurmkitError
from slurmkit.hooks import files, safe
from slurmkit.hooks.refuse import refuse_swept, refuse_used
from slurmkit.hooks.settings import read_settings, with_state_dir
from slurmkit.hooks.trial import try_hooks
from slurmkit.runtime.records import fsync_dir, make_dirs, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurmkit.hooks.advice import Site

__all__ = ["Installed", "Removed", "install", "uninstall"]

# Hidden: slurmd's pattern `*` passes over it, should the folder be one that slurm.conf sweeps.
_STAGING = ".slurmkit-hooks-new-"
#: Seconds after which a staging folder is one that a killed install left: a live one takes less than 20.
_DEAD = 600


class Installed(NamedTuple):
    """What an install did, or would do.

    Attributes:
        state_dir: where the hooks write.
        changed: the files that were written, in order; empty where all was up to date.
        made: the folders that were made.
        took: the milliseconds of each hook when it was tried; empty where nothing was.
        kept_out: why SlurmdUser cannot run them, or write its records, each with the command that mends it.
    """

    state_dir: Path
    changed: tuple[str, ...]
    made: tuple[Path, ...]
    took: dict[str, float]
    kept_out: tuple[tuple[str, str], ...]


class Removed(NamedTuple):
    """What an uninstall did.

    Attributes:
        gone: the files that were removed.
        kept: those that stay, since they are not what an install put there.
        state_dir: where the records of the hooks are.
    """

    gone: tuple[str, ...]
    kept: tuple[str, ...]
    state_dir: Path


class _Write(NamedTuple):
    name: str
    content: bytes
    mode: int


def install(
    folder: Path,
    state_dir: str | None,
    *,
    site: Site | None,
    force: bool = False,
    dry_run: bool = False,
) -> Installed:
    """Install the hooks, or bring them up to this version.

    Every file is written beside its place, the hooks are run there, and only then all are renamed into place.
    Where anything fails, or Ctrl-C comes, the folder is as it was.

    Args:
        folder: an absolute path; it is made if it is missing.
        state_dir: where the hooks shall write, an absolute path; None keeps what the settings there say.
        site: what Slurm says of its settings; None where it could not be asked. Its SlurmdUser, or else root, may own
            the folder of the records: a new one becomes his.
        force: whether to replace files that somebody edited.
        dry_run: whether to say only what would be done.

    Raises:
        UsageError: if a path is not one that Slurm can read.
        SlurmkitError: if slurmd would run every file there, others could change them, a file is not ours, a hook
            fails, or the system refuses.
    """
    refuse_swept(folder, site)
    uid = site.slurmd_uid if site else 0
    with safe.told("nothing was changed", elsewhere="name folders of your own with --dir and --state-dir"):
        safe.check_folder(folder, "--dir", safe.RUN)
        settings = with_state_dir(files.text_of(folder), state_dir)
        state = Path(read_settings(settings).state_dir)
        named = "--state-dir" if state_dir or not settings else f"STATE_DIR in {folder / files.SETTINGS}"
        safe.check_folder(state, named, safe.WRITTEN, uid)
        safe.check_bash()
        _refuse_edited(folder, force=force)
        writes = _plan(folder, settings)
        missing = tuple(place for place in (folder, state) if not place.is_dir())
        took: dict[str, float] = {}
        if not dry_run and (writes or missing):
            with _umask(), _made(folder, state):
                if state in missing and os.geteuid() == 0:
                    os.chown(state, uid, -1, follow_symlinks=False)
                took = _put(folder, writes, settings) if writes else {}
        kept_out = () if dry_run else tuple(safe.kept_out(folder, state, uid))
        if not dry_run:
            _sweep(folder, _DEAD)
        return Installed(state, tuple(write.name for write in writes), missing, took, kept_out)


def _refuse_edited(folder: Path, *, force: bool) -> None:
    """Keep what somebody made of our files; what is no file is never replaced by one."""
    items = {item.name: item for item in files.inspect(folder)}
    odd = [item for item in items.values() if item.state == "foreign"]
    edited = [item for item in items.values() if item.state == "edited"]
    if odd:
        raise SlurmkitError(
            f"{folder / odd[0].name} {odd[0].why}: nothing was changed", "move it away, or name another --dir"
        )
    if edited and not force:
        raise SlurmkitError(
            " and ".join(f"{folder / item.name}" for item in edited) + " hold what slurmkit did not put there"
            ": nothing was changed",
            "keep a copy of what is yours in them, and replace them with --force",
            "\n".join(files.difference(folder, item.name) for item in edited),
        )


def _plan(folder: Path, settings: str) -> list[_Write]:
    """What has to be written, in the order of the renames; the note of what we wrote comes last."""
    states = {item.name: item.state for item in files.inspect(folder)}
    shipped = files.shipped()
    writes = [
        _Write(name, content, mode) for name, (content, mode) in shipped.items() if states[name] != "ok"
    ]
    before, text = files.known(folder), files.text_of(folder)
    digests = {name: files.digest(content) for name, (content, _) in shipped.items()}
    ours = not text or files.digest(_bytes(text)) == before.get(files.SETTINGS)
    if settings and ours:  # what an admin wrote into it stays the admin's, also at the end
        digests[files.SETTINGS] = files.digest(_bytes(settings))
    if settings != text or states[files.SETTINGS] == "unsafe":
        writes.append(_Write(files.SETTINGS, _bytes(settings), 0o644))
    if digests != before:
        manifest = json.dumps({"version": 1, "sha256": digests}, indent=1) + "\n"
        writes.append(_Write(files.MANIFEST, manifest.encode(), 0o644))
    return writes


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _put(folder: Path, writes: Sequence[_Write], settings: str) -> dict[str, float]:
    """Stage, try, and rename; returns the milliseconds of each hook."""
    staging = folder / f"{_STAGING}{secrets.token_hex(4)}"
    try:
        staging.mkdir(0o755)
        trial = staging / "trial"
        trial.mkdir()
        for name, (content, mode) in files.shipped().items():
            write_atomic(trial / name, content, mode)
        write_atomic(trial / files.SETTINGS, _bytes(with_state_dir(settings, str(trial))))
        for write in writes:
            write_atomic(staging / write.name, write.content, write.mode)
        took = try_hooks(trial, trial)
        shutil.rmtree(trial)  # the room that putting an old file back may need
        _rename(staging, folder, writes)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return took


def _rename(staging: Path, folder: Path, writes: Sequence[_Write]) -> None:
    """Move all files into place; if one cannot be moved, those before it are again what they were."""
    old: dict[str, _Write | None] = {}
    try:
        for write in writes:
            old[write.name] = _read(folder / write.name)
            (staging / write.name).replace(folder / write.name)
        fsync_dir(folder)
    except BaseException:
        for write in reversed(writes[: len(old)]):
            _put_back(folder / write.name, old[write.name], moved=not (staging / write.name).exists())
        raise


def _put_back(file: Path, old: _Write | None, *, moved: bool) -> None:
    if not moved:
        return
    if old:
        write_atomic(file, old.content, old.mode)
    else:
        file.unlink(missing_ok=True)


def _read(file: Path) -> _Write | None:
    """A file as it is, to be written again; None where there is none. Ours have some 4 kB."""
    try:
        return _Write(file.name, file.read_bytes(), stat.S_IMODE(file.stat().st_mode))
    except FileNotFoundError:
        return None


def uninstall(folder: Path, *, site: Site | SlurmkitError, force: bool = False) -> Removed:
    """Remove the files that an install put there, and the folder if nothing else is in it.

    The records of the hooks stay where they are.

    Args:
        folder: where the hooks are; over a link, it is the place that it leads to.
        site: what Slurm says of its settings, or why it could not be asked.
        force: whether to remove them also where it could not: never what Slurm still names.

    Raises:
        SlurmUnavailableError: if Slurm could not be asked, without force.
        SlurmkitError: if Slurm still runs them, or may, or the system refuses.
    """
    refuse_used(folder, site, force=force)
    folder = Path(os.path.realpath(folder))
    with safe.told("what is gone is gone; do it again for the rest"):
        before = files.known(folder)
        state = Path(read_settings(files.text_of(folder)).state_dir)
        items = [item for item in files.inspect(folder) if os.path.lexists(folder / item.name)]
        kept = tuple(item.name for item in items if not _is_ours(folder, item, before))
        gone = tuple(item.name for item in items if item.name not in kept)
        for name in gone:
            (folder / name).unlink()
        _sweep(folder, 0)
        with contextlib.suppress(FileNotFoundError):
            (folder / files.MANIFEST).unlink()  # last, so that what a killed uninstall left is still known
        with contextlib.suppress(OSError):
            folder.rmdir()
        return Removed(gone, kept, state)


def _is_ours(folder: Path, item: files.Item, before: dict[str, str]) -> bool:
    if item.state in {"foreign", "edited"}:
        return False
    here = files.digest((folder / item.name).read_bytes())
    return item.name != files.SETTINGS or here == before.get(item.name)


def _sweep(folder: Path, age: float) -> None:
    """Remove what killed installs left, at least so many seconds ago by the clock of the disk that has it."""
    found = list(folder.glob(f"{_STAGING}*"))
    with contextlib.suppress(OSError):  # also where its own install removes one this very moment
        now = _clock_of(folder) if found else 0
        for staging in found:
            if now - staging.lstat().st_mtime >= age:
                shutil.rmtree(staging, ignore_errors=True)


def _clock_of(folder: Path) -> float:
    """What the file server's clock says, which need not be ours. Named so that a later sweep takes it too."""
    probe = folder / f"{_STAGING}{secrets.token_hex(4)}"
    probe.mkdir()
    try:
        return probe.lstat().st_mtime
    finally:
        probe.rmdir()


@contextlib.contextmanager
def _umask() -> Iterator[None]:
    """Modes as they are asked for: root's own umask may hide the hooks from SlurmdUser."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def _made(*folders: Path) -> Iterator[None]:
    """Make folders, and take away again those that were not there, if what they are for fails."""
    missing = {place for folder in folders for place in (folder, *folder.parents) if not place.exists()}
    try:
        for folder in folders:
            make_dirs(folder)
        yield
    except BaseException:
        for place in sorted(missing, key=lambda path: len(path.parts), reverse=True):
            with contextlib.suppress(OSError):
                place.rmdir()
        raise
