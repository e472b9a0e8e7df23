"""Samples from HDF5 files, in an order that is a pure function of the seed and a cursor.

The whole run reads one endless sequence of sample ids: epoch after epoch, each shuffled by (seed, epoch).
The cursor counts the samples that are consumed, so step ``s`` takes the ``batch_size`` places from
``s * batch_size`` on, split over the ranks by place. Workers, ranks and lives change nothing about it.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from slurmkit.config.training import check_batch
from slurmkit.errors import ConfigError, SlurmkitError
from slurmkit.runtime.signals import shield_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from slurmkit.config.training import DataConfig

    Batch = tuple[Tensor, Tensor, Tensor]
    Arrays = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]

__all__ = ["Feed", "SampleOrder", "Samples", "open_samples", "order_checksum", "shares"]

_PREPARE = "python -m trainer.data prepare"


class SampleOrder:
    """Which sample is at which place of the endless sequence.

    Args:
        seed: of the run.
        samples: how many the data set has.
    """

    def __init__(self, seed: int, samples: int) -> None:
        self.seed = seed
        self.samples = samples
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def at(self, first: int, count: int) -> list[int]:
        """The sample ids of ``count`` places from ``first`` on; they may cross into the next epoch.

        Args:
            first: the first place.
            count: how many.
        """
        ids: list[int] = []
        while count > 0:
            epoch, place = divmod(first, self.samples)
            self._shuffle(epoch)
            part = self._order[place : place + count]
            ids += part.tolist()
            first += len(part)
            count -= len(part)
        return ids

    def _shuffle(self, epoch: int) -> None:
        if epoch != self._epoch:
            # RandomState on purpose: NumPy promises that its stream never changes between releases.
            bits = np.random.MT19937(np.random.SeedSequence([self.seed, epoch]))
            self._order = np.random.RandomState(bits).permutation(self.samples)
            self._epoch = epoch


def shares(batch_size: int, accumulate: int, rank: int, world_size: int) -> list[tuple[int, int]]:
    """The parts of a global batch that one rank takes: (first place, count) of each forward pass.

    Where the batch does not split evenly, counts differ by one; their losses are weighed by them.

    Args:
        batch_size: samples of one optimizer step over all ranks.
        accumulate: forward passes of one optimizer step.
        rank: whose parts.
        world_size: how many ranks.

    Raises:
        ConfigError: if there are more passes than samples.
    """
    check_batch(batch_size, accumulate, world_size)
    passes = world_size * accumulate
    bounds = [batch_size * (rank * accumulate + turn) // passes for turn in range(accumulate + 1)]
    return [(first, last - first) for first, last in itertools.pairwise(bounds)]


def order_checksum(first: int, ids: Tensor) -> int:
    """A sum over mixed (place, id) pairs: small enough that the sum of all ranks is exact in a double.

    Args:
        first: the place of the first sample in the sequence of the run.
        ids: the samples that were really fed.
    """
    places = np.arange(first, first + len(ids), dtype=np.uint64)
    mixed = places * np.uint64(0x9E3779B97F4A7C15) + ids.numpy().astype(np.uint64)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    return int((mixed & np.uint64(0xFFFFFFFF)).sum())


class Samples(Dataset["Arrays | SlurmkitError"]):
    """The samples of an HDF5 file; each process opens the file for itself.

    Args:
        path: the file.
        kind: ``text`` or ``table``.
        context: tokens of a sample of text.
    """

    def __init__(self, path: Path, kind: str, context: int) -> None:
        self.path = path
        self.kind = kind
        self.context = context
        self._file: Any = None
        self._pid = 0
        rows = self._check()
        self.count = (rows - 1) // context if kind == "text" else rows
        if self.count < 1:
            raise ConfigError(
                f"data.path={str(path)!r} has {rows} rows, too few for one sample",
                hint=f"try data.context={max(1, rows - 1)}" if kind == "text" else _PREPARE,
            )
        self.digest = str(self.file.attrs.get("sha256", ""))

    def _check(self) -> int:
        """The rows of the file, if it holds what its kind reads."""
        place = f"data.path={str(self.path)!r}"
        names = ("tokens",) if self.kind == "text" else ("x", "y")
        for name in names:
            if name not in self.file:
                raise ConfigError(
                    f"{place} has no dataset {name!r}, which data.kind={self.kind} reads; "
                    f"it has {', '.join(sorted(self.file)) or 'none'}",
                    hint="try data=text or data=digits" if len(self.file) else _PREPARE,
                )
            shape, dtype = getattr(self.file[name], "shape", ()), getattr(self.file[name], "dtype", None)
            kinds, most = ("iu", 1) if name == "tokens" else ("iufb", 99)
            if dtype is None or dtype.kind not in kinds or not 1 <= len(shape) <= most:
                accepted = "one row of whole numbers" if name == "tokens" else "numbers, a row a sample"
                raise ConfigError(
                    f"{place}: {name!r} is {'a group' if dtype is None else f'{shape} {dtype}'}, accepted: {accepted}",
                    hint="docs/trainer.md shows how such a file is made",
                )
        lengths = [len(self.file[name]) for name in names]
        if len(set(lengths)) > 1:
            raise ConfigError(
                f"{place}: x has {lengths[0]} rows and y {lengths[1]}; accepted is one y a row of x"
            )
        return lengths[0]

    @property
    def file(self) -> Any:
        """The open file of this process: a handle that went through fork is not used."""
        if self._file is None or self._pid != os.getpid():
            self._file = h5py.File(self.path, "r")
            self._pid = os.getpid()
        return self._file

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Arrays | SlurmkitError:
        return self.__getitems__([index])

    def batch(self, ids: Sequence[int]) -> Batch:
        """One batch as tensors.

        Args:
            ids: the samples.

        Raises:
            SlurmkitError: if it cannot be read.
        """
        return _tensors(self.__getitems__(ids))

    def __getitems__(self, ids: Sequence[int]) -> Arrays | SlurmkitError:
        """One batch: the ids that were read, the inputs and the targets; or why it cannot be read.

        An error as a value: what is raised in a worker arrives as its traceback.

        Arrays and not tensors: torch passes each tensor of a worker as a file of its own, which costs a
        small batch ten times what its bytes cost in the pipe.

        Args:
            ids: the samples.
        """
        try:
            inputs, targets = self._read(ids)
        except (OSError, LookupError, ValueError) as error:  # truncated, or another file under the same name
            words = " ".join(str(error).split())
            return SlurmkitError(
                f"{self.path}: samples {min(ids)} to {max(ids)} cannot be read: {words}",
                hint="it was good when the run began: put it back, the run goes on from its last checkpoint",
            )
        return np.array(ids, np.int64), np.ascontiguousarray(inputs), np.ascontiguousarray(targets)

    def _read(self, ids: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        if self.kind == "text":
            tokens, size = self.file["tokens"], self.context
            rows = np.stack([tokens[i * size : i * size + size + 1] for i in ids]).astype(np.int64)
            return rows[:, :-1], rows[:, 1:]
        x, y = self.file["x"], self.file["y"]
        targets = np.stack([y[i] for i in ids])
        kind = np.float32 if targets.dtype.kind == "f" else np.int64  # values to hit, or classes
        return np.stack([x[i] for i in ids]).astype(np.float32), targets.astype(kind)

    def close(self) -> None:
        """Close the file of this process."""
        if self._file is not None and self._pid == os.getpid():
            self._file.close()
        self._file = None


def open_samples(config: DataConfig, submit_dir: Path) -> Samples:
    """Open the data of a config.

    Args:
        config: which file, and how to read it.
        submit_dir: where the job was submitted from; a relative path is looked for there too.

    Raises:
        ConfigError: if there is no such file, or not the datasets that it should hold.
    """
    path = Path(os.path.expanduser(config.path))  # noqa: PTH111 - pathlib raises for a user that there is not
    places = list(dict.fromkeys([path.absolute(), submit_dir.absolute() / path]))
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ConfigError(
            f"data.path={config.path!r}: there is no file {' nor '.join(map(str, places))}",
            hint=f"make it with {_PREPARE}, or name another with data.path=FILE",
        )
    try:
        return Samples(found, config.kind, config.context)
    except OSError as error:
        raise ConfigError(
            f"data.path={str(found)!r} cannot be read as HDF5: {error}", hint=_PREPARE
        ) from error


class _Batches:
    """The batch sampler of one life of one rank."""

    def __init__(
        self, order: SampleOrder, batch_size: int, parts: list[tuple[int, int]], span: range
    ) -> None:
        self.order = order
        self.batch_size = batch_size
        self.parts = parts
        self.span = span

    def __iter__(self) -> Iterator[list[int]]:
        for step in self.span:
            for first, count in self.parts:
                yield self.order.at(step * self.batch_size + first, count)


def _as_read(batch: Any) -> Any:
    return batch


def _tensors(arrays: Arrays | SlurmkitError) -> Batch:
    if isinstance(arrays, SlurmkitError):
        raise arrays
    ids, inputs, targets = arrays
    return torch.from_numpy(ids), torch.from_numpy(inputs), torch.from_numpy(targets)


class Feed:
    """The batches of one rank from a step on.

    Args:
        samples: the data.
        order: the order of the run.
        batch_size: samples of a global batch.
        parts: from :func:`shares`.
        span: the steps, counted from 0.
        workers: loader processes.
    """

    def __init__(
        self,
        samples: Samples,
        order: SampleOrder,
        *,
        batch_size: int,
        parts: list[tuple[int, int]],
        span: range,
        workers: int,
    ) -> None:
        loader: DataLoader[Arrays | SlurmkitError] = DataLoader(
            samples,
            batch_sampler=_Batches(order, batch_size, parts, span),
            collate_fn=_as_read,
            num_workers=workers,
            # Python 3.14 would start a server for them, which imports torch again and is not our child.
            multiprocessing_context="fork" if workers else None,
            worker_init_fn=shield_worker,
            # iter() draws a seed for the workers: not from the generator that dropout uses.
            generator=torch.Generator().manual_seed(order.seed),
        )
        self._iterator: Any = iter(loader)

    def __next__(self) -> Batch:
        return _tensors(next(self._iterator))

    def close(self) -> None:
        """End the workers; they are deaf to SIGTERM, so what does not end by itself is killed."""
        workers = list(getattr(self._iterator, "_workers", []))
        shutdown = getattr(self._iterator, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()
        for worker in workers:
            if worker.is_alive():
                worker.kill()
        self._iterator = None
