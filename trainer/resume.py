"""How all ranks get the state that rank 0 reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer import state
from trainer.checkpoint import STATE, TENSORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trainer.checkpoint import CheckpointStore, Loaded, Skipped
    from trainer.control import Control

__all__ = ["find_checkpoint"]


def find_checkpoint(
    store: CheckpointStore, control: Control, nodes: Sequence[str], *, lead: bool
) -> tuple[tuple[dict[str, Tensor], dict[str, Any]] | None, tuple[Skipped, ...]]:
    """Rank 0 claims the run, reads and proves; the others get the very bytes that it proved.

    One reader: no herd on the file system, and no node whose cache still shows an older folder.

    Args:
        store: where the checkpoints are; only that of rank 0 is used.
        control: the agreement of the ranks.
        nodes: the node of each rank.
        lead: whether this is rank 0.

    Returns:
        Tensors and facts of the newest good checkpoint, or None where there is none at all; and, on
        rank 0, those that had to be skipped.

    Raises:
        CheckpointError: on every rank, if there are some and none is good.
    """
    loaded: Loaded | None = None
    with control.together(nodes):
        if lead:
            store.claim()
            loaded = store.load()
    if not control.broadcast(b"found" if loaded else b""):
        return None, ()
    files = {key: control.broadcast(loaded.files[key] if loaded else None) for key in (TENSORS, STATE)}
    with control.together(nodes):
        found = state.unpack(files)
    return found, loaded.skipped if loaded else ()
