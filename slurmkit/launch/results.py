"""What each point returned, as JSON in its folder: written on the node, read on the login node."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback

from slurmkit.runtime.records import read_json, write_atomic

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from slurmkit.launch.ledger import Run

__all__ = ["RecordResult", "point_result"]


class RecordResult(Callback):
    """A Hydra callback that writes ``result.json`` when the task function of a point has ended."""

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Called by Hydra; only rank 0 writes."""
        del config, kwargs
        folder = os.environ.get("SLURMKIT_POINT_DIR")
        if folder is None or os.environ.get("SLURM_PROCID", "0") != "0":
            return
        finished = job_return.status is JobStatus.COMPLETED
        value = job_return.return_value if finished else None
        record = {
            "state": "finished" if finished else "failed",
            "value": _plain(value),
            "error": "" if finished else repr(job_return._return_value),  # noqa: SLF001 - the property raises it
            "time": time.time(),
        }
        write_atomic(Path(folder) / "result.json", json.dumps(record) + "\n")


def _plain(value: Any) -> Any:
    """The value as JSON holds it; what JSON cannot hold becomes its ``repr``."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)
    return value


def point_result(run: Run, point: int) -> dict[str, Any] | None:
    """``result.json`` of one point, or ``None`` while there is none."""
    return read_json(run.point_dir(point) / "result.json")
