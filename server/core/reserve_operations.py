"""Subscriptions over all nodes, as operations.

The subscription's ledger is on one partition and decides; the messages are on all partitions. A
reservation takes five steps: the ledger begins an attempt; every node reports its waiting messages;
all nodes mark the messages up to one stamp; the ledger seals the list of marks; the client gets the
list. If any step fails, the attempt is over: its marks can never be sealed once another attempt has
begun, and return to their queue.

All partitions must answer, or none is reserved from: a reservation from the reachable partitions
alone gives an event-time watermark a reason to drop the messages of the others.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from weft import limits
from weft.proto import pipelines, wire
from weft.proto.pipelines import ReservationInfo, SliceInfo
from weft.server.engine import ledger

from .cluster_host import ClusterHost
from .fanout import everywhere
from .operation import Operation, Pause, Question, Said, Step, operation_of
from .primary_operations import at_primary, passes

#: Rounds in which a client's own call informs the partitions; then the ledger's node continues.
TELL_MAX: Final = 5

_Steps = Generator[Step, list[Said], Said]


def led(cluster: ClusterHost, wanted: Sequence[int] | None = None) -> dict[str, list[int]]:
    """The partitions (all, or the wanted ones) by primary."""
    found: dict[str, list[int]] = {}
    places = cluster.view.places
    for number in range(cluster.view.catalogue) if wanted is None else wanted:
        found.setdefault(places[number].primary, []).append(number)
    return found


def _home(cluster: ClusterHost, queue: str, subscription: str) -> int:
    return ledger.home(queue, subscription, cluster.view.catalogue)


@operation_of(pipelines.OpenSubscription, pipelines.DescribeReservation, pipelines.Heartbeat)
def at_home(
    cluster: ClusterHost,
    request: pipelines.OpenSubscription | pipelines.DescribeReservation | pipelines.Heartbeat,
    payload: Sequence[bytes],
) -> Operation:
    """Asks the ledger, which answers alone."""
    limits.check_name("a subscription", request.subscription)
    number = _home(cluster, request.queue, request.subscription)
    return (yield from at_primary(cluster, number, request))


# --- reserve ----------------------------------------------------------------------------------


class _Share(NamedTuple):
    """The messages to mark on one node."""

    node: str
    partitions: list[int]
    messages: int
    bytes: int


@operation_of(pipelines.Reserve)
def reserve(
    cluster: ClusterHost, request: pipelines.Reserve, payload: Sequence[bytes]
) -> Operation:
    _check(request)
    home = _home(cluster, request.queue, request.subscription)
    sure = False
    while True:
        begin = pipelines.BeginReserve(
            request.queue, request.subscription, request.epoch, request.number, sure
        )
        said, frames = yield from at_primary(cluster, home, begin)
        if not isinstance(said, wire.Done):
            return said, frames
        token = said.count
        if not token:
            surveys = yield from _survey(cluster, request, token)
            if isinstance(surveys, wire.Failure):
                return surveys, ()
            if not any(survey.bins for _, _, survey in surveys):
                return pipelines.Reserved(None), ()
            sure = True
            continue
        attempt = yield from _attempt(cluster, request, token)
        if isinstance(attempt, wire.Failure):
            if not passes(attempt):
                return attempt, ()
            sure = True  # the attempt may have marked messages
            yield Pause()
            continue
        if attempt is None:
            return pipelines.Reserved(None), ()
        seal = pipelines.SealReservation(request.queue, request.subscription, token, attempt)
        return (yield from _seal(cluster, home, seal))


def _check(request: pipelines.Reserve) -> None:
    limits.check_name("a subscription", request.subscription)
    limits.check_range("number", request.number, 1, limits.NUMBER_MAX)
    limits.check_range("max_messages", request.max_messages, 1, limits.RESERVE_MESSAGES_MAX)
    limits.check_range("max_bytes", request.max_bytes, 1, limits.RESERVE_BYTES_MAX)


def _attempt(
    cluster: ClusterHost, request: pipelines.Reserve, token: int
) -> Generator[Step, list[Said], ReservationInfo | wire.Failure | None]:
    """Makes one attempt; returns the marks, or None if no message waits."""
    surveys = yield from _survey(cluster, request, token)
    if isinstance(surveys, wire.Failure):
        return surveys
    upto, shares = _plan(surveys, request.max_messages, request.max_bytes)
    held: list[pipelines.Held] = []
    while shares:
        said = yield [
            Question(
                share.node,
                pipelines.Mark(
                    request.queue, request.subscription, request.number, token, upto,
                    share.messages, share.bytes, share.partitions,
                ),
            )
            for share in shares
        ]  # fmt: skip
        left: list[_Share] = []
        for share, (answer, _) in zip(shares, said, strict=True):
            if not isinstance(answer, pipelines.Marked):
                return answer if isinstance(answer, wire.Failure) else _unexpected(answer)
            held += answer.held
            messages = share.messages - sum(each.messages for each in answer.held)
            size = share.bytes - sum(each.bytes for each in answer.held)
            if answer.more:
                left.append(_Share(share.node, share.partitions, messages, size))
        shares = left
    return _reservation(request.number, held) if held else None


def _survey(cluster: ClusterHost, request: pipelines.Reserve, token: int) -> Generator[
    Step, list[Said], list[tuple[str, list[int], pipelines.Surveyed]] | wire.Failure
]:  # fmt: skip
    """Surveys the waiting messages of every node; repeats until all partitions answer, within the
    lifetime of the operation."""
    while True:
        nodes = led(cluster)
        said = yield [
            Question(
                node,
                pipelines.Survey(
                    request.queue, request.subscription, request.number, token,
                    request.max_messages, request.max_bytes, partitions,
                ),
            )
            for node, partitions in nodes.items()
        ]  # fmt: skip
        surveys: list[tuple[str, list[int], pipelines.Surveyed]] = []
        for (node, partitions), (answer, _) in zip(nodes.items(), said, strict=True):
            if isinstance(answer, pipelines.Surveyed):
                surveys.append((node, partitions, answer))
            elif not passes(answer):
                return answer if isinstance(answer, wire.Failure) else _unexpected(answer)
        if len(surveys) == len(nodes):
            return surveys
        yield Pause()


def _plan(
    surveys: list[tuple[str, list[int], pipelines.Surveyed]], max_messages: int, max_bytes: int
) -> tuple[int, list[_Share]]:
    """The newest stamp to take, and the share of each node: the oldest messages, within the limits;
    but at least something, if anything waits."""
    bins = sorted(
        ((one.first, place, one) for place, each in enumerate(surveys) for one in each[2].bins),
        key=lambda each: each[:2],
    )
    messages = [0] * len(surveys)
    size = [0] * len(surveys)
    upto = 0
    for _, place, one in bins:
        room, bytes_room = max_messages - sum(messages), max_bytes - sum(size)
        if one.messages <= room and one.bytes <= bytes_room:
            upto = max(upto, one.last)
            messages[place] += one.messages
            size[place] += one.bytes
            continue
        if one.entries == 1 and room > 0 and bytes_room > 0:  # take a part of the entry
            upto = one.first
            messages[place] += room
            size[place] += bytes_room
        else:
            upto = max(bins[0][0], one.first - 1)
        break
    upto = min([upto, *(each[2].covers for each in surveys if each[2].covers)])
    return upto, [
        _Share(node, partitions, messages[place], size[place])
        for place, (node, partitions, _) in enumerate(surveys)
        if messages[place]
    ]


def _reservation(number: int, held: list[pipelines.Held]) -> ReservationInfo:
    by_partition: dict[int, list[pipelines.Held]] = {}
    for each in held:
        by_partition.setdefault(each.partition, []).append(each)
    slices = [
        SliceInfo(
            partition, sum(each.messages for each in some), sum(each.bytes for each in some),
            [(each.id, each.messages) for each in some],
        )
        for partition, some in sorted(by_partition.items())
    ]  # fmt: skip
    return ReservationInfo(
        number, sum(one.messages for one in slices), sum(one.bytes for one in slices),
        min(each.oldest_ms for each in held), slices,
    )  # fmt: skip


def _seal(cluster: ClusterHost, home: int, seal: pipelines.SealReservation) -> _Steps:
    """Repeats until the outcome is known; an attempt overtaken by another one fails at once."""
    while True:
        node = cluster.view.places[home].primary
        ((answer, frames),) = yield [Question(node, seal)]
        if not passes(answer):
            return answer, frames
        yield Pause()


def _unexpected(answer: wire.AnyAnswer) -> wire.Failure:
    return wire.Failure("PROTOCOL", f"a node answered with {type(answer).__name__}", False)


# --- read -------------------------------------------------------------------------------------


# --- ack, release, delete ---------------------------------------------------------------------


@operation_of(pipelines.AckThrough, pipelines.ReleaseAll, pipelines.DeleteSubscription)
def settle(
    cluster: ClusterHost,
    request: pipelines.AckThrough | pipelines.ReleaseAll | pipelines.DeleteSubscription,
    payload: Sequence[bytes],
) -> Operation:
    """Updates the ledger first, then the partitions; unreachable partitions follow later."""
    limits.check_name("a subscription", request.subscription)
    home = _home(cluster, request.queue, request.subscription)
    said, frames = yield from at_primary(cluster, home, request)
    if not isinstance(said, pipelines.Owed):
        return said, frames
    count = yield from pay(cluster, request.queue, request.subscription, said, TELL_MAX)
    return wire.Done(count), ()


def redrive(cluster: ClusterHost, queue: str, subscription: str, owed: pipelines.Owed) -> Operation:
    """Completes the decisions that a ledger still owes, on the ledger's own node."""
    return wire.Done((yield from pay(cluster, queue, subscription, owed, 1))), ()


def pay(
    cluster: ClusterHost, queue: str, subscription: str, owed: pipelines.Owed, tries: int
) -> Generator[Step, list[Said], int]:
    """Sends acks and releases to the partitions; returns the number of messages."""
    count = 0
    open_ = {(*hold, acked) for _, acked, holds in owed.debts for hold in holds}
    while open_ and tries:
        tries -= 1
        asked: list[tuple[Question, set[tuple[int, int, bool]]]] = []
        for acked in (True, False):
            wanted: dict[int, list[tuple[int, int]]] = {}
            for partition, hold, how in sorted(open_):
                if how == acked:
                    wanted.setdefault(partition, []).append((partition, hold))
            for node, partitions in led(cluster, list(wanted)).items():
                holds = [hold for partition in partitions for hold in wanted[partition]]
                question = Question(node, pipelines.Finish(queue, holds, acked))
                asked.append((question, {(*hold, acked) for hold in holds}))
        said = yield [question for question, _ in asked]
        for (_, holds_of), (answer, _) in zip(asked, said, strict=True):
            if isinstance(answer, wire.Done):
                count += answer.count
                open_ -= holds_of
        if open_ and tries:
            yield Pause()
    numbers = [
        number
        for number, acked, holds in owed.debts
        if not any((*hold, acked) in open_ for hold in holds)
    ]
    if numbers or not owed.debts:
        home = _home(cluster, queue, subscription)
        yield from at_primary(cluster, home, pipelines.Settle(queue, subscription, numbers))
    return count


# --- inspection -------------------------------------------------------------------------------


@operation_of(pipelines.DescribeSubscription)
def stats(
    cluster: ClusterHost, request: pipelines.DescribeSubscription, payload: Sequence[bytes]
) -> Operation:
    """The ledger's stats, with the queue's backlog on all nodes."""
    limits.check_name("a subscription", request.subscription)
    home = _home(cluster, request.queue, request.subscription)
    said, frames = yield from at_primary(cluster, home, request)
    if not isinstance(said, pipelines.Subscriptions):
        return said, frames
    return pipelines.Subscriptions((yield from _with_backlog(cluster, said.subscriptions))), ()


@operation_of(pipelines.ListSubscriptions)
def listing(
    cluster: ClusterHost, request: pipelines.ListSubscriptions, payload: Sequence[bytes]
) -> Operation:
    found: dict[str, pipelines.SubscriptionInfo] = {}
    refused: Said | None = None
    for _, (answer, frames) in (yield from everywhere(cluster, request)):
        if isinstance(answer, pipelines.Subscriptions):
            for info in answer.subscriptions:
                known = found.get(info.subscription)
                if known is None or known.epoch <= info.epoch:
                    found[info.subscription] = info
        elif isinstance(answer, wire.Failure):
            refused = answer, frames
    if not found and refused is not None:
        return refused
    infos = [found[name] for name in sorted(found)]
    return pipelines.Subscriptions((yield from _with_backlog(cluster, infos))), ()


def _with_backlog(
    cluster: ClusterHost, infos: list[pipelines.SubscriptionInfo]
) -> Generator[Step, list[Said], list[pipelines.SubscriptionInfo]]:
    if not infos:
        return infos
    messages = size = oldest_ms = 0
    request = wire.DescribeQueue(infos[0].queue)
    for _, (answer, _) in (yield from everywhere(cluster, request)):
        if isinstance(answer, wire.Queues):
            info = answer.queues[0]
            messages += info.ready
            size += info.backlog_bytes
            oldest_ms = max(oldest_ms, info.oldest_ms)
    return [
        pipelines.SubscriptionInfo(
            one.queue, one.subscription, one.epoch, one.acked_through, one.reserved_through,
            one.ttl_ms, one.idle_ms, one.reservations, one.reserved_messages, one.reserved_bytes,
            one.reserved_oldest_ms, messages, size, oldest_ms,
        )
        for one in infos
    ]  # fmt: skip


# --- marks that may have no owner -------------------------------------------------------------


def judge(
    cluster: ClusterHost, queue: str, subscription: str, marks: list[tuple[int, int, int, int]]
) -> Operation:
    """Releases marks without an owner, on this node; the answer names sealed marks."""
    home = _home(cluster, queue, subscription)
    request = pipelines.JudgeMarks(queue, subscription, marks)
    said, frames = yield from at_primary(cluster, home, request)
    if isinstance(said, pipelines.Judged) and said.dead:
        dead = [marks[position][:2] for position in said.dead]
        yield [Question(cluster.node, pipelines.Finish(queue, dead, False))]
    return said, frames
