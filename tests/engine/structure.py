"""Invariants between the engine's memory and its store after every round.

1. Every head has its body, and every body its head.
2. A touched batch is stored as it is in memory: the stored head equals the head in memory.
3. Every living message of a living queue is in exactly one place: in one list of its queue's
   MessageId queue, in one hold, in the mask of one lease, or it waits for others. Nothing else is
   in any of them.
4. A queue's counters (ready, leased, delayed, reserved, staged, waiting, bytes) equal the counted
   values.
5. A waiting pop is in three indexes (by number, by caller, in its queue), the same in all. A pop
   waits only at an empty queue or under backpressure; then its queue is marked as deferred.
6. When no background job is left, nothing of a dead queue is left either.
7. There is a record for each recorded lease, and for no other.
9. Proposals of multicasts are the same in memory and in the store, in no list, and a decided one
   waits only for a smaller one that conflicts.
8. Holds, ledgers, apps and fences are the same in memory and in the store, and no hold is empty.

A running redrive holds entries that it has examined and must put back, so 3 and 4 are checked again
at its end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec

from weft.persistence import layout
from weft.persistence.memory import MemoryStore
from weft.server.engine import head, hold, message_set
from weft.server.engine.batch import TouchedBatch
from weft.server.engine.groups import GroupQueue
from weft.server.engine.head import Head, Part
from weft.server.engine.hold import Hold
from weft.server.engine.message_id_queue import WHOLE, Handle, IdEntry
from weft.server.engine.proposal import Pending
from weft.server.engine.queue import QueueState
from weft.server.engine.state import EngineState

#: (batch key, queue id)
Home = tuple[int, int]


def check_structure(state: EngineState, store: MemoryStore) -> None:
    stored = dict(_heads(store))
    # A listed multicast keeps the record of its decision until the head's next write.
    heads = {
        key: each
        if each.proposal is None or find_proposal(state, key)
        else msgspec.structs.replace(each, proposal=None)
        for key, each in stored.items()
    }
    _check_bodies(store, heads)
    for key, batch in state.touched.items():
        assert key in heads, f"batch {Handle.split_key(key)} is in memory only"
        assert batch.stored() == heads[key], f"{batch.stored()} is stored as {heads[key]}"
    if not any(getattr(job, "__name__", "") == "_redrive" for job in state.jobs):
        _check_places(state, heads)
        for queue in state.queues.values():
            _check_counters(state, queue, heads)
    _check_waiters(state)
    _check_proposals(state, stored)
    if not state.jobs:
        _check_lease_records(state, store)
        _check_records(state, store)
        for key, each in heads.items():
            dead = [part for part in each.parts if part.queue not in state.by_id]
            waits = find_proposal(state, key) is not None  # removed when the proposal ends
            assert waits or not dead, f"{Handle.split_key(key)} still has {dead} of a dead queue"


def find_proposal(state: EngineState, key: int) -> Pending | None:
    partition, lsn = Handle.split_key(key)
    found = state.proposals.by_partition.get(partition, {}).values()
    return next((each for each in found if each.lsn == lsn), None)


def _check_proposals(state: EngineState, heads: dict[int, Head]) -> None:
    for each in state.proposals:
        stored = heads[Handle.key_of(each.partition, each.lsn)]
        assert stored == each.head, f"{stored} is {each.head} in memory"
        assert (
            each.head.stamp
            <= state.clocks.values[each.partition]
            <= (state.clocks.reserved[each.partition])
        ), "the clock is behind a proposal"
        if each.proposal.decided:
            others = state.proposals.by_partition[each.partition].values()
            assert any(
                other.head.stamp < each.head.stamp
                and other.keepers & each.keepers
                and (
                    None in (other.proposal.conflict_key, each.proposal.conflict_key)
                    or other.proposal.conflict_key == each.proposal.conflict_key
                )
                for other in others
            ), "a decided multicast waits for nothing"
    for key, found in heads.items():
        undecided = found.proposal is not None and not found.proposal.decided
        assert not undecided or find_proposal(state, key), f"{key} is an unknown proposal"


def _check_lease_records(state: EngineState, store: MemoryStore) -> None:
    stored = {key for key, _ in store.scan(*layout.kind_range(layout.LEASE))}
    known = {
        layout.lease(*Handle.split_key(lease.key), lease.nonce)
        for lease in state.leases.by_nonce.values()
        if lease.recorded
    }
    assert stored == known, f"{len(stored)} leases are recorded, and not {len(known)}"


def _check_records(state: EngineState, store: MemoryStore) -> None:
    found = {
        kind: [layout.unseal(*row, store.path) for row in store.scan(*layout.kind_range(kind))]
        for kind in (layout.HOLD, layout.SUBSCRIPTION, layout.RESERVATION, layout.FENCE)
    }
    assert all(hold.messages for hold in state.holds.by_key.values()), "an empty hold"
    stored = [hold.decode(record) for record in found[layout.HOLD]]
    assert sorted(map(str, stored)) == sorted(str(h.record) for h in state.holds.by_key.values())
    assert len(found[layout.SUBSCRIPTION]) == len(state.ledgers)
    sealed = [number for each in state.ledgers.values() for number in each.sealed]
    assert len(found[layout.RESERVATION]) == len(sealed)
    assert len(found[layout.FENCE]) == len(state.fences)


def _heads(store: MemoryStore) -> Iterator[tuple[int, Head]]:
    for key, record in store.scan(*layout.kind_range(layout.HEAD)):
        found = head.decode(layout.unseal(key, record, store.path))
        _check_head(found)
        yield Handle.key_of(*layout.unpack_batch(key)), found


def _check_head(found: Head) -> None:
    """Parts are disjoint, in order, inside the batch; a head without parts is not stored."""
    assert found.parts, found
    end = 0
    assert found.count == found.bodies * len(found.destinations), found
    for part in found.parts:
        assert part.count > 0, found
        assert part.first >= end, found
        end = part.first + part.count
        assert part.first // found.bodies == (end - 1) // found.bodies, "a part in two copies"
    assert end <= found.count, found


def _check_bodies(store: MemoryStore, heads: dict[int, Head]) -> None:
    bodies = {
        Handle.key_of(*layout.unpack_batch(key)): len(record) - 8
        for key, record in store.scan(*layout.kind_range(layout.BODY))
    }
    assert bodies == {key: each.size for key, each in heads.items()}, "heads and bodies differ"


def _check_places(state: EngineState, heads: dict[int, Head]) -> None:
    living: dict[Home, int] = {}
    for key, each in heads.items():
        for part in each.parts:
            if part.queue in state.by_id:
                home = key, part.queue
                living[home] = living.get(home, 0) | message_set.of_range(part.first, part.count)
    found: defaultdict[Home, int] = defaultdict(int)
    for home, bits in _places(state, heads):
        assert not found[home] & bits, f"{home} holds {bits:b} twice"
        found[home] |= bits
    assert found == living, "the lists and leases are not what the heads say"


def _places(state: EngineState, heads: dict[int, Head]) -> Iterator[tuple[Home, int]]:
    for queue in state.queues.values():
        assert state.by_id[queue.id] is queue
        assert state.by_created[queue.created] is queue
        for entry, _ in entries(queue):
            part = part_of(state, entry, heads)
            assert part.queue == queue.id, f"{queue.name} lists {part} of another queue"
            assert not part.hold, f"{queue.name} lists {part}, which is held"
            assert part.waits <= 0, f"{queue.name} lists {part}, which waits"
            yield (Handle.key(entry.handle), queue.id), message_set.of_range(part.first, part.count)
        for each, batch_handle, bits in held(state, queue):
            parts = [p for p in heads[Handle.key(batch_handle)].parts if p.hold == each.id]
            assert bits == message_set.of_ranges((p.first, p.count) for p in parts), (
                "not what it holds"
            )
            yield (Handle.key(batch_handle), queue.id), bits
        for batch, part in waiting(state, queue):
            yield (batch.key, queue.id), message_set.of_range(part.first, part.count)
    for pending in state.proposals:
        key = Handle.key_of(pending.partition, pending.lsn)
        for part in pending.head.parts:
            if part.queue in state.by_id:
                yield (key, part.queue), message_set.of_range(part.first, part.count)
    for nonce, lease in state.leases.by_nonce.items():
        assert lease.mask, "a lease of nothing"
        assert lease.batch.leases[nonce] is lease
        assert not lease.mask & ~message_set.of_range(lease.part.first, lease.part.count)
        if lease.queue.id in state.by_id:
            assert state.by_id[lease.queue.id] is lease.queue
            yield (lease.key, lease.queue.id), lease.mask


def held(state: EngineState, queue: QueueState) -> Iterator[tuple[Hold, int, int]]:
    """Messages of a queue in holds: the hold, the batch's handle, the bits of its messages."""
    for each in state.holds.by_key.values():
        if each.record.queue == queue.id:
            for batch_handle, bits in each.pieces.items():
                yield each, batch_handle, bits


def waiting(state: EngineState, queue: QueueState) -> Iterator[tuple[TouchedBatch, Part]]:
    """Waiting messages of a queue, one by one."""
    for name, batch in state.waiting_batches.by_name.items():
        partition, queue_id, producer, number = name
        assert state.touched[batch.key] is batch
        assert (partition, producer, number) == (
            Handle.partition(batch.handle), batch.head.producer, batch.head.batch
        )  # fmt: skip
        parts = [each for each in batch.parts.values() if each.waits > 0]
        assert all(part.count == 1 and batch.parts[part.first] is part for part in parts)
        found = [part for part in parts if part.queue == queue_id]
        assert found, f"{name} is in the index, and nothing of it waits"
        if queue_id == queue.id:
            yield from ((batch, part) for part in found)


def entries(queue: QueueState) -> Iterator[tuple[IdEntry, bool]]:
    """Every entry of a queue's lists, and whether it is delayed."""
    for level in queue.ids.levels:
        assert list(level.fresh) == sorted(level.fresh), "fresh batches are out of order"
        for batch_handle in level.fresh:
            yield IdEntry(batch_handle, WHOLE), False
        for entry in level.returned:
            yield entry, False
    if queue.groups is not None:
        yield from ((entry, False) for entry in queue.groups.entries())
    for _, _, entry in queue.ids._delayed:
        yield entry, True


def part_of(state: EngineState, entry: IdEntry, heads: dict[int, Head]) -> Part:
    batch = state.touched.get(Handle.key(entry.handle))
    if batch is None:  # untouched: described by its handle
        found = heads[Handle.key(entry.handle)]
        stamp, count = Handle.stamp(entry.handle), Handle.count(entry.handle)
        assert (stamp, count) == (found.stamp, found.bodies)
        if found.queues is not None:  # a whole copy of a multicast
            assert entry.first % found.bodies == 0
            (part,) = [part for part in found.parts if part.first == entry.first]
            assert part.count == found.bodies
            return part
        assert entry.first == WHOLE
        assert [part.count for part in found.parts] == [found.count]
        return found.parts[0]
    return batch.parts[max(0, entry.first)]


def _check_counters(state: EngineState, queue: QueueState, heads: dict[int, Head]) -> None:
    counted: Counter[str] = Counter(
        ready=0, leased=0, delayed=0, bytes=0, reserved=0, staged=0, waiting=0, held_bytes=0
    )
    for entry, delayed in entries(queue):
        part = part_of(state, entry, heads)
        batch = TouchedBatch(entry.handle, heads[Handle.key(entry.handle)])
        counted["delayed" if delayed else "ready"] += part.count
        counted["bytes"] += batch.share(part.first, part.count)
    for lease in state.leases.by_nonce.values():
        if lease.queue is queue:
            counted["leased"] += lease.mask.bit_count()
            counted["bytes"] += sum(lease.batch.share(*run) for run in message_set.runs(lease.mask))
    for each, batch_handle, bits in held(state, queue):
        counted["staged" if each.record.staged else "reserved"] += bits.bit_count()
        batch = TouchedBatch(batch_handle, heads[Handle.key(batch_handle)])
        size = sum(batch.share(*run) for run in message_set.runs(bits))
        counted["bytes"] += size
        counted["held_bytes"] += size
    for batch, part in waiting(state, queue):
        counted["waiting"] += part.count
        counted["bytes"] += batch.share(part.first, part.count)
        counted["held_bytes"] += batch.share(part.first, part.count)
    for pending in state.proposals:
        batch = TouchedBatch.load(pending.partition, pending.lsn, pending.head)
        for part in pending.head.parts:
            if part.queue == queue.id:
                counted["staged"] += part.count
                counted["bytes"] += batch.share(part.first, part.count)
                counted["held_bytes"] += batch.share(part.first, part.count)
    said = {name: getattr(queue, name) for name in counted}
    assert said == counted, f"{queue.name} says {said}, there are {dict(counted)}"
    if queue.groups is not None:
        _check_groups(state, queue, queue.groups, heads)


def _check_groups(
    state: EngineState, queue: QueueState, groups: GroupQueue, heads: dict[int, Head]
) -> None:
    """9. A group is blocked by its leases and its delayed entries; only open groups are takeable,
    and every lease of a grouped queue is recorded."""
    blocks: Counter[str] = Counter()
    ready: Counter[str] = Counter()
    for entry, delayed in entries(queue):
        name = heads[Handle.key(entry.handle)].group
        assert name, f"{entry} has no group"
        (blocks if delayed else ready)[name] += 1 if delayed else part_of(state, entry, heads).count
    for lease in state.leases.by_nonce.values():
        if lease.queue is queue:
            assert lease.recorded, "a lease of a group is not recorded"
            blocks[lease.batch.head.group or ""] += 1
    known = groups._groups.values()
    assert {each.name: each.blocks for each in known if each.blocks} == blocks
    assert {each.name: each.messages for each in known if each.messages} == ready
    assert groups.takeable == sum(count for name, count in ready.items() if not blocks[name])
    listed = {name for head, name in groups._heads if groups._groups.get(name) is not None}
    assert {name for name in ready if not blocks[name]} <= listed, "an open group is not listed"


def _check_waiters(state: EngineState) -> None:
    listed = [waiter for queue in state.queues.values() for waiter in queue.waiters]
    assert {waiter.number for waiter in listed} == set(state.waiters)
    assert {waiter.to for waiter in listed} == set(state.waiting)
    assert len(listed) == len(state.waiters)
    for queue in state.queues.values():
        assert all(waiter.queue is queue for waiter in queue.waiters)
        for waiter in queue.waiters if queue.has_some else ():
            ear = state.backpressure.blocked_peer(waiter.to)
            assert ear is not None, f"{queue.name}: somebody waits for what is there"
            assert queue.name in state.deferred[ear], f"{queue.name}: nobody will look again"
