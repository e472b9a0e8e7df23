"""The trainer under torchrun, which is asked for nothing but ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from here import lines
from polling import wait_until
from ranks import started

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
_TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def words_for(data: Path) -> list[str]:
    model = ["model=gpt", "model._target_=paused.PausedGPT", "model.layers=1", "model.width=16"]
    return [*model, "data=text", f"data.path={data}/text.h5", "data.context=16", "trainer.steps=40"]


def torchrun(run_dir: Path, data: Path, pause: float = 0.0) -> subprocess.Popen[str]:
    """The same command each time; only how long a pass rests is in the environment."""
    words = ["model=gpt", "model._target_=paused.PausedGPT", "model.layers=1", "model.width=16", "data=text"]
    words += [
        f"data.path={data}/text.h5",
        "data.context=16",
        "trainer.steps=40",
        f"trainer.run_dir={run_dir}",
    ]
    env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    return subprocess.Popen(
        [*_TORCHRUN, "-m", "trainer", *words],
        env=env | {"PYTHONPATH": f"{ROOT}:{ROOT}/tests/lab", "TEST_PAUSE": str(pause)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str], code: int, until: Callable[[], object] | None = None) -> str:
    """What it says, ended by SIGTERM once something is there; it must end with a code."""
    try:
        if until:
            wait_until(lambda: process.poll() is not None or until(), 90, "torchrun to come so far")
            process.terminate()
        out, err = process.communicate(timeout=90)
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == code, out + err
    return out


def test_sigterm_saves_and_a_finished_run_says_so(data: Path, tmp_path: Path) -> None:
    """SIGTERM to torchrun reaches both ranks, which save; the same command after the end says that it has ended."""
    run = tmp_path / "run"
    out = said(torchrun(run, data, pause=0.3), 1, lambda: lines(run, "metrics.jsonl"))
    assert "2 ranks" in out
    assert "SIGTERM came; saved after step" in out
    (saved,) = [line["step"] for line in lines(run, "events.jsonl") if line["event"] == "checkpoint"]
    assert 1 <= saved < 40
    with started(2, run, words_for(data)) as step:  # not under torchrun, which would cost seconds
        assert step.wait() == [0, 0]
        assert f"resumed after step {saved}" in step.said[0][0]
    assert "already finished: " in said(torchrun(run, data), 0)
