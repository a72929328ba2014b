"""Requests that concern all nodes, as operations: each asks the nodes and joins their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

from msgspec import structs

from weft.dht.view import View
from weft.proto import wire

from .cluster_host import ClusterHost
from .operation import Operation, Question, Said, Step, operation_of
from .prefetch import cut
from .primary_operations import passes


def everywhere(cluster: ClusterHost, request: wire.AnyRequest) -> Generator[
    Step, list[Said], list[tuple[str, Said]]
]:  # fmt: skip
    """Asks every live node that may hold messages; a witness never does."""
    members = cluster.view.members
    nodes = [node for node in members if cluster.alive(node) and not members[node].witness]
    said = yield [Question(node, request) for node in nodes]
    return list(zip(nodes, said, strict=True))


@operation_of(wire.Peek)
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


@operation_of(wire.ListQueues, wire.DescribeQueue)
def queues(
    cluster: ClusterHost, request: wire.ListQueues | wire.DescribeQueue, payload: Sequence[bytes]
) -> Operation:
    return (yield from summed(cluster, request))


def summed(cluster: ClusterHost, request: wire.ListQueues | wire.DescribeQueue) -> Operation:
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
        one.backlog_bytes + two.backlog_bytes, topics=sorted({*one.topics, *two.topics}),
        probes=one.probes + two.probes, empty_probes=one.empty_probes + two.empty_probes,
        blocked_pops=one.blocked_pops + two.blocked_pops,
        blocked_us=one.blocked_us + two.blocked_us,
        full_buffers=one.full_buffers + two.full_buffers,
        room_wait_us=one.room_wait_us + two.room_wait_us,
        charged_us=one.charged_us + two.charged_us,
        charged_total_us=one.charged_total_us + two.charged_total_us,
        waiting=one.waiting + two.waiting,
    )  # fmt: skip


@operation_of(wire.Redrive)
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


@operation_of(wire.ClusterStatus)
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
        return wire.Failure(
            "UNAVAILABLE",
            "this node is not a member of its cluster yet: retry, or ask another node",
            True,
        ), ()
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
