"""Whole runs without Slurm: one rank in this process, several as processes."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import runner
from here import After, lines, train_here
from ranks import fed, proof, started
from tiny import TINY

from slurmkit.runtime.jobenv import JobEnv
from trainer.checkpoint import CheckpointStore
from trainer.loop import train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmkit.runtime.signals import SignalFlags

GPT = [
    *TINY,
    "trainer.batch_size=18",  # over 8 passes: not evenly
    "trainer.accumulate=2",
]


@pytest.fixture
def here(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Train the MLP in this process, as a world of one."""
    for key in [key for key in os.environ if key.startswith(("SLURM", "TORCHELASTIC"))]:
        monkeypatch.delenv(key)

    def run(*overrides: str, flags: SignalFlags | None = None, run_dir: Path = tmp_path / "run") -> int:
        return train_here(data, run_dir, *overrides, flags=flags)

    return run


def events(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in lines(run_dir, "events.jsonl") if line["event"] == kind]


# -- one rank --------------------------------------------------------------------------------------------


def test_a_run_learns_and_leaves_its_files(here: Callable[..., int], tmp_path: Path) -> None:
    """A run ends with 0, a lower loss, a result and four files at most in its point's folder."""
    assert here("trainer.steps=60") == 0
    found = proof(tmp_path / "run")
    assert [step for step, _ in found["losses"]] == list(range(1, 61))
    assert found["losses"][-1][1] < found["losses"][0][1] * 0.9
    point = tmp_path / "run" / "points" / "0" / "0"
    assert sorted(path.name for path in point.iterdir()) == [
        "checkpoints",
        "events.jsonl",
        "metrics.jsonl",
        "result.json",
    ]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 75)]
)
def test_a_signal_saves_and_ends(
    here: Callable[..., int], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """Each signal saves at a step boundary and ends with its own code; the next start ends bit-identical."""
    assert here(flags=After(9, number)) == code
    (saved,) = events(tmp_path / "run", "checkpoint")
    assert 8 <= saved["step"] <= 10
    assert here() == 0
    (resumed,) = events(tmp_path / "run", "resume")
    assert (resumed["step"], resumed["cursor"]) == (saved["step"], saved["step"] * 32)
    assert here(run_dir=tmp_path / "whole") == 0
    assert proof(tmp_path / "run") == proof(tmp_path / "whole")


def test_a_signal_before_the_first_step_ends_at_once(here: Callable[..., int], tmp_path: Path) -> None:
    """What came while the ranks were starting is obeyed before a step is spent on it, in each life."""
    assert here(flags=After(1, signal.SIGTERM)) == 143
    assert events(tmp_path / "run", "signal")[-1]["step"] == 0
    assert here(flags=After(6, signal.SIGTERM)) == 143
    step = events(tmp_path / "run", "checkpoint")[-1]["step"]
    assert here(flags=After(1, signal.SIGTERM)) == 143
    assert events(tmp_path / "run", "signal")[-1]["step"] == step
    assert here() == 0
    assert here(run_dir=tmp_path / "whole") == 0
    assert proof(tmp_path / "run") == proof(tmp_path / "whole")


def test_a_signal_in_a_step_that_is_saved_anyway_takes_effect_there(
    here: Callable[..., int], tmp_path: Path
) -> None:
    """No further step is made, and none is saved twice."""
    assert here("trainer.checkpoint.every=8", flags=After(9, signal.SIGTERM)) == 143
    assert [event["step"] for event in events(tmp_path / "run", "checkpoint")] == [8]
    assert [event["step"] for event in events(tmp_path / "run", "signal")] == [8]


def test_a_signal_at_the_last_step_finishes(here: Callable[..., int], tmp_path: Path) -> None:
    """A run whose last step is done has finished, whatever came."""
    assert here(flags=After(31, signal.SIGTERM)) == 0
    assert proof(tmp_path / "run")["steps"] == 30


def test_a_finished_run_ends_at_once_and_can_be_made_longer(
    here: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slurm may requeue what has finished: it says so and ends. With more steps it goes on."""
    assert here() == 0
    before = proof(tmp_path / "run")
    capsys.readouterr()
    assert here() == 0
    assert "already finished" in capsys.readouterr().out
    assert proof(tmp_path / "run") == before
    assert here("trainer.steps=40") == 0
    assert len(proof(tmp_path / "run")["losses"]) == 40


def test_a_crash_before_the_result_is_written_loses_nothing(here: Callable[..., int], tmp_path: Path) -> None:
    """All steps are committed, the result is not: the next life writes it, with the loss of the last step."""
    assert here() == 0
    before = proof(tmp_path / "run")
    (tmp_path / "run/points/0/0/result.json").unlink()
    assert here() == 0
    assert proof(tmp_path / "run") == before
    assert math.isfinite(before["loss"])


def test_metrics_are_there_before_their_checkpoint(
    here: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A committed step is never done again, so its line of metrics has to be on the disk by then."""
    seen: list[tuple[int, list[int]]] = []
    real = CheckpointStore.save

    def save(store: CheckpointStore, step: int, files: dict[str, bytes]) -> Path:
        seen.append((step, [line["step"] for line in lines(tmp_path / "run", "metrics.jsonl")]))
        return real(store, step, files)

    monkeypatch.setattr(CheckpointStore, "save", save)
    assert here("trainer.checkpoint.every=10") == 0
    assert seen == [(step, list(range(1, step + 1))) for step in (10, 20, 30)]


def test_a_damaged_checkpoint_is_skipped_and_said(
    here: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run goes on from the one before, says which it skipped, and still ends bit-identical."""
    every = "trainer.checkpoint.every=5"
    assert here(every, flags=After(18, signal.SIGTERM)) == 143
    newest = max((tmp_path / "run/points/0/0/checkpoints").glob("step-*"))
    tensors = newest / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-7])
    assert here(every) == 0
    (skipped,) = events(tmp_path / "run", "skip")
    assert skipped["checkpoint"] == newest.name
    assert f"skipped checkpoint {newest.name}" in capsys.readouterr().out
    assert events(tmp_path / "run", "resume")[0]["step"] == 15
    assert here(run_dir=tmp_path / "whole") == 0
    assert proof(tmp_path / "run") == proof(tmp_path / "whole")


def test_another_config_is_refused(here: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint of another model or seed is not taken over: the error names the keys that differ."""
    assert here(flags=After(5, signal.SIGTERM)) == 143
    assert here("model.hidden=64", "trainer.seed=1") == 1
    err = capsys.readouterr().err
    assert "model.hidden was 128 and is 64" in err
    assert "trainer.seed was 0 and is 1" in err
    assert here("optim.lr=5e-4") == 0, "what does not change the meaning of the state may change"


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("data.path=/no/such.h5", "/no/such.h5", "python -m trainer.data prepare"),
        (
            "model._target_=trainer.models.NoSuch",
            "model: trainer.models.NoSuch cannot be made: ModuleNotFoundError: No module named 'trainer.mod",
            "spelling of model._target_",
        ),
        (
            "model._target_=nopkg.Net",
            "ModuleNotFoundError: No module named 'nopkg'",
            "the folder that you start",
        ),
        (
            "model._target_=odd_models.Narrow",
            "Narrow does not take inputs, hidden, classes, dropout",
            "model=own",
        ),
        ("model._target_=odd_models.Unbuilt", "cannot be made: RuntimeError: no weights", "odd_models.py:"),
        (
            "model=own model._target_=odd_models.Needy",
            "model: odd_models.Needy needs width too",
            "set +model.width=VALUE",
        ),
        ("model.colour=red", "MLP does not take colour; accepted are inputs, hidden", "keys of model"),
        ("optim._target_=torch.optim.SGD", "SGD does not take name, beta1", "'~optim' +optim._target_="),
        ("trainer.batch_size=1", "trainer.batch_size=1", "trainer.batch_size=2"),
    ],
)
def test_a_mistake_is_a_line_and_a_hint(
    here: Callable[..., int], capsys: pytest.CaptureFixture[str], override: str, message: str, hint: str
) -> None:
    """What a person got wrong is said in one line, with what to type instead, and no traceback."""
    assert here(*override.split(), "trainer.accumulate=2") == 2
    error, advice = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert advice.startswith("hint: ")
    assert hint in advice


@pytest.mark.parametrize("clip", [0, 1])
def test_a_loss_that_is_not_finite_stops_the_run(
    here: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], clip: int
) -> None:
    """The error names the step, and nothing is saved from that step on."""
    assert here("optim.lr=1e30", "optim.warmup=0", f"optim.clip={clip}", "trainer.checkpoint.every=1") == 1
    err = capsys.readouterr().err
    assert "is not finite" in err
    step = int(err.partition(" step ")[2].split()[0])
    saved = [event["step"] for event in events(tmp_path / "run", "checkpoint")]
    assert all(one < step for one in saved)


@pytest.mark.parametrize(
    "optim", [["optim.clip=0"], ["optim._target_=torch.optim.SGD", "optim.lr=0.1"], ["optim.clip=1"]]
)
def test_a_gradient_that_is_not_finite_is_never_saved(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], optim: list[str]
) -> None:
    """Also where the loss is finite, nothing is clipped, or the optimizer is somebody else's."""
    plain = runner.settings_of([f"data.path={data}/digits.h5", "trainer.checkpoint.every=1", *optim[:1]])
    settings = dataclasses.replace(plain, model={"_target_": "odd_models.NoGradient"})
    if "_target_" in optim[0]:
        settings = dataclasses.replace(settings, optim={"_target_": "torch.optim.SGD", "lr": 0.1})
    assert train(settings, JobEnv.from_environ({"SLURMKIT_RUN_DIR": str(tmp_path)})) == 1
    assert "of step 1 is not finite" in capsys.readouterr().err
    assert not events(tmp_path, "checkpoint")


def test_accumulation_and_ranks_change_nothing_about_the_mean(
    data: Path, tmp_path: Path, here: Callable[..., int]
) -> None:
    """One batch in one pass, in four passes, or on two ranks of three uneven passes each: the same curve.

    With plain SGD and no clipping, so that a gradient of another size is another curve.
    """
    overrides = ["optim=sgd", "optim.clip=0", "optim.lr=0.5", "model.dropout=0", "trainer.steps=20"]
    assert here(*overrides) == 0
    assert here(*overrides, "trainer.accumulate=4", run_dir=tmp_path / "parts") == 0
    more = [f"data.path={data}/digits.h5", *overrides, "trainer.accumulate=3"]
    with started(2, tmp_path / "ranks", more) as step:
        assert step.wait() == [0, 0], step.said
    whole = dict(proof(tmp_path / "run")["losses"])
    assert whole[20] < whole[1] * 0.9
    for name in ("parts", "ranks"):
        assert dict(proof(tmp_path / name)["losses"]) == pytest.approx(whole, rel=1e-4)


def test_time_based_saves(here: Callable[..., int], tmp_path: Path) -> None:
    """``checkpoint.seconds`` saves by the clock of rank 0; each save is one that all agreed on."""
    assert here("trainer.checkpoint.seconds=1e-6") == 0
    assert len(events(tmp_path / "run", "checkpoint")) > 5


def test_a_common_root_keeps_runs_apart(here: Callable[..., int], tmp_path: Path) -> None:
    """Runs that share ``trainer.checkpoint.root`` have folders of their own there."""
    root = f"trainer.checkpoint.root={tmp_path}/scratch"
    assert here(root) == 0
    assert here(root, run_dir=tmp_path / "other") == 0
    ids = [(tmp_path / name / "run_id").read_text() for name in ("other", "run")]
    assert sorted(path.name for path in (tmp_path / "scratch").iterdir()) == [
        f"other-{ids[0]}",
        f"run-{ids[1]}",
    ]
    assert here(root, run_dir=tmp_path / "b" / "run") == 0, "the name of a run folder says nothing"
    assert not events(tmp_path / "b" / "run", "resume")
    assert events(tmp_path / "b" / "run", "finish")[0]["step"] == 30


# -- several ranks -----------------------------------------------------------------------------------------


def test_four_ranks_stop_together_and_end_bit_identical(data: Path, tmp_path: Path) -> None:
    """One of four ranks gets a signal: all stop at one step, and the resumed run ends as the undisturbed one.

    Parameters, loss curve and the very sample ids; with loader workers, dropout and accumulation.
    """
    overrides = [
        *GPT,
        f"data.path={data}/text.h5",
        "trainer.steps=40",
        "trainer.log_samples=true",
        "data.workers=1",
    ]
    with started(4, tmp_path / "whole", overrides) as step:
        assert step.wait() == [0] * 4, step.said
    with started(4, tmp_path / "run", overrides, pause=0.05) as step:
        step.wait_step(10)
        step.processes[2].send_signal(signal.SIGTERM)
        assert step.wait() == [143] * 4, step.said
    (saved,) = events(tmp_path / "run", "checkpoint")
    with started(4, tmp_path / "run", overrides, restart=1) as step:
        assert step.wait() == [0] * 4, step.said
    (resumed,) = events(tmp_path / "run", "resume")
    assert resumed["cursor"] == saved["step"] * 18 < 40 * 18
    assert proof(tmp_path / "run") == proof(tmp_path / "whole")
    assert fed(tmp_path / "run", 4) == fed(tmp_path / "whole", 4)


def test_another_number_of_ranks_gets_the_same_samples(
    data: Path, tmp_path: Path, here: Callable[..., int]
) -> None:
    """A run of two ranks goes on with one: same samples in the same order, and nearly the same loss."""
    overrides = [f"data.path={data}/digits.h5", "trainer.steps=30", "model.dropout=0"]
    with started(2, tmp_path / "run", [*overrides, "trainer.steps=12"]) as step:
        assert step.wait() == [0, 0], step.said
    assert here(*overrides) == 0
    assert here(*overrides, run_dir=tmp_path / "whole") == 0
    ours, whole = proof(tmp_path / "run"), proof(tmp_path / "whole")
    assert ours["samples"] == whole["samples"]
    assert len(ours["losses"]) == 30
    assert dict(ours["losses"]) == pytest.approx(dict(whole["losses"]), rel=1e-4)


def test_a_full_disk_ends_all_ranks(data: Path, tmp_path: Path) -> None:
    """Rank 0 cannot write the checkpoint: both ranks end at once, and it is said once, with a way out."""
    overrides = [f"data.path={data}/digits.h5", "trainer.steps=30", "trainer.checkpoint.every=5"]
    with started(2, tmp_path / "run", overrides, file_limit=100_000) as step:
        assert step.wait() == [1, 1]
        said = "".join(err for _, err in step.said)
    assert said.count("error: the checkpoint of step 5 could not be written") == 1
    assert "trainer.checkpoint.root" in said
    assert "Traceback" not in said
    assert [path.name for path in (tmp_path / "run/points/0/0/checkpoints").iterdir()] == ["LIFE"]


def test_trouble_on_one_rank_is_raised_on_all(data: Path, tmp_path: Path) -> None:
    """One node does not see the data: no rank hangs, and the error names that rank and its node."""
    overrides = [f"data.path={data}/digits.h5"]
    with started(2, tmp_path / "run", overrides, per_rank=[[], ["data.path=/no/such.h5"]]) as step:
        assert step.wait() == [2, 2]
        said = "".join(err for _, err in step.said)
    assert said.count("error: rank 1 on n1: data.path='/no/such.h5'") == 1
    assert "Traceback" not in said


def test_a_rank_that_dies_ends_the_others(data: Path, tmp_path: Path) -> None:
    """After kill -9 of a rank in a step the others end, with an error that names the step."""
    with started(2, tmp_path / "run", [f"data.path={data}/digits.h5", "trainer.steps=100000"]) as step:
        step.wait_step(5)
        step.processes[1].kill()
        assert step.wait() == [1, -9]
        assert "contact to another rank was lost in step" in step.said[0][1]


def test_a_rank_that_never_comes_is_named(data: Path, tmp_path: Path) -> None:
    """At the deadline rank 0 says who is missing."""
    overrides = [f"data.path={data}/digits.h5", "trainer.rendezvous_seconds=1"]
    with started(2, tmp_path / "run", overrides) as step:
        step.processes[1].kill()
        assert step.wait()[0] == 1
        assert "ranks 1 of 2 did not come within 1 s" in step.said[0][1]


def test_two_runs_at_once_do_not_meet(data: Path, tmp_path: Path) -> None:
    """Two steps of one name on one machine, at the same time: each has its own port, each finishes."""
    overrides = [f"data.path={data}/digits.h5", "trainer.steps=20"]
    with started(2, tmp_path / "a", overrides) as one, started(2, tmp_path / "b", overrides) as two:
        assert one.wait() == [0, 0], one.said
        assert two.wait() == [0, 0], two.said
    assert proof(tmp_path / "a") == proof(tmp_path / "b")
    assert json.loads((tmp_path / "a/points/0/0/result.json").read_text())["state"] == "finished"
    assert list((tmp_path / "a" / "rendezvous").iterdir()) == []
