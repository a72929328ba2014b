"""A queue from the client's side: every operation once, as a coroutine over any link.

A verb is in the module of its name: pushes in `producer/push.py`, pops in `consumer/pop.py`, acks,
nacks and extensions in `consumer/ack.py`. Here are the operations on the queue itself.

The asyncio client uses this class directly; the synchronous client runs the same coroutines over a
blocking link. The two differ in the message class that a pop creates.
"""

from __future__ import annotations

from weft import limits
from weft.ids import MessageId
from weft.proto import wire

from . import arguments
from .consumer.message import M
from .consumer.pop import QueuePops
from .producer.push import QueuePushes
from .routing.session import ClientSession
from .stats import QueueStats


class QueueCore(QueuePushes, QueuePops[M]):
    def __init__(self, session: ClientSession, name: str, make: type[M]) -> None:
        arguments.check_queue_name("name", name)
        self.name = name
        self._session = session
        self._make = make

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def breaks(self) -> int:
        """Increases with every lost connection: leases may be void."""
        return self._session.router.breaks

    @property
    def alone(self) -> bool:
        """True if the cluster has one node: no other node can answer."""
        return self._session.router.alone

    @property
    def quiet(self) -> bool:
        """True if no abandoned call can still hold a lease."""
        return self._session.router.quiet

    async def stats(self, *, timeout_ms: int | None = None) -> QueueStats:
        """Returns settings and message counts of the queue. Raises QueueNotFound."""
        request = wire.DescribeQueue(self.name)
        answer = await self._session.ask(request, wire.Queues, timeout_ms)
        return QueueStats.of(answer.queues[0])

    async def cancel(self, message_id: MessageId | str, *, timeout_ms: int | None = None) -> bool:
        """Removes a ready or delayed message, so that it is never delivered.

            later = await orders.push(b"reminder", delay_ms=3_600_000)
            await orders.cancel(later)

        Returns True if this call removed the message; False if the queue has no such message
        (acked, dropped or cancelled before, or in another queue). The client repeats a cancel
        without an answer: if the lost attempt removed the message, the result is False. Raises
        MessageLeased if a consumer or a subscription holds the message, and Unavailable if an
        earlier attempt may still remove it: call again then. A `dedup_key` of the message stays in
        the queue's window. Each cancel searches the queue's batches on one partition.
        """
        name = arguments.as_message_id("message_id", message_id)
        request = wire.Cancel(self.name, name.partition, name.producer, name.batch, name.index)
        partitions = self._session.router.partitions
        if name.partition >= partitions:
            return False  # the id is not from this cluster
        answer = await self._session.ask(request, wire.Done, timeout_ms)
        return answer.count > 0

    async def purge(self, *, timeout_ms: int | None = None) -> int:
        """Deletes every message, leased ones too; returns their number. Raises QueueNotFound."""
        request = wire.PurgeQueue(self.name)
        return (await self._session.ask(request, wire.Done, timeout_ms)).count

    async def redrive(self, limit: int = 0, *, timeout_ms: int | None = None) -> int:
        """Moves up to `limit` dead letters (0: all) to their original queues; returns a count.

            moved = await client.queue("orders.dead").redrive(100)

        Raises InvalidArgument and QueueNotFound.
        """
        arguments.check_integer("limit", limit, 0, limits.NUMBER_MAX)
        request = wire.Redrive(self.name, limit)
        return (await self._session.ask(request, wire.Done, timeout_ms)).count
