"""Requests to the primaries of partitions, as operations: one generator for each kind.

An operation for one partition asks the partition's primary, and retries there or at the next
primary until the answer is neither "not primary" nor "unavailable". A request that must not be
executed twice is retried only if the first attempt was certainly not executed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from weft.proto import wire
from weft.proto.idempotence import ONCE, refused_in_doubt

from .cluster_host import ClusterHost
from .operation import Operation, Pause, Question, Said, Step, operation_of
from .routing import place_of, places

#: How long an operation waits for a blocked partition: its node may be restarting.
OUTAGE_PATIENCE_US: Final = 3_000_000

Steps = Generator[Step, list[Said], Said]


def given_up(cluster: ClusterHost, number: int, since: int) -> wire.Failure | None:
    """The failure of a request to a blocked partition, once OUTAGE_PATIENCE_US is over."""
    if cluster.now - since < OUTAGE_PATIENCE_US or not (outage := cluster.outage(number)):
        return None
    words = f"{outage}; the request may or may not have been executed"
    return wire.Failure("UNAVAILABLE", words, True)


def at_primary(
    cluster: ClusterHost, number: int, request: wire.AnyRequest, payload: Sequence[bytes] = ()
) -> Steps:
    """Asks the primary of a partition; after a change of primary, asks the next one."""
    once, since = type(request) in ONCE, cluster.now
    while True:
        node = cluster.view.places[number].primary
        ((answer, frames),) = yield [Question(node, request, payload)]
        if not passes(answer) or (once and not _not_executed(answer)):
            return answer, frames
        if failure := given_up(cluster, number, since):
            return failure, ()
        yield Pause()


def _not_executed(answer: wire.AnyAnswer) -> bool:
    """True if the failure proves that the node has changed nothing."""
    return isinstance(answer, wire.Failure) and answer.code in ("NOT_PRIMARY", "SHUTTING_DOWN")


def _not_primary(answer: wire.AnyAnswer) -> bool:
    return isinstance(answer, wire.Failure) and answer.code == "NOT_PRIMARY"


def passes(answer: wire.AnyAnswer) -> bool:
    """True if the failure is temporary, so that a retry makes sense."""
    return isinstance(answer, wire.Failure) and answer.code in (
        "NOT_PRIMARY", "UNAVAILABLE", "SHUTTING_DOWN", "CONNECTION_LOST",
    )  # fmt: skip


def at_its_primary(
    cluster: ClusterHost, request: wire.AnyRequest, payload: Sequence[bytes]
) -> Operation:
    """Asks the primary of the request's only partition: for verbs without their own operation."""
    numbers = places(cluster, request)
    if len(numbers) != 1:
        words = f"the request names {len(numbers)} partitions of this cluster instead of one"
        return wire.Failure("INVALID_ARGUMENT", words, False), ()
    return (yield from at_primary(cluster, numbers[0], request, payload))


@operation_of(wire.Push, wire.PushGroup, wire.PushTenant, wire.PushWaiting)
def push(cluster: ClusterHost, request: wire.Push, payload: Sequence[bytes]) -> Operation:
    guess = False  # ordered or not, while this node does not know the queue
    since = cluster.now
    while True:
        number = place_of(cluster, request, guess)
        node = cluster.view.places[number].primary
        ((answer, frames),) = yield [Question(node, request, payload)]
        if not passes(answer):
            return answer, frames
        if failure := given_up(cluster, number, since):
            return failure, ()
        guess ^= _not_primary(answer)
        yield Pause()


@operation_of(wire.Snapshot)
def snapshot(cluster: ClusterHost, request: wire.Snapshot, payload: Sequence[bytes]) -> Operation:
    if not 0 <= request.partition < cluster.view.catalogue:
        words = f"partition must be 0 to {cluster.view.catalogue - 1}, not {request.partition}"
        return wire.Failure("INVALID_ARGUMENT", words, False), ()
    return (yield from at_primary(cluster, request.partition, request))


@operation_of(wire.Cancel)
def cancel(cluster: ClusterHost, request: wire.Cancel, payload: Sequence[bytes]) -> Operation:
    if not 0 <= request.partition < cluster.view.catalogue:
        return wire.Done(0), ()  # no message of this cluster has such an id
    since, doubt = cluster.now, False
    while True:
        node = cluster.view.places[request.partition].primary
        ((answer, frames),) = yield [Question(node, request, payload)]
        if isinstance(answer, wire.Failure) and answer.code == "MESSAGE_LEASED" and doubt:
            return wire.Failure("UNAVAILABLE", refused_in_doubt(answer.message), True), ()
        if not passes(answer):
            return answer, frames
        if failure := given_up(cluster, request.partition, since):
            return failure, ()
        doubt = doubt or not _not_executed(answer)
        yield Pause()


@operation_of(wire.Restore, wire.RestoreWaiting)
def restore(cluster: ClusterHost, request: wire.Restore, payload: Sequence[bytes]) -> Operation:
    since = cluster.now
    while True:
        number = place_of(cluster, request)
        ((answer, frames),) = yield [Question(cluster.view.places[number].primary, request)]
        if not passes(answer):
            return answer, frames
        if failure := given_up(cluster, number, since):
            return failure, ()
        yield Pause()


@operation_of(wire.Ack, wire.Nack, wire.Move, wire.Extend)
def settle(
    cluster: ClusterHost,
    request: wire.Ack | wire.Nack | wire.Move | wire.Extend,
    payload: Sequence[bytes],
) -> Operation:
    """Sends each receipt to the primary of its partition; retries after temporary failures."""
    done = already = 0
    lost: list[int] = []
    since = cluster.now
    left = list(range(len(request.receipts)))
    while left:
        by_node: dict[str, list[int]] = {}
        for position in left:
            number = request.receipts[position].partition
            if not 0 <= number < cluster.view.catalogue:
                lost.append(position)
                continue
            by_node.setdefault(cluster.view.places[number].primary, []).append(position)
        said = yield [
            Question(node, _with_receipts(request, [request.receipts[n] for n in positions]))
            for node, positions in by_node.items()
        ]
        left = []
        for positions, (answer, frames) in zip(by_node.values(), said, strict=True):
            if isinstance(answer, wire.Settled):
                done += answer.done
                already += answer.already
                lost += [positions[n] for n in answer.lost]
            elif passes(answer):
                left += positions
            else:
                return answer, frames
        for position in left:
            if failure := given_up(cluster, request.receipts[position].partition, since):
                return failure, ()
        if left:
            yield Pause()
    return wire.Settled(done, already, sorted(lost)), ()


def _with_receipts(
    request: wire.Ack | wire.Nack | wire.Move | wire.Extend, receipts: list[wire.Receipt]
) -> wire.AnyRequest:
    match request:
        case wire.Ack():
            return wire.Ack(request.queue, receipts)
        case wire.Nack():
            return wire.Nack(
                request.queue, receipts, request.delay_ms, request.reason, request.counted
            )
        case wire.Move():
            return wire.Move(request.queue, receipts, request.to)
        case wire.Extend():
            return wire.Extend(request.queue, receipts, request.lease_ms)
