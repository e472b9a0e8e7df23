"""``submitit.AutoExecutor(cluster="slurmkit")`` on a real Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command import call

if TYPE_CHECKING:
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

PROGRAM = """\
import operator, os, time
import submitit

def fail():
    raise RuntimeError("on purpose")

executor = submitit.AutoExecutor("logs/%j", cluster="slurmkit")
executor.update_parameters(timeout_min=5, mem_gb=1, nodes=1, slurm_partition="high", slurm_gres="gpu:a100:1", name="it's")
one = executor.submit(os.getenv, "SLURM_JOB_PARTITION")
array = executor.map_array(operator.add, [1, 2, 3], [10, 20, 30])
bad = executor.submit(fail)
print(one.result(), [job.result() for job in array])
print(type(bad.exception()).__name__, bad.done())
deadline = time.monotonic() + 30
while (state := one.state) != "COMPLETED" and time.monotonic() < deadline:
    time.sleep(0.2)  # the result is there a moment before Slurm has cleaned up behind the job
print(state)
"""


def test_functions_run_and_return_through_our_plugin(lab: Lab, tmp_path: Path) -> None:
    """Functions, arrays and failures come back through submitit's own interface, on a site without accounting."""
    (tmp_path / "program.py").write_text(PROGRAM)
    done = call(lab, tmp_path, "python", "program.py")
    assert done.stdout.splitlines() == ["high [11, 22, 33]", "FailedJobError True", "COMPLETED"], done.stderr
