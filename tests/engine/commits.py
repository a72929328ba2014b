"""Commits for the tests of the engine: their parts, and the delivery of their effects."""

from __future__ import annotations

import itertools
from typing import Any, Final

from tests.engine.rig import Rig, Taken, payload_of
from weft.dht import placement
from weft.ids import partition_of
from weft.proto import wire

PARTITIONS: Final = 4
names = itertools.count(1)


def new_rig(seed: int = 0) -> Rig:
    made = Rig(seed, partitions=PARTITIONS)
    made.create("in")
    made.create("out")
    return made


def key_of(partition: int, start: int = 0) -> str:
    keys = (f"key {number}" for number in itertools.count(start))
    return next(name for name in keys if placement.of_text(name, PARTITIONS) == partition)


def push_to(partition: int, queue: str = "out", body: bytes = b"x", **more: Any) -> wire.CommitPush:
    """A push that its name leads to a partition."""
    batch = next(n for n in names if partition_of(9, n, PARTITIONS) == partition)
    return wire.CommitPush(wire.Push(queue, 9, batch, 1, **more), payload_of([body]))


def acks(*messages: Taken) -> list[wire.CommitAck]:
    return [wire.CommitAck("in", [each.receipt for each in messages])] if messages else []


def taken(rig: Rig, count: int = 1) -> list[Taken]:
    rig.push("in", *(b"%d" % number for number in range(count)))
    return rig.pop("in", count)


def commit(
    rig: Rig,
    home: int,
    *messages: Taken,
    pushes: list[wire.CommitPush] | None = None,
    writes: list[wire.AnyWrite] | None = None,
    number: int = 0,
) -> wire.Committed:
    name = 5, number or next(names)
    answer = rig.call(wire.Commit(home, *name, acks(*messages), pushes or [], writes or []))
    assert isinstance(answer, wire.Committed)
    return answer


def value(rig: Rig, key: str) -> bytes | None:
    answer = rig.call(wire.Lookup(key))
    assert isinstance(answer, wire.Value)
    return answer.value


def deliver(rig: Rig, source: int) -> wire.Taken | None:
    """What the primary of a source does."""
    page = rig.call(wire.ReadOutbox(source))
    assert isinstance(page, wire.Outbox)
    if not page.partitions:
        return None
    queues = sorted({queue for each in page.queues for queue in each})
    answer = rig.call(
        wire.Deliver(source, page.channel, page.partitions, page.after, page.entries, queues)
    )
    assert isinstance(answer, wire.Taken)
    for destination, number in zip(page.partitions, answer.numbers, strict=True):
        rig.engine.commits.close(source, page.channel, destination, number)
    rig.round()
    return answer


def others(home: int) -> tuple[int, int]:
    return (home + 1) % PARTITIONS, (home + 2) % PARTITIONS


def put(partition: int, if_version: int = -1) -> wire.Put:
    return wire.Put(key_of(partition), b"v", 0, 0, 0, if_version)
