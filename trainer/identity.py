"""Whose files these are: the id of a run, made once in its folder, and what its result says about itself."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmkit.errors import CheckpointError, ConfigError
from slurmkit.runtime.records import fsync_dir, make_dirs, read_json, write_atomic
from trainer.build import check_identity, identity_of
from trainer.events import RESULT
from trainer.samples import open_samples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmkit.config.training import Settings
    from slurmkit.runtime.jobenv import JobEnv

__all__ = ["RUN_ID", "checkpoint_folder", "finished", "read_result", "run_id", "write_result"]

RUN_ID = "run_id"
_DIGITS = 16
_OF_DATA = ("data.samples", "data.sha256")


def run_id(run_dir: Path) -> str:
    """The id of the run in a folder: random, made by whoever comes first, the same for all lives and points.

    The name of a run folder says nothing: two people can have a ``runs/local/digits`` each.

    Args:
        run_dir: the run folder.

    Raises:
        OSError: as the system gave it.
        CheckpointError: if the file holds something else.
    """
    path = run_dir / RUN_ID
    make_dirs(run_dir)
    if not path.exists():
        _offer(path, secrets.token_hex(_DIGITS // 2))
    found = path.read_text(errors="replace").strip()
    if len(found) != _DIGITS or not found.isalnum():
        raise CheckpointError(
            f"{path} holds {found[:40]!r}, accepted are {_DIGITS} letters and digits",
            hint="put the id back: each COMMIT of the run's checkpoints names it as life.run; "
            "where there is none yet, remove the file",
        )
    return found


def _offer(path: Path, own: str) -> None:
    """Make the file, if no other point of the run is faster. It is seen with all it holds, or not at all."""
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        write_atomic(staged, own)
        with contextlib.suppress(FileExistsError):
            os.link(staged, path)
    finally:
        staged.unlink(missing_ok=True)
    fsync_dir(path.parent)


def checkpoint_folder(env: JobEnv, root: str, run: str) -> Path:
    """Where the checkpoints of a point are.

    Args:
        env: any rank.
        root: ``trainer.checkpoint.root``; empty: in the point's folder; ``~`` is a home.
        run: the run's id.

    Raises:
        ConfigError: if ``~`` stands for no home.
    """
    if not root:
        return env.point_dir / "checkpoints"
    try:
        folder = Path(root).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"trainer.checkpoint.root={root!r}: {error}", hint="write the path without ~"
        ) from error
    return folder / f"{env.run_dir.name}-{run}" / str(env.point)


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
