"""The commit protocol: a checkpoint is there as a whole, proven by checksums, or it is not there.

::

    <root>/
      LIFE                    who may write here: the newest life of this one run (others are refused)
      step-00000120/
        tensors.safetensors   model, optimizer, random state of every rank
        state.json            the rest
        COMMIT                size and sha256 of each file, the run and life that wrote them; written last
      .step-00000160.….tmp/   being written, or left by a writer that died
      .old-step-00000120.…/   for a moment, while a step that was saved before is saved again

Each file is synced, then the hidden folder, then it gets its name, then the parent is synced; the folders
above it once, by :meth:`CheckpointStore.claim`. Nothing here reads a pickle.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
import secrets
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmkit.errors import CheckpointError
from slurmkit.runtime.records import fsync_dir, make_dirs, read_json, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COMMIT", "STATE", "TENSORS", "CheckpointStore", "Loaded", "Skipped"]

COMMIT = "COMMIT"
STATE = "state.json"
TENSORS = "tensors.safetensors"
_FOLDER = re.compile(r"step-(\d{8,})")
_OLD = re.compile(r"\.old-step-(\d{8,})\..*")
_VERSION = 1


class _DamagedError(Exception):
    """Why one folder is no good; ``proven`` where its bytes differ from what was committed."""

    def __init__(self, why: str, *, proven: bool = True) -> None:
        super().__init__(why)
        self.proven = proven


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that could not be used, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that passed its checksums."""

    path: Path
    step: int
    files: dict[str, bytes]
    commit: dict[str, Any]
    skipped: tuple[Skipped, ...] = ()


def _read(path: Path) -> Loaded:
    match = _FOLDER.fullmatch(path.name) or _OLD.fullmatch(path.name)
    if match is None:
        raise _DamagedError("is not named step-NNNNNNNN", proven=False)
    try:
        commit = read_json(path / COMMIT)
        if commit is None:
            raise _DamagedError("COMMIT is missing or not JSON")
        if commit.get("version") != _VERSION or not isinstance(commit.get("files"), dict):
            raise _DamagedError(
                f"COMMIT has version {commit.get('version')!r}, accepted is {_VERSION}", proven=False
            )
        files = {}
        for name in (TENSORS, STATE):
            promised = commit["files"].get(name, {})
            data = (path / name).read_bytes()
            if len(data) != promised.get("bytes"):
                raise _DamagedError(f"{name} has {len(data)} bytes, committed were {promised.get('bytes')}")
            if hashlib.sha256(data).hexdigest() != promised.get("sha256"):
                raise _DamagedError(f"{name} does not have the committed sha256")
            files[name] = data
    except FileNotFoundError as error:
        raise _DamagedError(f"{Path(error.filename).name} is missing") from None
    except OSError as error:  # the disk may be well again later: nothing is proven
        raise _DamagedError(f"cannot be read: {error}", proven=False) from None
    return Loaded(path, int(match[1]), files, commit)


@dataclass
class CheckpointStore:
    """The checkpoints of one run. Used by rank 0 alone."""

    root: Path
    keep: int = 3
    life: Mapping[str, Any] = field(default_factory=dict)
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    run: str = ""
    """The id of the run, from :func:`~trainer.identity.run_id`; empty: any run's."""

    def claim(self) -> None:
        """Become the life that may write, and clear away what dead writers left.

        A node that lost contact can go on for minutes after its job was requeued. From here on it is
        refused, so that it cannot put its files among those of the life that took over: LIFE comes first,
        so that what is cleared away afterwards is not written again.

        Raises:
            CheckpointError: if the folder cannot be written, or is that of another run.
        """
        try:
            make_dirs(self.root)
            self._check_run(read_json(self.root / "LIFE"), "the newest life")
            write_atomic(self.root / "LIFE", json.dumps(self._who()))
            self._clear_leftovers()
        except OSError as error:
            raise self._cannot_write("the folder of the checkpoints", error) from error

    def steps(self) -> list[int]:
        """The steps of all folders that look committed, newest first."""
        if not self.root.is_dir():
            return []
        found = (_FOLDER.fullmatch(path.name) for path in self.root.iterdir() if (path / COMMIT).exists())
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def load(self) -> Loaded | None:
        """The newest checkpoint that is whole; damaged ones are stepped over and named.

        One whose bytes provably changed is renamed to ``damaged-step-…``: it is evidence for a person,
        and must not count among those that are kept.

        Returns:
            None where there is none at all.

        Raises:
            CheckpointError: if there are some and none of them is good. Never a silent fresh start.
        """
        skipped: list[Skipped] = []
        bad: list[Path] = []
        for path in self._candidates():
            try:
                loaded = _read(path)
            except _DamagedError as error:
                skipped.append(Skipped(path.name, str(error)))
                if error.proven:
                    bad.append(path)
                continue
            self._check_run(loaded.commit.get("life"), path.name)
            for damaged in bad:
                self._set_aside(damaged)
            return Loaded(loaded.path, loaded.step, loaded.files, loaded.commit, tuple(skipped))
        if skipped:
            raise CheckpointError(
                f"none of the {len(skipped)} checkpoints in {self.root} is whole: "
                + "; ".join(f"{one.name}: {one.why}" for one in skipped),
                hint=f"restore one of them, or remove {self.root} to start again from the first sample",
            )
        return None

    def save(self, step: int, files: Mapping[str, bytes]) -> Path:
        """Write and commit one checkpoint, then remove those that are too many.

        Args:
            step: the optimizer step that it stands after.
            files: the content by name.

        Returns:
            Its folder.

        Raises:
            CheckpointError: if it could not be written (the earlier ones stay), or if another life of
                the run has taken over.
        """
        name = f"step-{step:08d}"
        final, temp = self.root / name, self.root / f".{name}.{self.nonce}.tmp"
        commit = {
            "version": _VERSION,
            "step": step,
            "life": self._who(),
            "time": time.time(),
            "files": {
                key: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
                for key, data in files.items()
            },
        }
        try:
            shutil.rmtree(temp, ignore_errors=True)
            temp.mkdir()
            for key, data in files.items():
                write_atomic(temp / key, data)
            write_atomic(temp / COMMIT, json.dumps(commit, indent=1))
            self._check_still_ours()
            self._put(temp, final)
            self._check_still_ours()  # what is pruned could be what the other life is reading
        except OSError as error:
            with contextlib.suppress(OSError):
                self._check_still_ours()  # it clears our files away: that is no trouble of the disk
            raise self._cannot_write(f"the checkpoint of step {step}", error) from error
        finally:
            shutil.rmtree(temp, ignore_errors=True)
        self._prune(step)
        return final

    def _put(self, temp: Path, final: Path) -> None:
        old = final.with_name(f".old-{final.name}.{self.nonce}")
        if final.exists():  # an earlier life came as far; its folder goes once ours is in place
            final.rename(old)
        temp.rename(final)
        fsync_dir(self.root)
        shutil.rmtree(old, ignore_errors=True)

    def _check_still_ours(self) -> None:
        owner = read_json(self.root / "LIFE")
        if owner is not None and owner.get("nonce") != self.nonce:
            raise CheckpointError(
                f"another life of this run has taken over {self.root}: job {owner.get('job') or '-'}, "
                f"restart {owner.get('restart')}; this one may not write any more",
                hint="if both were started by hand, give each run its own run folder",
            )

    def _who(self) -> dict[str, Any]:
        return {**self.life, "nonce": self.nonce, "run": self.run}

    def _check_run(self, writer: Mapping[str, Any] | None, what: str) -> None:
        other = (writer or {}).get("run")
        if self.run and other and other != self.run:
            raise CheckpointError(
                f"{self.root} belongs to another run: {what} there is of run {other}, this one is {self.run}",
                hint="name another folder with trainer.checkpoint.root=DIR, or start in that run's own folder",
            )

    def _candidates(self) -> list[Path]:
        """All folders that may hold a checkpoint, best first; of one step the one in its place first."""
        folders = list(self.root.iterdir()) if self.root.is_dir() else []
        found = [
            (int(match[1]), pattern is _FOLDER, path)
            for pattern in (_FOLDER, _OLD)
            for path in folders
            if (match := pattern.fullmatch(path.name))
        ]
        return [path for _, _, path in sorted(found, reverse=True)]

    def _set_aside(self, path: Path) -> None:
        target = path.with_name(f"damaged-{path.name}")
        shutil.rmtree(target, ignore_errors=True)
        with contextlib.suppress(OSError):  # then it will be stepped over again
            path.rename(target)

    def _clear_leftovers(self) -> None:
        for number, path in enumerate(list(self.root.iterdir())):
            old = _OLD.fullmatch(path.name)
            if old and not (final := self.root / f"step-{old[1]}").exists():
                with contextlib.suppress(OSError):  # load() looks at it where it is, too
                    path.rename(final)  # its writer died between the two renames
            elif old or (path.name.startswith(".") and path.name.endswith(".tmp")):
                # First a name of our own: its writer may be alive, and must not fill what we empty.
                mine = self.root / f".cleared-{number}.{self.nonce}.tmp"
                with contextlib.suppress(FileNotFoundError):
                    path.rename(mine)
                if mine.is_dir():
                    shutil.rmtree(mine, ignore_errors=True)
                else:
                    mine.unlink(missing_ok=True)

    def _prune(self, newest: int) -> None:
        for step in [step for step in self.steps() if step <= newest][self.keep :]:
            path = self.root / f"step-{step:08d}"
            hidden = self.root / f".step-{step:08d}.{self.nonce}.tmp"
            try:
                path.rename(hidden)  # never a half-removed folder under a good name
            except OSError:
                continue
            shutil.rmtree(hidden, ignore_errors=True)

    def _cannot_write(self, what: str, error: OSError) -> CheckpointError:
        left = self.steps()
        kept = f"the last committed one is step {left[0]}" if left else "there is no earlier one"
        hint = "look at its owner and its mode"
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            hint = "free space there"
        elif error.errno == errno.ENOENT:
            hint = "it was removed while the run went on: start again"
        return CheckpointError(
            f"{what} could not be written to {self.root}: {error.strerror or error}; {kept}",
            hint=f"{hint}, or name another folder with trainer.checkpoint.root=DIR",
        )
