"""The hash table for asyncio callers, with its watches."""

from __future__ import annotations

from collections.abc import Mapping

from .async_queue import Open
from .kv_core import KvCore
from .kv_watch import AsyncKvWatch, WatchOptions
from .routing.session import ClientSession


class AsyncKv(KvCore):
    """The operations of ZHT on the cluster's hash table.

        await client.kv.insert("colour", b"blue")
        value = await client.kv.lookup("colour")

    A key is a text of at most 1 KiB, a value is at most 4 MiB. A change is durable when the call
    returns. A write is executed once, however often the client has to send it. Every call raises
    InvalidArgument for a bad key, TooLarge for a value that is too long, and Unavailable if no node
    answers in time; then a write may or may not have been executed.
    """

    def __init__(self, session: ClientSession, open_: Open) -> None:
        super().__init__(session)
        self._open = open_

    def watch(
        self, prefix: str = "", *, key: str | None = None, after: Mapping[int, int] | None = None
    ) -> AsyncKvWatch:
        """Watches all keys with a prefix, or one `key`; `after` is the position of another watch.

        async for change in client.kv.watch("session/"):
            print(change.key, change.value, change.resync)
        """
        options = WatchOptions(prefix, key, after)
        return self._open.watch(self._session, options)
