"""Whose files these are: the id of a run, made once in its folder, and what its result says about itself."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmkit.errors import CheckpointError, ConfigError
from slurmkit.runtime.records import fsync_dir, read_json, write_atomic
from trainer.build import check_identity, identity_of
from trainer.events import RESULT
from trainer.samples import open_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurmkit.config.training import Settings
    from slurmkit.runtime.jobenv import JobEnv

__all__ = ["RUN_ID", "checkpoint_folder", "finished", "read_result", "run_id", "write_result"]

RUN_ID = "run_id"
_DIGITS = 16
_OF_DATA = ("data.samples", "data.sha256")
#: How long another point of the run may take between making the file and writing 16 bytes; NFS may show
#: an empty file for some seconds.
_WAIT_SECONDS = 10.0


def run_id(run_dir: Path, pause: Callable[[float], None] = time.sleep) -> str:
    """The id of the run in a folder: random, made by whoever comes first, the same for all lives and points.

    The name of a run folder says nothing: two people can have a ``runs/local/digits`` each.

    Args:
        run_dir: the run folder.
        pause: waits some seconds; tests inject their own.

    Raises:
        OSError: as the system gave it.
        CheckpointError: if the file holds something else.
    """
    path = run_dir / RUN_ID
    run_dir.mkdir(parents=True, exist_ok=True)
    own = secrets.token_hex(_DIGITS // 2)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return _read(path, pause)
    try:
        os.write(descriptor, own.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fsync_dir(run_dir)
    return own


def _read(path: Path, pause: Callable[[float], None]) -> str:
    waited = 0.0
    while len(found := path.read_text(errors="replace").strip()) != _DIGITS or not found.isalnum():
        if waited >= _WAIT_SECONDS:
            raise CheckpointError(
                f"{path} holds {found[:40]!r}, accepted are {_DIGITS} letters and digits",
                hint="put the id back: each COMMIT of the run's checkpoints names it as life.run",
            )
        pause(0.5)
        waited += 0.5
    return found


def checkpoint_folder(env: JobEnv, root: str, run: str) -> Path:
    """Where the checkpoints of a point are.

    Args:
        env: any rank.
        root: ``trainer.checkpoint.root``; empty: in the point's folder.
        run: the run's id.
    """
    if not root:
        return env.point_dir / "checkpoints"
    return Path(root) / f"{env.run_dir.name}-{run}" / str(env.point)


def finished(settings: Settings, env: JobEnv) -> str:
    """Why a run has nothing left to do, for a person; empty where there is something.

    Its data may be gone by then: what is known from the data is compared where there is any.

    Args:
        settings: the config.
        env: any rank.

    Raises:
        CheckpointError: if the result is that of another experiment.
    """
    result = read_result(env.point_dir)
    if result.get("state") != "finished":
        return ""
    path = env.point_dir / RESULT
    saved, ours = result.get("identity") or {}, identity_of(settings, None)
    with contextlib.suppress(ConfigError):
        samples = open_samples(settings.data, env.submit_dir)
        ours = identity_of(settings, samples)
        samples.close()
    known = {key: value for key, value in saved.items() if key in ours or key not in _OF_DATA}
    check_identity(known, ours, f"the result {path}")
    if result.get("steps", 0) < settings.trainer.steps:
        return ""
    return f"already finished: {path} says step {result['steps']}, loss {result['loss']:.4f}"


def read_result(point_dir: Path) -> dict[str, Any]:
    """The result of a point; empty where there is none.

    Args:
        point_dir: the point's folder.
    """
    return read_json(point_dir / RESULT) or {}


def write_result(point_dir: Path, result: Mapping[str, Any]) -> None:
    """Write how a point ended.

    Args:
        point_dir: the point's folder.
        result: plain JSON.

    Raises:
        OSError: as the system gave it.
    """
    write_atomic(point_dir / RESULT, json.dumps(result, indent=1) + "\n")
