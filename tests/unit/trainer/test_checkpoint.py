"""The commit protocol under faults: what was committed stays, what was not is never read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import CheckpointError
from slurmkit.runtime.records import write_atomic
from trainer import checkpoint
from trainer.checkpoint import COMMIT, STATE, TENSORS, CheckpointStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def files(step: int, size: int = 1000) -> dict[str, bytes]:
    return {TENSORS: bytes([step % 251]) * size, STATE: json.dumps({"step": step}).encode()}


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    made = CheckpointStore(
        tmp_path / "checkpoints", keep=3, life={"cluster": "lab", "job": "12", "restart": 0}, run="run1"
    )
    made.claim()
    return made


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.root.iterdir() if path.name != "LIFE")


def test_what_is_saved_is_loaded_with_its_life(store: CheckpointStore) -> None:
    """The newest one comes back, byte by byte, with the life that wrote it; the last ``keep`` stay."""
    for step in (10, 20, 30, 40, 50):
        store.save(step, files(step))
    loaded = store.load()
    assert loaded is not None
    assert (loaded.step, loaded.files, loaded.skipped) == (50, files(50), ())
    life = {"cluster": "lab", "job": "12", "restart": 0, "nonce": store.nonce, "run": "run1"}
    assert loaded.commit["life"] == life
    assert names(store) == ["step-00000030", "step-00000040", "step-00000050"]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches the disk, in order, random parts of the names left out."""
    done: list[str] = []
    fsync, rename, replace = os.fsync, Path.rename, Path.replace

    def note(what: str, path: object) -> None:
        done.append(f"{what} {re.sub(r'[.][0-9a-f]{16}', '', Path(str(path)).name)}")

    def synced(descriptor: int) -> None:
        note("sync", Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        note("name", target)
        return rename(path, target)

    def replaced(path: Path, target: Path) -> Path:
        note("name", target)
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(Path, "replace", replaced)
    return done


def test_a_save_survives_a_power_cut_at_any_moment(store: CheckpointStore, disk: list[str]) -> None:
    """Each file is synced before COMMIT is there, all of them before the folder's name, and that at the end."""
    store.save(10, files(10))
    assert disk == [
        *("sync .tensors.safetensors.tmp", "name tensors.safetensors", "sync .step-00000010.tmp"),
        *("sync .state.json.tmp", "name state.json", "sync .step-00000010.tmp"),
        *("sync .COMMIT.tmp", "name COMMIT", "sync .step-00000010.tmp"),
        *("name step-00000010", "sync checkpoints"),
    ]


def test_the_folders_of_a_claim_survive_a_power_cut(tmp_path: Path, disk: list[str]) -> None:
    """A synced checkpoint is worth nothing where the name of a folder above it is lost."""
    CheckpointStore(tmp_path / "0" / "1" / "checkpoints").claim()
    assert {f"sync {name}" for name in ("checkpoints", "1", "0", tmp_path.name)} <= set(disk)


def test_nothing_there_is_none(tmp_path: Path) -> None:
    """A fresh run has no checkpoint, and that is no error."""
    assert CheckpointStore(tmp_path / "none").load() is None


def flip(path: Path) -> None:
    data = bytearray((path / TENSORS).read_bytes())
    data[500] ^= 1
    (path / TENSORS).write_bytes(data)


def truncate(path: Path) -> None:
    (path / TENSORS).write_bytes((path / TENSORS).read_bytes()[:-1])


FAULTS: list[tuple[Callable[[Path], None], str]] = [
    (flip, "does not have the committed sha256"),
    (truncate, "has 999 bytes, committed were 1000"),
    (lambda path: (path / COMMIT).unlink(), "COMMIT is missing"),
    (lambda path: (path / COMMIT).write_text('{"version": 1, "fi'), "COMMIT is missing or not JSON"),
    (lambda path: (path / STATE).unlink(), "state.json is missing"),
    (lambda path: (path / COMMIT).write_text('{"version": 9, "files": {}}'), "version 9"),
]


@pytest.mark.parametrize(("damage", "why"), FAULTS)
def test_a_damaged_one_is_stepped_over_and_named(
    store: CheckpointStore, damage: Callable[[Path], None], why: str
) -> None:
    """A flipped bit, a short file, no COMMIT: the one before is taken, and what was skipped is said."""
    for step in (10, 20, 30):
        store.save(step, files(step))
    for step in (20, 30):
        damage(store.root / f"step-{step:08d}")
    loaded = store.load()
    assert loaded is not None
    assert loaded.step == 10
    assert [one.name for one in loaded.skipped] == ["step-00000030", "step-00000020"]
    assert why in loaded.skipped[0].why
    store.save(30, files(30))  # the run comes by again
    again = store.load()
    assert again is not None
    assert again.step == 30


def test_damaged_ones_do_not_count_among_those_that_are_kept(store: CheckpointStore) -> None:
    """With keep=2, a damaged newest one must not push the only good one out."""
    store.keep = 2
    store.save(10, files(10))
    store.save(20, files(20))
    flip(store.root / "step-00000020")
    assert store.load() is not None
    store.save(30, files(30))
    assert store.steps() == [30, 10]
    assert "damaged-step-00000020" in names(store)


def test_what_was_just_saved_is_never_pruned(store: CheckpointStore) -> None:
    """Newer folders that this life cannot read stay in place, and push out nothing that it can."""
    store.keep = 1
    store.save(10, files(10))
    store.save(30, files(30))
    (store.root / "step-00000030" / COMMIT).write_text('{"version": 9, "files": {}}')
    store.save(20, files(20))
    loaded = store.load()
    assert loaded is not None
    assert (loaded.step, store.steps()) == (20, [30, 20])


def test_none_good_is_an_error_and_not_a_fresh_start(store: CheckpointStore) -> None:
    """Where all are damaged the run must not silently begin anew; the error names each and its fault."""
    for step in (10, 20):
        store.save(step, files(step))
        flip(store.root / f"step-{step:08d}")
    for _ in range(2):  # also the second time
        with pytest.raises(CheckpointError, match="none of the 2 checkpoints") as caught:
            store.load()
        assert "step-00000010" in str(caught.value)
        assert str(store.root) in caught.value.hint


def test_leftovers_of_a_dead_writer_are_cleared(store: CheckpointStore) -> None:
    """A temp folder, a temp file and a half-done exchange never make a later save fail, and go away."""
    store.save(10, files(10))
    shutil.copytree(store.root / "step-00000010", store.root / ".step-00000020.dead.tmp")
    (store.root / ".LIFE.x.tmp").write_text("")
    (store.root / "step-00000010").rename(store.root / ".old-step-00000010.dead")
    later = CheckpointStore(store.root)
    later.claim()
    assert names(later) == ["step-00000010"], "the only copy came back, the rest went"
    later.save(20, files(20))
    assert later.steps() == [20, 10]


def test_a_writer_killed_at_any_moment_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    """After kill -9 in the middle of saves, again and again: the newest committed one is always whole."""
    root = tmp_path / "checkpoints"
    code = f"""
import pathlib
from trainer.checkpoint import CheckpointStore, STATE, TENSORS
store = CheckpointStore(pathlib.Path({str(root)!r}), keep=2)
store.claim()
last = store.load()
step = last.step if last else 0
print(step, flush=True)
while True:
    step += 1
    store.save(step, {{TENSORS: bytes([step % 251]) * 300_000, STATE: b'{{"step": %d}}' % step}})
    print(step, flush=True)
"""
    seen = 0
    for lines in (3, 4, 5, 6):
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.kill()
        rest = writer.stdout.read().split()
        writer.communicate()
        assert said[0] >= seen
        seen = max(said + [int(word) for word in rest])
        loaded = CheckpointStore(root).load()
        assert loaded is not None
        assert not loaded.skipped
        assert loaded.step >= seen
        assert json.loads(loaded.files[STATE])["step"] == loaded.step


def test_a_full_disk_keeps_the_old_one(tmp_path: Path) -> None:
    """A save without space says why and what to do; the old checkpoint stays, and no temp folder."""
    root = tmp_path / "checkpoints"
    code = f"""
import pathlib, resource
from trainer.checkpoint import CheckpointStore, STATE, TENSORS
store = CheckpointStore(pathlib.Path({str(root)!r}))
store.claim()
store.save(10, {{TENSORS: b"x" * 1000, STATE: b"{{}}"}})
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    store.save(20, {{TENSORS: b"x" * 100_000, STATE: b"{{}}"}})
except Exception as error:
    print(type(error).__name__, error, error.hint, sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kind, message, hint = done.stdout.splitlines()
    assert kind == "CheckpointError"
    assert "step 20 could not be written" in message
    assert "File too large; the last committed one is step 10" in message
    assert "trainer.checkpoint.root" in hint
    store = CheckpointStore(root)
    assert names(store) == ["step-00000010"]
    assert store.load() is not None


def test_a_superseded_life_may_not_write(store: CheckpointStore) -> None:
    """A node that lost contact goes on after its job was requeued: the newer life's claim locks it out."""
    store.save(10, files(10))
    newer = CheckpointStore(store.root, life={"job": "12", "restart": 1})
    newer.claim()
    with pytest.raises(CheckpointError, match="restart 1"):
        store.save(20, files(20))
    assert newer.steps() == [10]
    newer.save(20, files(21))
    assert newer.steps() == [20, 10]


def test_a_step_is_replaced_by_the_life_that_comes_by_again(store: CheckpointStore) -> None:
    """After a crash a step can be saved twice; the second save is no error, and it is the one that counts."""
    store.save(10, files(10))
    store.save(10, files(11))
    loaded = store.load()
    assert loaded is not None
    assert loaded.files == files(11)
    assert names(store) == ["step-00000010"]


def test_a_life_that_is_superseded_while_it_writes_puts_nothing(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIFE is read after the files are written, which can take minutes: not only before."""
    store.save(10, files(10))

    def write(path: Path, data: Any) -> None:
        write_atomic(path, data)
        if path.name == COMMIT:
            write_atomic(store.root / "LIFE", '{"job": "12", "restart": 1, "nonce": "newer"}')

    monkeypatch.setattr(checkpoint, "write_atomic", write)
    with pytest.raises(CheckpointError, match="taken over"):
        store.save(20, files(20))
    assert names(store) == ["step-00000010"]


def test_a_life_that_is_superseded_while_it_puts_prunes_nothing(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would remove could be what the newer life is reading."""
    store.keep = 1
    store.save(10, files(10))
    put = store._put

    def slow(temp: Path, final: Path) -> None:
        put(temp, final)
        write_atomic(store.root / "LIFE", '{"job": "12", "restart": 1, "nonce": "newer"}')

    monkeypatch.setattr(store, "_put", slow)
    with pytest.raises(CheckpointError, match="taken over"):
        store.save(20, files(20))
    assert store.steps() == [20, 10]


def test_a_claim_says_so_before_it_clears(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live writer of the old life is locked out first: what is cleared is not written again after it."""
    temp = store.root / ".step-00000020.theirs.tmp"
    temp.mkdir()
    (temp / TENSORS).write_bytes(b"x")
    newer = CheckpointStore(store.root, life={"restart": 1}, run="run1")
    seen = []

    def rmtree(path: Path, *, ignore_errors: bool = False) -> None:
        owner = json.loads((store.root / "LIFE").read_text())["nonce"]
        seen.append((owner, path.name, temp.exists()))
        remove(path, ignore_errors=ignore_errors)

    remove = shutil.rmtree
    monkeypatch.setattr(checkpoint.shutil, "rmtree", rmtree)
    newer.claim()
    ((owner, name, there),) = seen
    assert owner == newer.nonce
    assert newer.nonce in name, "it was not emptied under the name that its writer knows"
    assert not there
    assert names(newer) == []


def test_the_old_copy_is_looked_at_too(store: CheckpointStore) -> None:
    """A writer that dies between the two renames of an exchange leaves its only copy under a hidden name."""
    store.save(10, files(10))
    store.save(20, files(20))
    (store.root / "step-00000020").rename(store.root / ".old-step-00000020.other")
    loaded = store.load()
    assert loaded is not None
    assert (loaded.step, loaded.files) == (20, files(20))


def test_a_folder_of_another_run_is_refused(store: CheckpointStore) -> None:
    """Two runs never adopt each other's weights, whoever claims first and whatever is left of LIFE."""
    store.save(10, files(10))
    other = CheckpointStore(store.root, run="run2")
    with pytest.raises(CheckpointError, match="belongs to another run") as caught:
        other.claim()
    assert "run1" in str(caught.value)
    assert "trainer.checkpoint.root" in caught.value.hint
    (store.root / "LIFE").unlink()
    with pytest.raises(CheckpointError, match="step-00000010 there is of run run1"):
        other.load()
