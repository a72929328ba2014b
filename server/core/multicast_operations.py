"""Multicasts to several partitions, as operations (``engine.ordered_multicast`` has the protocol).

The node that leads the home of a multicast resolves its destinations, and asks the primary of the
coordinator, usually itself. That node makes attempts, each with a token of its own, until all
partitions have proposed in one of them. An operation that ends without a decision leaves its
attempt to the reconciler.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, Protocol, TypeVar

from weft.proto import wire
from weft.server.engine.destinations import Plan
from weft.server.engine.engine import Engine
from weft.server.engine.proposal import Pending

from .cluster_host import ClusterHost
from .operation import Operation, Pause, Question, Said, Step
from .primary_operations import OUTAGE_PATIENCE_US, at_primary, passes
from .topic_operations import AnyMulticast, ordered_enabled

T = TypeVar("T")

_TOKENS: Final = 1 << 62
_BUSY: Final = wire.Failure(
    "UNAVAILABLE",
    "the partitions of the multicast have not agreed in time: retry; a resend of the same push is "
    "stored once",
    True,
)  # fmt: skip


class MulticastHost(ClusterHost, Protocol):
    @property
    def engine(self) -> Engine: ...


def agree(host: MulticastHost, request: AnyMulticast, payload: Sequence[bytes]) -> Operation:
    """Asks the coordinator, on the node that leads the home of the multicast."""
    failure = yield from ordered_enabled(host)
    if failure is not None:
        return failure, ()
    since, outdated = host.now, True
    while True:
        if outdated:
            plan = host.destinations.plan(request, payload[0])
            if plan is None:
                return (yield from _no_destination(host, request))
            coordinate = _coordinate(plan, request)
        node = host.view.places[coordinate.partition].primary
        ((answer, frames),) = yield [Question(node, coordinate, payload)]
        # A queue was purged, or deleted and created again, since the plan. A plan with a queue that
        # does not exist any more raises the error.
        outdated = isinstance(answer, wire.Failure) and answer.code == "QUEUE_NOT_FOUND"
        if not (outdated or passes(answer)) or host.now - since >= OUTAGE_PATIENCE_US:
            return answer, frames
        yield Pause()


def _no_destination(host: MulticastHost, request: AnyMulticast) -> Operation:
    """No queue of the topic matches: true if this node still leads the home."""
    home = host.destinations.place_of(request) or 0
    ((said, frames),) = yield [Question(host.node, wire.JudgeMulticasts(home, home, []))]
    if isinstance(said, wire.Failure):
        return said, frames
    return wire.Multicasted(home, [], host.engine.durability), ()


def _coordinate(plan: Plan, request: AnyMulticast) -> wire.CoordinateMulticast:
    return wire.CoordinateMulticast(
        plan.home,
        [queue.name for queue in plan.queues],
        [queue.id for queue in plan.queues],
        [plan.ranges_of(position, request.count) for position in range(len(plan.queues))],
        plan.places,
        request.producer, request.batch, request.count, request.conflict_key,
    )  # fmt: skip


def coordinate(
    host: MulticastHost, request: wire.CoordinateMulticast, payload: Sequence[bytes]
) -> Operation:
    """Makes attempts until one is decided."""
    home, name, since = request.partition, (request.producer, request.batch), host.now
    unfinished = host.engine.unfinished
    while not unfinished.start_driving(home, *name):
        # A resend, while the first request is under way: wait for its result.
        if host.now - since >= OUTAGE_PATIENCE_US:
            return _BUSY, ()
        yield Pause()
    token = 0
    try:
        while True:
            while unfinished.is_attempted(home, *name):
                if host.now - since >= OUTAGE_PATIENCE_US:
                    return _BUSY, ()
                yield Pause()
            token = host.random(_TOKENS) + 1
            unfinished.start_attempt(home, token)
            said = yield from _attempt(host, request, token, payload)
            if said is not None:
                return said, ()
            unfinished.stop_attempt(home, *name, token)
            if host.now - since >= OUTAGE_PATIENCE_US:
                return _BUSY, ()
            yield Pause()
    finally:
        unfinished.stop_driving(home, *name, token)


def _attempt(
    host: MulticastHost, request: wire.CoordinateMulticast, token: int, payload: Sequence[bytes]
) -> Generator[Step, list[Said], wire.AnyAnswer | None]:
    """One attempt; returns the answer for the publisher, or None if another attempt may succeed."""
    home = request.partition
    others = sorted(set(request.places) - {home})
    name, queues = (request.producer, request.batch), _at(request, home, request.queues)
    asked = [home, *others]
    if host.engine.unfinished.knows_multicast(home, queues, *name):
        asked = [home]  # a resend: its answer only waits for the commit of the first one
    said = yield [
        Question(
            host.node if partition == home else host.view.places[partition].primary,
            _propose(request, partition, token, others),
            payload,
        )
        for partition in asked
    ]
    answers = [answer for answer, _ in said]
    proposed = [each for each in answers if isinstance(each, wire.Proposed)]
    stamps = [each.stamp for each in proposed if not each.known]
    if len(stamps) == 1 + len(others):
        decide = wire.DecideMulticast(home, token, max(stamps))
        ((decided, _),) = yield [Question(host.node, decide)]
        if isinstance(decided, wire.Failure):
            return decided
        return _answer(host, request, duplicate=False)
    if len(asked) == len(answers) == 1 and proposed and proposed[0].known:
        return _answer(host, request, duplicate=True)
    yield [Question(host.node, wire.AbandonMulticast(home, token, others))]
    if any(each.known for each in proposed):
        return _answer(host, request, duplicate=True)
    failures = [each for each in answers if isinstance(each, wire.Failure)]
    final = next((each for each in failures if not passes(each)), None)
    own = answers[0]
    if final is None and isinstance(own, wire.Failure) and own.code != "UNAVAILABLE":
        return own  # another node leads the coordinator now
    return final


def settle(host: ClusterHost, found: Sequence[Pending]) -> Operation:
    """Asks the coordinator about old proposals of one partition, and drops those without one."""
    first = found[0]
    coordinator, tokens = first.proposal.coordinator, [each.proposal.token for each in found]
    judge = wire.JudgeMulticasts(coordinator, first.partition, tokens)
    said, frames = yield from at_primary(host, coordinator, judge)
    if isinstance(said, wire.JudgedMulticasts) and said.gone:
        yield [Question(host.node, wire.DropMulticasts(first.partition, said.gone))]
    return said, frames


def _propose(
    request: wire.CoordinateMulticast, partition: int, token: int, others: list[int]
) -> wire.ProposeMulticast:
    return wire.ProposeMulticast(
        partition, request.partition, token,
        _at(request, partition, request.queues), _at(request, partition, request.ranges),
        request.producer, request.batch, request.count, request.conflict_key,
        others if partition == request.partition else [],
    )  # fmt: skip


def _at(request: wire.CoordinateMulticast, partition: int, column: Sequence[T]) -> list[T]:
    """What a column of the request says of the queues on a partition."""
    return [each for each, place in zip(column, request.places, strict=True) if place == partition]


def _answer(
    host: MulticastHost, request: wire.CoordinateMulticast, *, duplicate: bool
) -> wire.Multicasted:
    seen = dict.fromkeys(request.places, 0)
    copies: list[wire.QueueCopy] = []
    for name, ranges, place in zip(request.names, request.ranges, request.places, strict=True):
        first = seen[place] * request.count
        copies.append(
            wire.QueueCopy(name, request.producer, request.batch, first, ranges, duplicate, place)
        )
        seen[place] += 1
    return wire.Multicasted(request.partition, copies, host.engine.durability)
