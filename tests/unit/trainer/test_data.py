"""Samples: which one is where, whoever reads it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from slurmkit.config.training import DataConfig
from slurmkit.errors import ConfigError, SlurmkitError
from trainer.data import main, prepare
from trainer.samples import Feed, SampleOrder, Samples, open_samples, order_checksum, shares


def test_the_order_is_a_function_of_seed_epoch_and_cursor() -> None:
    """Each epoch is a permutation of its own; reading it in other pieces changes nothing."""
    order = SampleOrder(3, 10)
    whole = order.at(0, 30)
    assert [sorted(whole[start : start + 10]) for start in (0, 10, 20)] == [list(range(10))] * 3
    assert whole[:10] != whole[10:20] != whole[20:]
    again = SampleOrder(3, 10)
    pieces = [sample for first in range(0, 30, 7) for sample in again.at(first, min(7, 30 - first))]
    assert pieces == whole
    assert SampleOrder(3, 10).at(13, 9) == whole[13:22]
    assert SampleOrder(4, 10).at(0, 30) != whole


def test_the_order_never_changes_between_releases() -> None:
    """A checkpoint of last year goes on in the same order: these numbers are frozen."""
    assert SampleOrder(0, 8).at(0, 16) == [6, 3, 5, 0, 7, 2, 1, 4, 3, 1, 0, 4, 5, 6, 7, 2]


@pytest.mark.parametrize(("world", "accumulate"), [(1, 1), (2, 1), (4, 3), (12, 1), (5, 1), (3, 7), (24, 1)])
def test_every_place_of_a_batch_has_one_rank(world: int, accumulate: int) -> None:
    """Ranks and passes split a batch without gap or overlap, into parts that differ by one sample at most."""
    parts = [shares(24, accumulate, rank, world) for rank in range(world)]
    places = [place for own in parts for first, count in own for place in range(first, first + count)]
    assert places == list(range(24))
    counts = {count for own in parts for _, count in own}
    assert max(counts) - min(counts) <= 1
    assert all(len(own) == accumulate for own in parts)


@pytest.mark.parametrize(("batch", "world", "accumulate"), [(3, 4, 1), (4, 8, 1), (7, 4, 2)])
def test_a_batch_that_cannot_be_split_names_one_that_can(batch: int, world: int, accumulate: int) -> None:
    """The error says which sizes are accepted, and its hint is one of them."""
    with pytest.raises(ConfigError, match=f"accepted are {world * accumulate} and more") as caught:
        shares(batch, accumulate, 0, world)
    size = int(caught.value.hint.rpartition("=")[2])
    shares(size, accumulate, 0, world)


def test_the_checksum_tells_order_and_not_who_read() -> None:
    """Split over ranks the sum is the same; two samples swapped, or one read twice, change it."""
    ids = torch.tensor([5, 9, 2, 7])
    whole = order_checksum(100, ids)
    assert order_checksum(100, ids[:2]) + order_checksum(102, ids[2:]) == whole
    assert order_checksum(100, torch.tensor([9, 5, 2, 7])) != whole
    assert order_checksum(100, torch.tensor([5, 5, 2, 7])) != whole
    assert order_checksum(104, ids) != whole


def feed(samples: Samples, start: int, workers: int) -> Feed:
    order = SampleOrder(0, len(samples))
    return Feed(samples, order, batch_size=8, parts=shares(8, 2, 1, 2), span=range(start, 6), workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_feed_goes_on_where_another_stopped(data: Path, workers: int) -> None:
    """From any step on the batches are the same, with and without workers, and no random number is drawn."""
    samples = open_samples(DataConfig("text", str(data / "text.h5"), context=16), data)
    expected = [next(one) for one in [feed(samples, 0, 0)] for _ in range(12)]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    resumed = feed(samples, 2, workers)
    try:
        for batch in expected[4:]:
            for ours, theirs in zip(next(resumed), batch, strict=True):
                assert torch.equal(ours, theirs)
        with pytest.raises(StopIteration):
            next(resumed)
    finally:
        resumed.close()
        samples.close()
    assert torch.equal(torch.get_rng_state(), before)


def test_text_and_table(data: Path) -> None:
    """Text is bytes with the next byte as target; the digits are rows with a class."""
    text = open_samples(DataConfig("text", str(data / "text.h5"), context=32), data)
    ids, inputs, targets = text.batch([1, 0])
    assert ids.tolist() == [1, 0]
    assert inputs.shape == targets.shape == (2, 32)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert inputs[0, 0] == targets[1, -1], "sample 1 begins where sample 0 ends"
    digits = open_samples(DataConfig("table", str(data / "digits.h5")), data)
    _, rows, classes = digits.batch([0, 1, 2])
    assert rows.shape == (3, 64)
    assert rows.max() <= 1
    assert classes.tolist() == [0, 1, 2]
    text.close()
    digits.close()


def test_a_signal_to_all_processes_does_not_end_the_loader(data: Path) -> None:
    """Slurm signals the workers too: the batches that the emergency save waits for still come."""
    samples = open_samples(DataConfig("table", str(data / "digits.h5")), data)
    feed = Feed(
        samples, SampleOrder(0, len(samples)), batch_size=4, parts=[(0, 4)], span=range(40), workers=1
    )
    next(feed)
    (worker,) = feed._iterator._workers
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        os.kill(worker.pid, number)
    assert len([next(feed) for _ in range(39)]) == 39
    assert worker.exitcode in (None, 0)
    feed.close()
    samples.close()


def test_workers_are_our_own_children(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Python starts processes with (a server of its own from 3.14 on): they die with their rank."""
    default = multiprocessing.context._default_context
    monkeypatch.setattr(default, "_actual_context", multiprocessing.get_context("forkserver"))
    samples = open_samples(DataConfig("table", str(data / "digits.h5")), data)
    one = feed(samples, 0, 1)
    (worker,) = one._iterator._workers
    parent = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[1]
    one.close()
    samples.close()
    assert int(parent) == os.getpid()


def test_a_missing_file_says_where_and_how_to_make_it(tmp_path: Path) -> None:
    """The error names both places that were tried; the hint is the command that makes the file."""
    with pytest.raises(ConfigError, match=r"data\.path='data/x\.h5'") as caught:
        open_samples(DataConfig("text", "data/x.h5"), tmp_path)
    assert str(tmp_path / "data/x.h5") in str(caught.value)
    assert "python -m trainer.data prepare" in caught.value.hint


def test_a_relative_path_is_found_where_the_job_was_submitted(data: Path) -> None:
    """A job may run in another folder than the one it was submitted from."""
    assert len(open_samples(DataConfig("table", "digits.h5"), data)) == 1797


def test_the_wrong_kind_and_garbage_are_errors_of_the_config(data: Path, tmp_path: Path) -> None:
    """The error says what the file has, and what was looked for."""
    with pytest.raises(ConfigError, match=r"'tokens'.*it has x, y"):
        open_samples(DataConfig("text", str(data / "digits.h5")), data)
    (tmp_path / "x.h5").write_bytes(b"no HDF5")
    with pytest.raises(ConfigError, match="cannot be read as HDF5"):
        open_samples(DataConfig("text", str(tmp_path / "x.h5")), data)
    with pytest.raises(ConfigError, match="too few"):
        open_samples(DataConfig("text", str(data / "text.h5"), context=10**7), data)


def table(path: Path, **arrays: object) -> DataConfig:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return DataConfig("text" if "tokens" in arrays else "table", str(path), context=2)


def test_values_stay_values_and_classes_whole_numbers(tmp_path: Path) -> None:
    """A target of 0.7 must not become class 0; inputs of any kind of number become floats."""
    x = np.arange(6, dtype=np.uint8).reshape(3, 2)
    config = table(tmp_path / "x.h5", x=x, y=[0.25, 0.5, 0.75])
    values = open_samples(config, tmp_path)
    _, inputs, targets = values.batch([2, 0])
    assert (inputs.tolist(), inputs.dtype) == ([[4, 5], [0, 1]], torch.float32)
    assert (targets.tolist(), targets.dtype) == ([0.75, 0.25], torch.float32)
    values.close()
    classes = open_samples(table(tmp_path / "x.h5", x=x, y=np.array([1, 0, 2], np.int8)), tmp_path)
    assert classes.batch([0, 2])[2].dtype == torch.int64
    classes.close()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((3, 2)), "y": [1, 2]}, "x has 3 rows and y 2; accepted is one y a row"),
        ({"x": ["a", "b"], "y": [1, 2]}, "'x' is .*object, accepted: numbers, a row a sample"),
        ({"x": 1.0, "y": [1, 2]}, r"'x' is \(\) float64, accepted: numbers, a row a sample"),
        ({"tokens": np.zeros((4, 4), np.uint8)}, r"'tokens' is \(4, 4\) uint8, accepted: one row of whole"),
        ({"tokens": [0.5, 1.5, 2.5]}, "'tokens' is .*float64, accepted: one row of whole"),
    ],
)
def test_a_file_of_the_wrong_shape_is_a_mistake(
    tmp_path: Path, arrays: dict[str, object], words: str
) -> None:
    """What would end in torch's words, or train on nonsense, is refused when the file is opened."""
    with pytest.raises(ConfigError, match=words):
        open_samples(table(tmp_path / "x.h5", **arrays), tmp_path)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_cannot_be_read_is_a_line_from_a_worker_too(tmp_path: Path, workers: int) -> None:
    """The file lost its rows since it was opened: path and samples are named, no worker's traceback."""
    config = table(tmp_path / "x.h5", x=np.zeros((64, 4)), y=np.zeros(64, int))
    samples = open_samples(config, tmp_path)
    samples.close()
    table(tmp_path / "x.h5", x=np.zeros((2, 4)), y=np.zeros(2, int))
    broken = feed(samples, 0, workers)
    with pytest.raises(SlurmkitError, match=r"^/[^\n]*/x\.h5: samples \d+ to \d+ cannot be read: "):
        next(broken)
    broken.close()
    samples.close()


def test_prepare_is_repeatable(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command makes the same bytes each time, over old files too, and leaves no temp file."""
    for _ in range(2):
        assert main(["prepare", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        str(tmp_path / "text.h5"),
        str(tmp_path / "digits.h5"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.h5", "text.h5"]
    assert all(
        (tmp_path / name).read_bytes() == (data / name).read_bytes() for name in ("digits.h5", "text.h5")
    )


def test_prepare_into_a_file_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that cannot be made is one line and exit code 1."""
    (tmp_path / "x").write_text("")
    assert main(["prepare", "--out", str(tmp_path / "x")]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(FileExistsError):
        prepare(tmp_path / "x")
