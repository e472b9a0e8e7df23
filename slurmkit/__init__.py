"""slurmkit: from a Hydra experiment to a running, requeueing job on Slurm.

The names below are the Python interface. All load on first use, so that ``import slurmkit`` costs
next to nothing on a login node or in a node hook.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmkit.cluster.client import open_client
    from slurmkit.compiler.plan import compile_job
    from slurmkit.config.load import load_experiment
    from slurmkit.launch.ledger import Run
    from slurmkit.launch.submit import submit

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "compile_job", "load_experiment", "open_client", "submit"]

_HOMES = {
    "open_client": "slurmkit.cluster.client",
    "load_experiment": "slurmkit.config.load",
    "compile_job": "slurmkit.compiler.plan",
    "submit": "slurmkit.launch.submit",
    "Run": "slurmkit.launch.ledger",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'slurmkit' has no attribute {name!r}")
