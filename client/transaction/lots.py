"""Lots: popped messages that fit in one transaction each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from weft.client import arguments
from weft.client.consumer.lease import ClientLease, LeasedBatch
from weft.client.consumer.message import BaseMessage
from weft.errors import InvalidArgument

M = TypeVar("M", bound=BaseMessage)


def lots(messages: Iterable[M]) -> list[list[M]]:
    """Splits popped messages into lists that fit in one transaction each, in their order.

        for lot in weft.lots(orders.pop_many(1000, wait_ms=1000)):
            with client.transaction() as tx:
                tx.ack_many(lot)
                tx.push_many("bills", [bill(message.body) for message in lot])

    A transaction acknowledges messages of one partition. The messages of one push are on one
    partition, so a lot has at least those of them that were popped together.
    """
    if isinstance(messages, LeasedBatch) and (whole := messages.whole()):
        return _lots_of(messages, whole)
    arguments.check_iterable("messages", messages, "messages")
    found: dict[int, list[M]] = {}
    for message in messages:
        if not isinstance(message, BaseMessage):
            raise InvalidArgument("messages must be messages of a pop")
        found.setdefault(message._lease.lent.partition, []).append(message)
    return list(found.values())


def _lots_of(messages: list[M], whole: Sequence[ClientLease]) -> list[list[M]]:
    """The lots of the unchanged result of a pop, without a look at each message."""
    parts: dict[int, tuple[list[ClientLease], list[M]]] = {}
    start = 0
    for lease in whole:
        stop = start + lease.lent.count
        named, part = parts.setdefault(lease.lent.partition, ([], []))
        named.append(lease)
        part += messages[start:stop]
        start = stop
    return [LeasedBatch(part, named) for named, part in parts.values()]
