"""JobEnv: who am I, from the variables of a step, of torchrun, or from none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmkit.errors import ConfigError
from slurmkit.runtime.jobenv import JobEnv

JOB = {"SLURM_JOB_ID": "14", "SLURM_CLUSTER_NAME": "lab", "SLURMD_NODENAME": "n2", "SLURM_PROCID": "0"}
STEP = {
    **JOB,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "99",
    "SLURM_CPUS_PER_TASK": "4",
}
ARRAY = {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "x",
    "RANK": "6",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "2",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "n1",
}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({}, {"source": "none", "world_size": 1, "own_id": "", "restart": 0}, id="by hand"),
        pytest.param(
            STEP,
            {
                "source": "slurm",
                "rank": 3,
                "world_size": 5,
                "local_rank": 1,
                "local_world_size": 2,
                "node_rank": 1,
                "node": "n2",
                "own_id": "14",
                "step_id": "0",
                "cpus_per_task": 4,
            },
            id="step variables win over those of the job",
        ),
        pytest.param({**STEP, "SLURM_NODEID": "2"}, {"local_world_size": 1}, id="uneven nodes"),
        pytest.param(
            {**JOB, "SLURM_NTASKS": "4", "SLURM_NNODES": "2"},
            {"source": "none", "rank": 0, "world_size": 1, "own_id": "14"},
            id="a batch shell without srun is a world of one",
        ),
        pytest.param(
            {**STEP, **ARRAY}, {"own_id": "12_3", "job_id": "14"}, id="array task, never the raw id"
        ),
        pytest.param(
            {**STEP, **ARRAY, "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "12"},
            {"own_id": "12_0"},
            id="task 0",
        ),
        pytest.param(
            {**STEP, **TORCHRUN},
            {
                "source": "torchrun",
                "rank": 6,
                "world_size": 8,
                "local_rank": 2,
                "node_rank": 1,
                "own_id": "14",
            },
            id="torchrun wins inside of Slurm",
        ),
        pytest.param(
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "x"},
            {"source": "torchrun", "rank": 1},
            id="env://",
        ),
        pytest.param(
            {**STEP, "WORLD_SIZE": "2"}, {"source": "slurm", "world_size": 5}, id="a stray variable"
        ),
        pytest.param({**STEP, "SLURM_RESTART_COUNT": "2"}, {"restart": 2}, id="third life"),
        pytest.param(
            {"SLURMKIT_RUN_DIR": "/r", "SLURMKIT_POINT": "2017"},
            {"point": 2017, "point_dir": Path("/r/points/2/2017"), "run_dir": Path("/r")},
            id="folder of a point",
        ),
        pytest.param(
            {"SLURMKIT_RUN_DIR": "/r", "SLURMKIT_POINT_DIR": "/p"},
            {"point_dir": Path("/p")},
            id="folder given",
        ),
        pytest.param({}, {"run_dir": Path.cwd() / "runs" / "local"}, id="default folder"),
    ],
)
def test_table(env: dict[str, str], expected: dict[str, Any]) -> None:
    """Each environment is read as it is meant."""
    found = JobEnv.from_environ(env)
    assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({**STEP, "SLURM_PROCID": "4,2"}, "SLURM_PROCID='4,2'"),
        ({**STEP, "SLURM_PROCID": "-1"}, "SLURM_PROCID='-1'"),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "0"}, "SLURM_STEP_NUM_TASKS='0'"),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "2x2"}, "SLURM_STEP_TASKS_PER_NODE='2x2'"),
        ({**STEP, "SLURM_PROCID": "5"}, "rank 5 of 5"),
        ({**STEP, "SLURM_NODEID": "3"}, "SLURM_NODEID=3"),
        ({**STEP, "SLURM_RESTART_COUNT": "two"}, "SLURM_RESTART_COUNT='two'"),
        ({**STEP, "SLURM_CPUS_PER_TASK": "²"}, "SLURM_CPUS_PER_TASK='²'"),
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "0"}, "WORLD_SIZE is not set"),
        ({"SLURMKIT_POINT": "x"}, "SLURMKIT_POINT='x'"),
    ],
)
def test_malformed_values_are_named(env: dict[str, str], named: str) -> None:
    """The error names the variable, the value, and what is accepted."""
    with pytest.raises(ConfigError, match="accepted") as caught:
        JobEnv.from_environ(env)
    assert named in str(caught.value)
