"""Requests that concern more than this node, as errands: one generator for each kind.

Where one node is asked (the primary of a partition), it is asked again, or its successor, until
there is an answer that is not "not me" or "not now". What may not be done twice is asked again only
where it was surely not done.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from weft.dht import placement
from weft.dht.view import View
from weft.proto import wire

from .errand import Errand, Pause, Question, Said, Step
from .loot import cut

_Steps = Generator[Step, list[Said], Said]


class Cluster(Protocol):
    """What an errand knows of the cluster."""

    @property
    def node(self) -> str: ...
    @property
    def view(self) -> View: ...
    def alive(self, node: str) -> bool: ...
    def random(self, below: int) -> int: ...
    def is_ordered(self, queue: str) -> bool | None:
        """None: this node does not know the queue. A witness knows none."""
        ...

    @property
    def now(self) -> int: ...


def at_primary(
    cluster: Cluster, number: int, request: wire.AnyRequest, payload: Sequence[bytes] = ()
) -> _Steps:
    """Asks the node that leads a partition, whoever that comes to be."""
    once = isinstance(request, _ONCE)
    while True:
        node = cluster.view.places[number].primary
        ((answer, frames),) = yield [Question(node, request, payload)]
        if not passes(answer) or (once and not _not_primary(answer)):
            return answer, frames
        yield Pause()


#: Done twice, these do a second thing: they are asked again only if they were not done.
_ONCE = (wire.Append, wire.CompareAndSwap, wire.Remove, wire.DeleteQueue, wire.PurgeQueue)


def _not_primary(answer: wire.AnyAnswer) -> bool:
    return isinstance(answer, wire.Failure) and answer.code == "NOT_PRIMARY"


def passes(answer: wire.AnyAnswer) -> bool:
    """Whether it is worth asking again."""
    return isinstance(answer, wire.Failure) and answer.code in (
        "NOT_PRIMARY", "UNAVAILABLE", "SHUTTING_DOWN", "CONNECTION_LOST",
    )  # fmt: skip


def push(cluster: Cluster, request: wire.Push, payload: Sequence[bytes]) -> Errand:
    guess = False  # whether it is ordered, if this node does not know
    while True:
        node = cluster.view.places[place_of(cluster, request, guess)].primary
        ((answer, frames),) = yield [Question(node, request, payload)]
        if not passes(answer):
            return answer, frames
        guess ^= _not_primary(answer)
        yield Pause()


def place_of(cluster: Cluster, request: wire.Push | wire.Restore, guess: bool = False) -> int:
    """The partition of a push, or of a batch that is put back."""
    batch = request.kept if isinstance(request, wire.Restore) else request
    ordered = cluster.is_ordered(request.queue)
    return placement.of_push(
        request.queue, guess if ordered is None else ordered, batch.producer, batch.batch,
        batch.dedup_key, cluster.view.catalogue,
    )  # fmt: skip


def snapshot(cluster: Cluster, request: wire.Snapshot, payload: Sequence[bytes]) -> Errand:
    if not 0 <= request.partition < cluster.view.catalogue:
        words = f"partition must be 0 to {cluster.view.catalogue - 1}, not {request.partition}"
        return wire.Failure("INVALID_ARGUMENT", words, False), ()
    return (yield from at_primary(cluster, request.partition, request))


def restore(cluster: Cluster, request: wire.Restore, payload: Sequence[bytes]) -> Errand:
    while True:
        node = cluster.view.places[place_of(cluster, request)].primary
        ((answer, frames),) = yield [Question(node, request)]
        if not passes(answer):
            return answer, frames
        yield Pause()


def table(cluster: Cluster, request: wire.AnyRequest, payload: Sequence[bytes]) -> Errand:
    number = placement.of_text(request.key, cluster.view.catalogue)  # type: ignore[union-attr]
    return (yield from at_primary(cluster, number, request, payload))


def settle(
    cluster: Cluster, request: wire.Ack | wire.Nack | wire.Extend, payload: Sequence[bytes]
) -> Errand:
    """Each receipt goes to the node that leads its partition; those that fail are asked again."""
    done = already = 0
    lost: list[int] = []
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


def everywhere(cluster: Cluster, request: wire.AnyRequest) -> Generator[
    Step, list[Said], list[tuple[str, Said]]
]:  # fmt: skip
    """Every node that answers and may hold something of a queue: a witness never does."""
    members = cluster.view.members
    nodes = [node for node in members if cluster.alive(node) and not members[node].witness]
    said = yield [Question(node, request) for node in nodes]
    return list(zip(nodes, said, strict=True))


def peek(cluster: Cluster, request: wire.Peek, payload: Sequence[bytes]) -> Errand:
    """What every node would give next, oldest first."""
    lent: list[tuple[wire.Lent, bytes]] = []
    refused: Said | None = None
    for _, (answer, frames) in (yield from everywhere(cluster, request)):
        if isinstance(answer, wire.Peeked):
            lent += zip(answer.lent, frames, strict=True)
        elif isinstance(answer, wire.Failure) and not passes(answer):
            refused = answer, frames
    if refused is not None and not lent:
        return refused
    lent.sort(key=lambda each: (-each[0].priority, each[0].pushed_ms))
    kept: list[tuple[wire.Lent, bytes]] = []
    count = request.limit
    for one, frame in lent:
        if count <= 0:
            break
        kept.append(cut(one, frame, count)[0] if one.count > count else (one, frame))
        count -= one.count
    return wire.Peeked([one for one, _ in kept]), [frame for _, frame in kept]


def list_queues(cluster: Cluster, request: wire.ListQueues, payload: Sequence[bytes]) -> Errand:
    return (yield from _summed(cluster, request))


def describe(cluster: Cluster, request: wire.DescribeQueue, payload: Sequence[bytes]) -> Errand:
    return (yield from _summed(cluster, request))


def _summed(cluster: Cluster, request: wire.ListQueues | wire.DescribeQueue) -> Errand:
    """The queues with what all nodes together hold of them."""
    found: dict[str, wire.QueueInfo] = {}
    more = False
    refused: Said | None = None
    for _, (answer, frames) in (yield from everywhere(cluster, request)):
        if isinstance(answer, wire.Queues):
            more = more or answer.more
            for info in answer.queues:
                known = found.get(info.name)
                found[info.name] = info if known is None else _sum(known, info)
        elif isinstance(answer, wire.Failure):
            refused = answer, frames
    if not found and refused is not None:
        return refused
    queues = [found[name] for name in sorted(found)]
    if isinstance(request, wire.ListQueues) and len(queues) > request.limit:
        queues, more = queues[: request.limit], True
    return wire.Queues(queues, more), ()


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


def redrive(cluster: Cluster, request: wire.Redrive, payload: Sequence[bytes]) -> Errand:
    """Node after node, so that a limit holds."""
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


def catalogue(cluster: Cluster, request: wire.AnyRequest, payload: Sequence[bytes]) -> Errand:
    """A change of a queue itself; it is answered when every node that is there knows of it.

    Whoever has not heard that a queue was emptied would still take pushes for what it was before:
    they would be acknowledged, and be gone. So that is not answered before everyone knows it who
    leads a partition, or might at any moment.
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


def known_here(cluster: Cluster) -> Errand:
    """Until this node knows all that the catalogue has now."""
    said, frames = yield from at_primary(cluster, cluster.view.catalogue, wire.CatchUp())
    if not isinstance(said, wire.Done):
        return said, frames
    ((answer, frames),) = yield [Question(cluster.node, wire.CatchUp(said.count))]
    return answer, frames


def _known_everywhere(cluster: Cluster, *, surely: bool) -> Generator[Step, list[Said], None]:
    """Every node is told what the catalogue has now; `surely`: until all have said that they know,
    whoever is silent too, as long as the view lets them lead."""
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


def refreshed(cluster: Cluster, request: wire.AnyRequest, payload: Sequence[bytes]) -> Errand:
    """A request for a queue that this node does not know: perhaps it has not heard of it yet."""
    said, nothing = yield from known_here(cluster)
    if not isinstance(said, wire.Done):
        return said, nothing  # it still does not know: that is not to say that there is none
    ((answer, frames),) = yield [Question(cluster.node, request, payload, fresh=True)]
    return answer, frames


def status(cluster: Cluster, request: wire.ClusterStatus, payload: Sequence[bytes]) -> Errand:
    """The view, with what each primary says of its own partitions."""
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
    return (
        wire.ClusterInfo(
            whole.cluster, whole.version, whole.min_sync, whole.voters, whole.nodes, merged
        ),
        (),
    )
