"""What is refused before the first step: a config that does not fit, files of another run, a bad system."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import runner
import torch
from here import lines, train_here
from odd_models import Counting
from ranks import started

from slurmkit.config.training import Settings
from slurmkit.errors import ConfigError
from trainer.build import build_model, deterministic
from trainer.identity import RUN_ID, run_id
from trainer.start import try_out, untouched


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.inputs=63"], ["trainer.models.mlp.MLP", "data.kind=table", "mat1 and mat2", "(32, 64)"]),
        (["model.classes=3"], ["trainer.models.mlp.MLP", "data.kind=table", "out of bounds"]),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_a_mistake_in_the_config(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], words: list[str]
) -> None:
    """One line that names model and data and keeps torch's own words, no traceback, and nothing is saved."""
    assert train_here(data, tmp_path, *overrides) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert all(word in error for word in words), error
    assert hint.startswith("hint: it was raised in ")
    assert not lines(tmp_path, "metrics.jsonl")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Vector", r"gave a tensor \(4,\), accepted is the mean loss"),
        ("Pair", "gave tuple, accepted is the mean loss"),
        ("Spare", "does not depend on spare.weight, spare.bias; accepted is"),
        ("Bare", "has no parameters: accepted is a model with parameters to train"),
        ("Frozen", "has no parameter that takes a gradient: accepted"),
        ("Lazy", r"has parameters without a shape \(a lazy layer\): accepted"),
    ],
)
def test_a_model_that_cannot_be_trained_is_a_mistake_too(name: str, words: str) -> None:
    """What DDP, the optimizer or ``backward()`` would refuse in their own words is a line with ours."""
    settings = Settings(model={"_target_": f"odd_models.{name}"})
    with pytest.raises(ConfigError, match=f"odd_models.{name} .*{words}"):
        try_out(settings, build_model(settings.model), torch.zeros(4, 64), torch.zeros(4))


@pytest.mark.parametrize(
    ("words", "bad", "ranks"),
    [
        ("", 7, (0, 1)),
        ("trainer.checkpoint.every=1", 7, (0, 1)),
        ("model.rank=1 model.pause=0.3 model.out=[5]", 3, (1,)),
        ("model.out=[11] trainer.accumulate=2 trainer.checkpoint.every=1", 0, ()),
        ("model.out=[12] trainer.accumulate=2 trainer.checkpoint.every=1", 5, (0, 1)),
        ("model.out=[12] trainer.accumulate=2 trainer.steps=5", 5, (0, 1)),
    ],
    ids=[
        "defaults",
        "every step saved",
        "one rank, long steps",
        "an early pass",
        "the last pass",
        "at the end",
    ],
)
def test_a_parameter_that_loses_its_gradient_ends_the_run(
    data: Path, tmp_path: Path, words: str, bad: int, ranks: tuple[int, ...]
) -> None:
    """DDP would leave it unsummed: each rank that sees it says so and ends, and nothing of that step is saved.

    A rank that waits for it in ``backward()`` loses contact, and ends too. In an early pass of several it
    does no harm.
    """
    model = ["model=own", "model._target_=odd_models.Moody"]
    overrides = [f"data.path={data}/digits.h5", *model, "trainer.steps=8", *words.split()]
    with started(2, tmp_path / "run", overrides) as step:
        assert step.wait(40) == ([1, 1] if bad else [0, 0]), step.said
    for rank, (_, err) in enumerate(step.said):
        line = f"in step {bad} the loss does not depend on second.weight, second.bias; not saved"
        assert err.count(line) == (rank in ranks), step.said
        assert "Traceback" not in err
    saved = [line["step"] for line in lines(tmp_path / "run", "events.jsonl") if "bytes" in line]
    assert not bad or all(one < bad for one in saved)


@pytest.mark.parametrize(
    ("name", "words"), [("Extra", "model/_extra_state .* dict is no tensor"), ("Sparse", "model/holes ")]
)
def test_what_could_not_be_saved_is_refused_before_the_first_step(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    """An emergency save must not be the first to find out; the line names what no checkpoint can hold."""
    assert train_here(data, tmp_path, "model=own", f"model._target_=odd_models.{name}") == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert re.search(f"odd_models.{name} with its optimizer could not be saved: {words}", error), error
    assert "a checkpoint holds plain tensors" in hint
    assert not lines(tmp_path, "metrics.jsonl")


def test_trying_leaves_no_trace_in_the_model() -> None:
    """Running means and buffers that are never saved are as before."""
    model = Counting()
    before = [value.clone() for value in (*model.parameters(), *model.buffers())]
    with untouched(model):
        model(torch.rand(4, 64), torch.zeros(4)).backward()
    assert all(map(torch.equal, before, (*model.parameters(), *model.buffers())))


def test_two_ranks_say_a_misfit_once(data: Path, tmp_path: Path) -> None:
    """No rank waits for another in DDP, and rank 0 alone says it."""
    with started(2, tmp_path / "run", [f"data.path={data}/digits.h5", "model.inputs=63"]) as step:
        assert step.wait() == [2, 2]
        said = "".join(err for _, err in step.said)
    assert said.count("does not fit") == 1
    assert "Traceback" not in said


def test_another_experiment_is_not_finished_already(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result of another experiment in the run folder is an error as its checkpoint is, never silence."""
    assert train_here(data, tmp_path) == 0
    assert train_here(data, tmp_path, "model.hidden=64", "trainer.steps=20") == 1
    error = capsys.readouterr().err
    assert "result.json belongs to another run: model.hidden was 128 and is 64" in error
    assert train_here(data, tmp_path, "trainer.steps=20") == 0, "fewer steps of the same run are done"


def test_a_finished_run_says_so_without_its_data(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slurm may start it again when its data is long gone; another seed, or more steps, still do not pass."""
    assert train_here(data, tmp_path) == 0
    capsys.readouterr()
    assert train_here(tmp_path / "gone", tmp_path) == 0
    assert "already finished: " in capsys.readouterr().out
    assert train_here(tmp_path / "gone", tmp_path, "trainer.seed=1") == 1
    assert "trainer.seed was 0 and is 1" in capsys.readouterr().err
    assert train_here(tmp_path / "gone", tmp_path, "trainer.steps=40") == 2
    assert "there is no file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "argv", "package", "said"),
    [
        (
            "trainer",
            ["experiment=digits"],
            "torch",
            "trainer: the trainer needs torch, which is not installed",
        ),
        ("trainer", ["experiment=digits"], "h5py", "trainer: the trainer needs h5py, which is not installed"),
        ("trainer.data", ["prepare"], "h5py", "error: the trainer needs h5py, which is not installed"),
        ("trainer.data", ["prepare"], "sklearn", "error: the trainer needs scikit-learn, which is not"),
    ],
)
def test_a_missing_package_is_a_line(
    tmp_path: Path, module: str, argv: list[str], package: str, said: str
) -> None:
    """Exit code 2, what to type, no traceback; and what others registered for the end of the process runs."""
    code = f"""
import atexit, runpy, sys
atexit.register(print, "at exit", flush=True)
sys.modules.update(dict.fromkeys(("torch", "h5py", "safetensors", "sklearn") if {package!r} == "torch" else [{package!r}]))
sys.argv = ["x", *{argv!r}]
runpy.run_module({module!r}, run_name="__main__")
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=dict(os.environ) | {"PYTHONPATH": str(root)},
    )
    error, hint = done.stderr.splitlines()
    assert error.startswith(said)
    assert "pip install 'slurmkit-hpc[trainer]'" in hint
    assert (done.returncode, done.stdout) == (2, "at exit\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "override", "folder"),
    [
        ("digits", "", "runs/local/digits"),
        ("a/b c", "", "runs/local/a_b_c"),
        ("..", "", "runs/local/experiment"),
        ("digits", "elsewhere", "elsewhere"),
    ],
)
def test_each_name_has_its_run_folder_by_hand(name: str, override: str, folder: str) -> None:
    """Two experiments that are started by hand do not meet."""
    words = [f"name={name}", *([f"trainer.run_dir={override}"] if override else [])]
    assert runner.settings_of(words).run_dir == folder


def test_the_id_of_a_run_is_made_once(tmp_path: Path) -> None:
    """All lives and points of a run folder read one id; another folder of the same name has another."""
    first = run_id(tmp_path / "a" / "digits")
    assert run_id(tmp_path / "a" / "digits") == first
    assert run_id(tmp_path / "b" / "digits") != first


@pytest.mark.parametrize("name", ["result.json", "samples-0.jsonl", "checkpoints"])
def test_what_the_system_refuses_is_a_line_with_its_path(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A folder where a file should be, or the other way round: one line, and no traceback."""
    point = tmp_path / "points" / "0" / "0"
    (point if name == "checkpoints" else point / name).mkdir(parents=True)
    if name == "checkpoints":
        (point / name).touch()
    assert train_here(data, tmp_path, "trainer.log_samples=true") == 1
    error = capsys.readouterr().err.splitlines()[0]
    assert error.startswith("error: ")
    assert str(point / name) in error


def test_a_run_folder_that_cannot_be_made(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path is named."""
    (tmp_path / "file").touch()
    assert train_here(data, tmp_path / "file" / "run") == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


@pytest.mark.parametrize("name", ["rendezvous", "run_id", "points/0/0/samples-1.jsonl"])
def test_no_rank_waits_for_one_whose_system_refuses(data: Path, tmp_path: Path, name: str) -> None:
    """Two ranks end at once, whichever of them met the bad path."""
    path = tmp_path / name
    if name == "rendezvous":
        path.touch()
    else:
        path.mkdir(parents=True)
    overrides = [f"data.path={data}/digits.h5", "trainer.log_samples=true", "trainer.steps=20"]
    with started(2, tmp_path, overrides) as step:
        assert step.wait(30) == [1, 1]
        said = "".join(err for _, err in step.said)
    assert str(path) in said
    assert "Traceback" not in said


def test_attention_is_pinned_where_a_gpu_may_be_used() -> None:
    """The backward passes of fused attention are not deterministic: torch only warns, so they are off."""
    backends = torch.backends.cuda
    with deterministic(on=True, cuda=True):
        assert not backends.flash_sdp_enabled()
        assert not backends.mem_efficient_sdp_enabled()
        assert backends.math_sdp_enabled()
    with deterministic(on=False, cuda=True):
        assert backends.flash_sdp_enabled()
    with deterministic(on=True):
        assert backends.flash_sdp_enabled()


def test_all_that_is_written_names_the_life(data: Path, tmp_path: Path) -> None:
    """Metrics, samples and events of all ranks carry cluster, job, restart and one nonce; RNGs differ."""
    overrides = [f"data.path={data}/digits.h5", "trainer.log_samples=true", "trainer.steps=4"]
    with started(2, tmp_path, overrides) as step:
        assert step.wait() == [0, 0], step.said
    names = ("metrics.jsonl", "samples-0.jsonl", "samples-1.jsonl", "events.jsonl")
    found = {
        tuple(line[key] for key in ("cluster", "job", "restart", "life"))
        for name in names
        for line in lines(tmp_path, name)
    }
    ((_, _, restart, life),) = found
    (commit,) = (tmp_path / "points/0/0/checkpoints").glob("step-*/COMMIT")
    assert (restart, life) == (0, json.loads(commit.read_text())["life"]["nonce"])
    assert json.loads(commit.read_text())["life"]["run"] == (tmp_path / RUN_ID).read_text()
    rngs = json.loads((commit.parent / "state.json").read_text())["rng"]
    assert rngs[0]["python"] != rngs[1]["python"], "dropout would be the same on all ranks"
    assert rngs[0]["numpy"] != rngs[1]["numpy"]
