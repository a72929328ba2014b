"""Long work, a step per round: clearing away what a purge, a delete or time has killed.

Each of these is an iterator that the engine advances once per round, so that a million dead
messages cost each round a few milliseconds instead of stopping the node.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from weft.dht import placement
from weft.persistence import layout

from . import app as apps
from . import hold as holds
from . import ledger as ledgers
from . import stage
from .batch import Batch
from .dedup import expiry_slice
from .queue import Queue, created_of
from .state import State

#: Batches, parts or records per round.
STEP: Final = 500


def sweep(state: State, dead: Queue) -> Generator[None]:
    """Removes all that a dead queue holds, lent messages included.

    It is known to be dying from now on, not from the first step: a partition may be lost before.
    """
    state.dying.append(dead)
    return _sweep(state, dead)


def _sweep(state: State, dead: Queue) -> Generator[None]:
    for number, lease in enumerate(list(state.leases.by_nonce.values())):
        if lease.queue is dead and lease.nonce in state.leases.by_nonce:
            lease.mask = 0
            state.leases.end(lease, state.now)
            state.changed(lease.batch)
        if number % (10 * STEP) == 0:
            yield
    for number, entry in enumerate(dead.ids.drain()):
        batch, _ = state.part(entry)
        state.changed(batch)
        if number % STEP == 0:
            yield
    held = [hold for hold in state.holds.by_key.values() if hold.record.queue == dead.id]
    yield from holds.end(state, held, put_back=False)
    drop_ownerless(state, dead.created)
    state.dying.remove(dead)
    partition = placement.of_text(dead.name, state.partitions)
    if dead.settings.ordered and partition in state.led:
        state.overlay.delete(layout.leases(partition, dead.id))


def drop_ownerless(state: State, created: int | None = None) -> None:
    """Removes what subscriptions and apps had at queues that are no more (or at a certain one)."""

    def gone(queue: int) -> bool:
        return queue not in state.by_created and created in (None, queue)

    for ledger in [each for each in state.ledgers.values() if gone(each.queue)]:
        ledgers.drop(state, ledger)
    for app in [each for each in state.apps.values() if gone(each.queue)]:
        apps.drop(state, app)
    for key in [key for key in state.fences if gone(key[1])]:
        stage.drop_fence(state, key)
    for hold in list(state.holds.by_key.values()):
        if gone(created_of(hold.record.queue)) and not hold.pieces:
            holds.dissolve(state, hold)


def remove(state: State, garbage: list[Batch]) -> Generator[None]:
    """Removes batches that a restart found dead."""
    for number, batch in enumerate(garbage):
        batch.parts.clear()
        state.changed(batch)
        if number % STEP == 0:
            yield


def forget(state: State) -> Generator[None]:
    """Deletes the dedup records whose time slice has ended."""
    last = expiry_slice(state.now, 0) - 1
    number = 0
    for partition in sorted(state.led - {state.catalogue}):
        for kind in (layout.DEDUP, layout.DEDUP_KEY):
            for key, _ in state.overlay.scan(*layout.slice_range(kind, partition, last)):
                if partition not in state.led:
                    break  # another node's work now
                state.overlay.delete(key)
                number += 1
                if number % STEP == 0:
                    yield


def forget_strays(state: State) -> None:
    """The same in memory, for pushes to queues that this node does not know: most are deleted."""
    current = expiry_slice(state.now, 0)
    for created, pushes in list(state.stray_pushes.items()):
        kept = [pushed for pushed in pushes if pushed.expires >= current]
        if kept:
            state.stray_pushes[created] = kept
        else:
            del state.stray_pushes[created]


def retain(state: State, queue: Queue) -> Generator[None]:
    """Drops what is older than the queue's retention."""
    oldest = state.now - queue.settings.retention_ms * 1000
    number = 0
    while (entry := queue.ids.take_older(oldest)) is not None:
        batch, part = state.part(entry)
        queue.ready -= part.count
        queue.bytes -= batch.share(part.first, part.count)
        state.changed(batch)
        number += 1
        if number % STEP == 0:
            yield
