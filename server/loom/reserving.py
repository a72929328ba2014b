"""Subscriptions over all nodes, as errands.

The subscription's ledger stands on one partition and decides; the messages are on all of them. A
reservation is made in five steps: the ledger begins an attempt; every node says what waits there;
all that is not newer than one stamp is marked, on all nodes; the ledger seals the list of the
marks; the client gets it. If anything goes wrong in between, the attempt is over: its marks can
never be sealed once another one has begun, and go back.

All partitions must be heard, or none is reserved from: whoever takes what the reachable ones have
gives an event-time watermark a reason to drop what the others hold.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from weft import limits
from weft.errors import InvalidArgument
from weft.proto import streams, wire
from weft.proto.streams import Reservation, Slice
from weft.server.engine import ledger

from .errand import Errand, Pause, Question, Said, Step
from .whole import Cluster, at_primary, everywhere, passes

#: How often the partitions are told by a client's own call; the ledger's node goes on after it.
TELL_MAX: Final = 5

_Steps = Generator[Step, list[Said], Said]


def led(cluster: Cluster, wanted: Sequence[int] | None = None) -> dict[str, list[int]]:
    """The partitions (all, or those wanted) by the node that leads them."""
    found: dict[str, list[int]] = {}
    places = cluster.view.places
    for number in range(cluster.view.catalogue) if wanted is None else wanted:
        found.setdefault(places[number].primary, []).append(number)
    return found


def _home(cluster: Cluster, queue: str, subscription: str) -> int:
    return ledger.home(queue, subscription, cluster.view.catalogue)


def at_home(
    cluster: Cluster,
    request: streams.OpenSubscription | streams.DescribeReservation | streams.Heartbeat,
    payload: Sequence[bytes],
) -> Errand:
    """What the ledger answers alone."""
    limits.check_name("a subscription", request.subscription)
    number = _home(cluster, request.queue, request.subscription)
    return (yield from at_primary(cluster, number, request))


# --- reserve ----------------------------------------------------------------------------------


class _Share(NamedTuple):
    """What one node is to mark."""

    node: str
    partitions: list[int]
    messages: int
    bytes: int


def reserve(cluster: Cluster, request: streams.Reserve, payload: Sequence[bytes]) -> Errand:
    _check(request)
    home = _home(cluster, request.queue, request.subscription)
    sure = False
    while True:
        begin = streams.BeginReserve(
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
                return streams.Reserved(None), ()
            sure = True
            continue
        attempt = yield from _attempt(cluster, request, token)
        if isinstance(attempt, wire.Failure):
            if not passes(attempt):
                return attempt, ()
            sure = True  # it may have marked something
            yield Pause()
            continue
        if attempt is None:
            return streams.Reserved(None), ()
        seal = streams.SealReservation(request.queue, request.subscription, token, attempt)
        return (yield from _seal(cluster, home, seal))


def _check(request: streams.Reserve) -> None:
    limits.check_name("a subscription", request.subscription)
    limits.check_range("number", request.number, 1, limits.NUMBER_MAX)
    limits.check_range("max_messages", request.max_messages, 1, limits.RESERVE_MESSAGES_MAX)
    limits.check_range("max_bytes", request.max_bytes, 1, limits.RESERVE_BYTES_MAX)


def _attempt(
    cluster: Cluster, request: streams.Reserve, token: int
) -> Generator[Step, list[Said], Reservation | wire.Failure | None]:
    """What one attempt has marked; None: there is nothing."""
    surveys = yield from _survey(cluster, request, token)
    if isinstance(surveys, wire.Failure):
        return surveys
    upto, shares = _plan(surveys, request.max_messages, request.max_bytes)
    held: list[streams.Held] = []
    while shares:
        said = yield [
            Question(
                share.node,
                streams.Mark(
                    request.queue, request.subscription, request.number, token, upto,
                    share.messages, share.bytes, share.partitions,
                ),
            )
            for share in shares
        ]  # fmt: skip
        left: list[_Share] = []
        for share, (answer, _) in zip(shares, said, strict=True):
            if not isinstance(answer, streams.Marked):
                return answer if isinstance(answer, wire.Failure) else _unexpected(answer)
            held += answer.held
            messages = share.messages - sum(each.messages for each in answer.held)
            size = share.bytes - sum(each.bytes for each in answer.held)
            if answer.more:
                left.append(_Share(share.node, share.partitions, messages, size))
        shares = left
    return _reservation(request.number, held) if held else None


def _survey(cluster: Cluster, request: streams.Reserve, token: int) -> Generator[
    Step, list[Said], list[tuple[str, list[int], streams.Surveyed]] | wire.Failure
]:  # fmt: skip
    """What waits on every node; all partitions are heard, in the time that the errand has."""
    while True:
        nodes = led(cluster)
        said = yield [
            Question(
                node,
                streams.Survey(
                    request.queue, request.subscription, request.number, token,
                    request.max_messages, request.max_bytes, partitions,
                ),
            )
            for node, partitions in nodes.items()
        ]  # fmt: skip
        surveys: list[tuple[str, list[int], streams.Surveyed]] = []
        for (node, partitions), (answer, _) in zip(nodes.items(), said, strict=True):
            if isinstance(answer, streams.Surveyed):
                surveys.append((node, partitions, answer))
            elif not passes(answer):
                return answer if isinstance(answer, wire.Failure) else _unexpected(answer)
        if len(surveys) == len(nodes):
            return surveys
        yield Pause()


def _plan(
    surveys: list[tuple[str, list[int], streams.Surveyed]], max_messages: int, max_bytes: int
) -> tuple[int, list[_Share]]:
    """The newest stamp to take, and how much that is on each node: the oldest there is, and no
    more than the limits; but something, if there is anything."""
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
        if one.entries == 1 and room > 0 and bytes_room > 0:  # it is taken in part
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


def _reservation(number: int, held: list[streams.Held]) -> Reservation:
    by_partition: dict[int, list[streams.Held]] = {}
    for each in held:
        by_partition.setdefault(each.partition, []).append(each)
    slices = [
        Slice(
            partition, sum(each.messages for each in some), sum(each.bytes for each in some),
            [(each.id, each.messages) for each in some],
        )
        for partition, some in sorted(by_partition.items())
    ]  # fmt: skip
    return Reservation(
        number, sum(one.messages for one in slices), sum(one.bytes for one in slices),
        min(each.oldest_ms for each in held), slices,
    )  # fmt: skip


def _seal(cluster: Cluster, home: int, seal: streams.SealReservation) -> _Steps:
    """Asked again until it is known; one that another attempt overtook is told so at once."""
    while True:
        node = cluster.view.places[home].primary
        ((answer, frames),) = yield [Question(node, seal)]
        if not passes(answer):
            return answer, frames
        yield Pause()


def _unexpected(answer: wire.AnyAnswer) -> wire.Failure:
    return wire.Failure("PROTOCOL", f"a node answered with {type(answer).__name__}", False)


# --- read -------------------------------------------------------------------------------------


def read(cluster: Cluster, request: streams.ReadReserved, payload: Sequence[bytes]) -> Errand:
    if not 0 <= request.partition < cluster.view.catalogue:
        raise InvalidArgument(f"there is no partition {request.partition}")
    return (yield from at_primary(cluster, request.partition, request))


# --- ack, release, delete ---------------------------------------------------------------------


def settle(
    cluster: Cluster,
    request: streams.AckThrough | streams.ReleaseAll | streams.DeleteSubscription,
    payload: Sequence[bytes],
) -> Errand:
    """The ledger first. Then the partitions; whatever cannot be reached is told later."""
    limits.check_name("a subscription", request.subscription)
    home = _home(cluster, request.queue, request.subscription)
    said, frames = yield from at_primary(cluster, home, request)
    if not isinstance(said, streams.Owed):
        return said, frames
    count = yield from pay(cluster, request.queue, request.subscription, said, TELL_MAX)
    return wire.Done(count), ()


def redrive(cluster: Cluster, queue: str, subscription: str, owed: streams.Owed) -> Errand:
    """What a ledger still owes, by its own node."""
    return wire.Done((yield from pay(cluster, queue, subscription, owed, 1))), ()


def pay(
    cluster: Cluster, queue: str, subscription: str, owed: streams.Owed, tries: int
) -> Generator[Step, list[Said], int]:
    """Tells the partitions what is acked and what goes back; how many messages that were."""
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
                question = Question(node, streams.Finish(queue, holds, acked))
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
        yield from at_primary(cluster, home, streams.Settle(queue, subscription, numbers))
    return count


# --- looking ----------------------------------------------------------------------------------


def stats(cluster: Cluster, request: streams.SubscriptionStats, payload: Sequence[bytes]) -> Errand:
    """The ledger's figures, with what waits in the queue on all nodes."""
    limits.check_name("a subscription", request.subscription)
    home = _home(cluster, request.queue, request.subscription)
    said, frames = yield from at_primary(cluster, home, request)
    if not isinstance(said, streams.Subscriptions):
        return said, frames
    return streams.Subscriptions((yield from _with_backlog(cluster, said.subscriptions))), ()


def listing(
    cluster: Cluster, request: streams.ListSubscriptions, payload: Sequence[bytes]
) -> Errand:
    found: dict[str, streams.SubscriptionInfo] = {}
    refused: Said | None = None
    for _, (answer, frames) in (yield from everywhere(cluster, request)):
        if isinstance(answer, streams.Subscriptions):
            for info in answer.subscriptions:
                known = found.get(info.subscription)
                if known is None or known.epoch <= info.epoch:
                    found[info.subscription] = info
        elif isinstance(answer, wire.Failure):
            refused = answer, frames
    if not found and refused is not None:
        return refused
    infos = [found[name] for name in sorted(found)]
    return streams.Subscriptions((yield from _with_backlog(cluster, infos))), ()


def _with_backlog(
    cluster: Cluster, infos: list[streams.SubscriptionInfo]
) -> Generator[Step, list[Said], list[streams.SubscriptionInfo]]:
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
        streams.SubscriptionInfo(
            one.queue, one.subscription, one.epoch, one.acked_through, one.reserved_through,
            one.ttl_ms, one.idle_ms, one.reservations, one.reserved_messages, one.reserved_bytes,
            one.reserved_oldest_ms, messages, size, oldest_ms,
        )
        for one in infos
    ]  # fmt: skip


# --- marks that may be nobody's ---------------------------------------------------------------


def judge(
    cluster: Cluster, queue: str, subscription: str, marks: list[tuple[int, int, int, int]]
) -> Errand:
    """Puts back, on this node, what is nobody's; says what is sealed."""
    home = _home(cluster, queue, subscription)
    request = streams.JudgeMarks(queue, subscription, marks)
    said, frames = yield from at_primary(cluster, home, request)
    if isinstance(said, streams.Judged) and said.dead:
        dead = [marks[position][:2] for position in said.dead]
        yield [Question(cluster.node, streams.Finish(queue, dead, False))]
    return said, frames
