"""A topic for synchronous callers.

`make facade` generates this module from `client/producer/multicast.py`: do not edit it.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.client.routing.session import ClientSession
from weft.client.transport.blocking_link import run
from weft.ids import MessageId
from weft.proto import wire

from .batch import Body, Headers
from .multicast import TopicCore


class Topic:
    """A handle for a topic, by name. The constructor sends no request; each method does."""

    def __init__(self, session: ClientSession, name: str) -> None:
        self._core = TopicCore(session, name)

    @property
    def name(self) -> str:
        return self._core.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.name}>"

    def push(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        dedup_key: str | None = None,
        conflict_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> dict[str, MessageId]:
        """Pushes one message to every bound queue whose filter the headers match: to all or none.

            ids = client.topic("prices").push(b"1.08", headers={"region": "eu"})

        Returns the id of the message in each queue; the mapping is empty if no queue matches, and
        then nothing is stored. The other arguments are those of `Client.multicast`. Raises
        TopicNotFound, QueueFull, InvalidArgument and TooLarge.
        """
        return run(
            self._core.push(
                body,
                headers=headers,
                key=key,
                delay_ms=delay_ms,
                priority=priority,
                dedup_key=dedup_key,
                conflict_key=conflict_key,
                timeout_ms=timeout_ms,
            )
        )

    def push_many(
        self,
        bodies: Iterable[Body],
        *,
        headers: Iterable[Headers | None] | None = None,
        keys: Iterable[str | None] | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        conflict_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[dict[str, MessageId]]:
        """Pushes many messages in few batches; each batch reaches all its queues, or none.

            ids = client.topic("prices").push_many([b"1.08", b"1.09"])

        Returns for each message its id in each queue. After an error, earlier batches are stored.
        Raises like `push`.
        """
        return run(
            self._core.push_many(
                bodies,
                headers=headers,
                keys=keys,
                delay_ms=delay_ms,
                priority=priority,
                conflict_key=conflict_key,
                timeout_ms=timeout_ms,
            )
        )

    def describe(self) -> wire.TopicInfo:
        """Returns the bound queues and their filters. Raises TopicNotFound."""
        return run(self._core.describe())
