"""Requests that concern several nodes, as operations: one generator for each kind.

An operation for one partition asks the partition's primary, and retries there or at the next
primary until the answer is neither "not primary" nor "unavailable". A request that must not be
executed twice is retried only if the first attempt was certainly not executed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import Final, Protocol

from msgspec import structs

from weft.dht import placement
from weft.dht.view import View
from weft.proto import wire
from weft.proto.idempotence import ONCE, refused_in_doubt

from .operation import Operation, Pause, Question, Said, Step
from .prefetch import cut

_Steps = Generator[Step, list[Said], Said]


class ClusterHost(Protocol):
    """The cluster as seen by an operation."""

    @property
    def node(self) -> str: ...
    @property
    def view(self) -> View: ...
    def alive(self, node: str) -> bool: ...
    def random(self, below: int) -> int: ...
    def is_ordered(self, queue: str) -> bool | None:
        """None: this node does not know the queue. A witness knows no queues."""
        ...

    def outage(self, number: int | None = None) -> str:
        """Why a partition (None: any) cannot be served until a dead node returns; "" if served."""
        ...

    @property
    def now(self) -> int: ...


#: How long an operation waits for a blocked partition: its node may be restarting.
OUTAGE_PATIENCE_US: Final = 3_000_000


def _given_up(cluster: ClusterHost, number: int, since: int) -> wire.Failure | None:
    """The failure of a request to a blocked partition, once OUTAGE_PATIENCE_US is over."""
    if cluster.now - since < OUTAGE_PATIENCE_US or not (outage := cluster.outage(number)):
        return None
    words = f"{outage}; the request may or may not have been executed"
    return wire.Failure("UNAVAILABLE", words, True)


def at_primary(
    cluster: ClusterHost, number: int, request: wire.AnyRequest, payload: Sequence[bytes] = ()
) -> _Steps:
    """Asks the primary of a partition; after a change of primary, asks the next one."""
    once, since = isinstance(request, ONCE), cluster.now
    while True:
        node = cluster.view.places[number].primary
        ((answer, frames),) = yield [Question(node, request, payload)]
        if not passes(answer) or (once and not _not_executed(answer)):
            return answer, frames
        if failure := _given_up(cluster, number, since):
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


def push(cluster: ClusterHost, request: wire.Push, payload: Sequence[bytes]) -> Operation:
    guess = False  # ordered or not, while this node does not know the queue
    since = cluster.now
    while True:
        number = place_of(cluster, request, guess)
        node = cluster.view.places[number].primary
        ((answer, frames),) = yield [Question(node, request, payload)]
        if not passes(answer):
            return answer, frames
        if failure := _given_up(cluster, number, since):
            return failure, ()
        guess ^= _not_primary(answer)
        yield Pause()


def place_of(cluster: ClusterHost, request: wire.Push | wire.Restore, guess: bool = False) -> int:
    """The partition of a push, or of a restored batch."""
    batch = request.kept if isinstance(request, wire.Restore) else request
    ordered = cluster.is_ordered(request.queue)
    return placement.of_push(
        request.queue, guess if ordered is None else ordered, batch.producer, batch.batch,
        batch.dedup_key, cluster.view.catalogue,
    )  # fmt: skip


def snapshot(cluster: ClusterHost, request: wire.Snapshot, payload: Sequence[bytes]) -> Operation:
    if not 0 <= request.partition < cluster.view.catalogue:
        words = f"partition must be 0 to {cluster.view.catalogue - 1}, not {request.partition}"
        return wire.Failure("INVALID_ARGUMENT", words, False), ()
    return (yield from at_primary(cluster, request.partition, request))


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
        if failure := _given_up(cluster, request.partition, since):
            return failure, ()
        doubt = doubt or not _not_executed(answer)
        yield Pause()


def restore(cluster: ClusterHost, request: wire.Restore, payload: Sequence[bytes]) -> Operation:
    since = cluster.now
    while True:
        number = place_of(cluster, request)
        ((answer, frames),) = yield [Question(cluster.view.places[number].primary, request)]
        if not passes(answer):
            return answer, frames
        if failure := _given_up(cluster, number, since):
            return failure, ()
        yield Pause()


def table(cluster: ClusterHost, request: wire.AnyRequest, payload: Sequence[bytes]) -> Operation:
    number = placement.of_text(request.key, cluster.view.catalogue)  # type: ignore[union-attr]
    return (yield from at_primary(cluster, number, request, payload))


def settle(
    cluster: ClusterHost, request: wire.Ack | wire.Nack | wire.Extend, payload: Sequence[bytes]
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
            if failure := _given_up(cluster, request.receipts[position].partition, since):
                return failure, ()
        if left:
            yield Pause()
    return wire.Settled(done, already, sorted(lost)), ()


def _with_receipts(
    request: wire.Ack | wire.Nack | wire.Extend, receipts: list[wire.Receipt]
) -> wire.AnyRequest:
    match request:
        case wire.Ack():
            return wire.Ack(request.queue, receipts)
        case wire.Nack():
            return wire.Nack(
                request.queue, receipts, request.delay_ms, request.reason, request.counted
            )
        case wire.Extend():
            return wire.Extend(request.queue, receipts, request.lease_ms)


def everywhere(cluster: ClusterHost, request: wire.AnyRequest) -> Generator[
    Step, list[Said], list[tuple[str, Said]]
]:  # fmt: skip
    """Asks every live node that may hold messages; a witness never does."""
    members = cluster.view.members
    nodes = [node for node in members if cluster.alive(node) and not members[node].witness]
    said = yield [Question(node, request) for node in nodes]
    return list(zip(nodes, said, strict=True))


def peek(cluster: ClusterHost, request: wire.Peek, payload: Sequence[bytes]) -> Operation:
    """The messages that every node would deliver next, oldest first."""
    lent: list[tuple[wire.Lent, bytes]] = []
    refused: Said | None = None
    for _, (answer, frames) in (yield from everywhere(cluster, request)):
        if isinstance(answer, wire.Peeked):
            lent += zip(answer.lent, frames, strict=True)
        elif isinstance(answer, wire.Failure) and not passes(answer):
            refused = answer, frames
    if refused is not None and not lent:
        return refused
    if request.delayed:
        lent.sort(key=lambda each: each[0].due_ms)
    else:
        lent.sort(key=lambda each: (-each[0].priority, each[0].pushed_ms))
    kept: list[tuple[wire.Lent, bytes]] = []
    count = request.limit
    for one, frame in lent:
        if count <= 0:
            break
        kept.append(cut(one, frame, count)[0] if one.count > count else (one, frame))
        count -= one.count
    return wire.Peeked([one for one, _ in kept]), [frame for _, frame in kept]


def list_queues(
    cluster: ClusterHost, request: wire.ListQueues, payload: Sequence[bytes]
) -> Operation:
    return (yield from _summed(cluster, request))


def describe(
    cluster: ClusterHost, request: wire.DescribeQueue, payload: Sequence[bytes]
) -> Operation:
    return (yield from _summed(cluster, request))


def _summed(cluster: ClusterHost, request: wire.ListQueues | wire.DescribeQueue) -> Operation:
    """The queues with counts summed over all nodes; each queue tells if its sum is partial."""
    found: dict[str, wire.QueueInfo] = {}
    more = False
    refused: Said | None = None
    counted: dict[str, int] = {}
    for node, (answer, frames) in (yield from everywhere(cluster, request)):
        if isinstance(answer, wire.Queues):
            more = more or answer.more
            counted[node] = answer.counted
            for info in answer.queues:
                known = found.get(info.name)
                found[info.name] = info if known is None else _sum(known, info)
        elif isinstance(answer, wire.Failure):
            refused = answer, frames
    if not found and refused is not None:
        return refused
    uncounted, missing = _uncounted(cluster.view, counted)
    queues = [
        structs.replace(found[name], uncounted_partitions=uncounted, missing_nodes=missing)
        for name in sorted(found)
    ]
    if isinstance(request, wire.ListQueues) and len(queues) > request.limit:
        queues, more = queues[: request.limit], True
    return wire.Queues(queues, more, _with_messages(cluster.view) - uncounted), ()


def _uncounted(view: View, counted: dict[str, int]) -> tuple[int, list[str]]:
    """The number of partitions that no answer counts, and their primaries without an answer.

    A partition can be without an active primary for a moment; then no node is missing.
    """
    silent = Counter(place.primary for place in view.places[:-1] if place.primary not in counted)
    if -1 in counted.values():  # a node of an older version
        uncounted = silent.total()
    else:
        uncounted = max(0, _with_messages(view) - sum(counted.values()))
    return uncounted, sorted(silent) if uncounted else []


def _with_messages(view: View) -> int:
    """The number of partitions with messages: all but the catalogue."""
    return len(view.places) - 1


def _sum(one: wire.QueueInfo, two: wire.QueueInfo) -> wire.QueueInfo:
    return wire.QueueInfo(
        one.name, one.settings, one.ready + two.ready, one.leased + two.leased,
        one.delayed + two.delayed, one.bytes + two.bytes, max(one.oldest_ms, two.oldest_ms),
        one.pushed + two.pushed, one.delivered + two.delivered, one.acked + two.acked,
        one.dead_lettered + two.dead_lettered, one.expired_leases + two.expired_leases,
        one.duplicates + two.duplicates, one.waiting_pops + two.waiting_pops,
        one.reserved + two.reserved, one.staged + two.staged,
        one.backlog_bytes + two.backlog_bytes,
    )  # fmt: skip


def redrive(cluster: ClusterHost, request: wire.Redrive, payload: Sequence[bytes]) -> Operation:
    """Asks one node after the other, to keep the limit."""
    moved = 0
    for node in [node for node in cluster.view.members if cluster.alive(node)]:
        limit = request.limit - moved if request.limit else 0
        if request.limit and limit <= 0:
            break
        ((answer, frames),) = yield [Question(node, wire.Redrive(request.queue, limit))]
        if isinstance(answer, wire.Done):
            moved += answer.count
        elif isinstance(answer, wire.Failure) and not passes(answer):
            return answer, frames
    return wire.Done(moved), ()


def catalogue(
    cluster: ClusterHost, request: wire.AnyRequest, payload: Sequence[bytes]
) -> Operation:
    """Changes a queue's record; answers when every live node has the change.

    A node that has not learned of a purge or delete would still accept pushes for the old queue:
    the pushes would be acknowledged, and their messages lost. So a purge or delete is answered only
    when every node that leads a partition, or may lead one at any moment, has the change.
    """
    held = 0
    empties = isinstance(request, wire.PurgeQueue | wire.DeleteQueue)
    if isinstance(request, wire.PurgeQueue | wire.DeleteQueue):
        said, _ = yield from _summed(cluster, wire.DescribeQueue(request.queue))
        if isinstance(said, wire.Queues):
            held = sum(info.ready + info.leased + info.delayed for info in said.queues)
    number = cluster.view.catalogue
    answer, frames = yield from at_primary(cluster, number, request)
    gone = isinstance(answer, wire.Failure) and answer.code == "QUEUE_NOT_FOUND"
    if isinstance(answer, wire.Failure) and not (gone and empties):
        return answer, frames
    yield from _known_everywhere(cluster, surely=empties)
    if isinstance(answer, wire.Done) and held:
        answer = wire.Done(max(held, answer.count))
    return answer, frames


def known_here(cluster: ClusterHost) -> Operation:
    """Waits until this node has applied everything that the catalogue has now."""
    said, frames = yield from at_primary(cluster, cluster.view.catalogue, wire.CatchUp())
    if not isinstance(said, wire.Done):
        return said, frames
    ((answer, frames),) = yield [Question(cluster.node, wire.CatchUp(said.count))]
    return answer, frames


def _known_everywhere(cluster: ClusterHost, *, surely: bool) -> Generator[Step, list[Said], None]:
    """Makes every node catch up with the present catalogue. `surely`: repeats until all nodes have
    confirmed, including silent nodes, as long as the view lets them lead."""
    said, _ = yield from at_primary(cluster, cluster.view.catalogue, wire.CatchUp())
    if not isinstance(said, wire.Done):
        return
    request = wire.CatchUp(said.count)
    heard = yield from everywhere(cluster, request)
    know = {node for node, (answer, _) in heard if isinstance(answer, wire.Done)}
    while surely and (left := sorted(_may_lead(cluster.view) - know)):
        yield Pause()
        answers = yield [Question(node, request) for node in left]
        known = zip(left, answers, strict=True)
        know |= {node for node, (answer, _) in known if isinstance(answer, wire.Done)}


def _may_lead(view: View) -> set[str]:
    return {node for place in view.places for node in place.sync}


def refreshed(
    cluster: ClusterHost, request: wire.AnyRequest, payload: Sequence[bytes]
) -> Operation:
    """Answers a request for an unknown queue after a catalogue sync: the queue may be new."""
    said, nothing = yield from known_here(cluster)
    if not isinstance(said, wire.Done):
        return said, nothing  # the sync failed: the queue may exist all the same
    ((answer, frames),) = yield [Question(cluster.node, request, payload, fresh=True)]
    return answer, frames


def status(
    cluster: ClusterHost, request: wire.ClusterStatus, payload: Sequence[bytes]
) -> Operation:
    """The view, with the state of each partition as reported by its primary."""
    whole: wire.ClusterInfo | None = None
    places: dict[int, wire.PlaceInfo] = {}
    nodes = [node for node in cluster.view.members if cluster.alive(node)]
    said = yield [Question(node, request) for node in nodes]
    for node, (answer, _) in zip(nodes, said, strict=True):
        if isinstance(answer, wire.ClusterInfo):
            if node == cluster.node:
                whole = answer
            for number, place in enumerate(answer.places):
                if place.role != "unknown" and place.sync[0] == node:
                    places[number] = place
    if whole is None:
        return wire.Failure("UNAVAILABLE", "this node is in no cluster yet", True), ()
    merged = [places.get(number, place) for number, place in enumerate(whole.places)]
    # A member without an answer counts as dead, even if its last message is recent.
    answered = {
        node
        for node, (answer, _) in zip(nodes, said, strict=True)
        if isinstance(answer, wire.ClusterInfo)
    }
    members = [
        structs.replace(each, alive=each.alive and each.node in answered) for each in whole.nodes
    ]
    return structs.replace(whole, nodes=members, places=merged), ()
