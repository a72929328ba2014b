"""The operations of ZHT for synchronous callers.

`make facade` generates this module from `client/async_kv.py` and `client/kv_core.py`: do not edit
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft import limits

from .background_workers import BackgroundWorkers
from .kv_core import KvCore
from .kv_entry import KvEntry, KvPage, Swap
from .kv_watch import WatchOptions
from .producer.batch import Body
from .routing.session import ClientSession
from .thread_watch import KvWatch
from .transport.blocking_link import run


class Kv:
    """The operations of ZHT on the cluster's hash table.

        client.kv.insert("colour", b"blue")
        value = client.kv.lookup("colour")

    A key is a text of at most 1 KiB, a value is at most 4 MiB. A change is durable when the call
    returns. A write is executed once, however often the client has to send it. Every call raises
    InvalidArgument for a bad key, TooLarge for a value that is too long, and Unavailable if no node
    answers in time; then a write may or may not have been executed.
    """

    def __init__(self, session: ClientSession, open_: BackgroundWorkers) -> None:
        self._core = KvCore(session)
        self._open = open_

    def insert(
        self,
        key: str,
        value: Body,
        *,
        ttl_ms: int | None = None,
        if_version: int | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Sets the value of the key and replaces any old value; returns the new version.

            client.kv.insert("session/7", b"anna", ttl_ms=60_000)
            client.kv.insert("leader", b"node-1", if_version=0)

        With `ttl_ms` the key expires after so many milliseconds, and not before. With `if_version`
        the call raises VersionMismatch, and changes nothing, unless the key has this version; 0
        stands for an absent key.
        """
        return run(
            self._core.insert(
                key, value, ttl_ms=ttl_ms, if_version=if_version, timeout_ms=timeout_ms
            )
        )

    def lookup(self, key: str, *, timeout_ms: int | None = None) -> bytes | None:
        """Returns the value of the key; None if the key is absent."""
        return run(self._core.lookup(key, timeout_ms=timeout_ms))

    def lookup_entry(self, key: str, *, timeout_ms: int | None = None) -> KvEntry | None:
        """Returns the value of the key with its version; None if the key is absent.

        entry = client.kv.lookup_entry("leader")
        client.kv.remove("leader", if_version=entry.version)
        """
        return run(self._core.lookup_entry(key, timeout_ms=timeout_ms))

    def remove(
        self, key: str, *, if_version: int | None = None, timeout_ms: int | None = None
    ) -> bool:
        """Removes the key; returns True if the key existed.

        With `if_version` the call raises VersionMismatch, and changes nothing, if the key has
        another version or is absent.
        """
        return run(self._core.remove(key, if_version=if_version, timeout_ms=timeout_ms))

    def append(self, key: str, value: Body, *, timeout_ms: int | None = None) -> int:
        """Appends to the value without a read; returns the new length in bytes.

            length = client.kv.append("log", b"line")

        A key that expires keeps its time. Raises TooLarge if the value would exceed 4 MiB.
        """
        return run(self._core.append(key, value, timeout_ms=timeout_ms))

    def compare_and_swap(
        self, key: str, old: Body | None, new: Body | None, *, timeout_ms: int | None = None
    ) -> Swap:
        """Sets `new` if the value is `old`. `old` None means absent, `new` None removes the key.

        swap = client.kv.compare_and_swap("leader", None, b"node-1")
        if not swap:
            print("the leader is", swap.current)
        """
        return run(self._core.compare_and_swap(key, old, new, timeout_ms=timeout_ms))

    def insert_many(
        self, items: Mapping[str, Body], *, ttl_ms: int | None = None, timeout_ms: int | None = None
    ) -> None:
        """Sets many keys, with one request for each node; at most 10,000 keys and 8 MiB.

            client.kv.insert_many({"a": b"1", "b": b"2"}, ttl_ms=60_000)

        All keys of one partition are written, or none of them; different partitions are written
        independently. An error names keys whose outcome is not known.
        """
        run(self._core.insert_many(items, ttl_ms=ttl_ms, timeout_ms=timeout_ms))

    def lookup_many(
        self, keys: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, bytes]:
        """Returns the values of the keys that exist; at most 10,000 keys, and 8 MiB of values.

        colours = client.kv.lookup_many(["sky", "sea"])
        """
        return run(self._core.lookup_many(keys, timeout_ms=timeout_ms))

    def lookup_entries(
        self, keys: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, KvEntry]:
        """Returns the keys that exist, with values and versions; at most 10,000 keys."""
        return run(self._core.lookup_entries(keys, timeout_ms=timeout_ms))

    def remove_many(self, keys: Iterable[str], *, timeout_ms: int | None = None) -> int:
        """Removes many keys; returns the number of keys that existed.

            removed = client.kv.remove_many(["a", "b"])

        Partitions and errors are as for `insert_many`.
        """
        return run(self._core.remove_many(keys, timeout_ms=timeout_ms))

    def scan(
        self,
        prefix: str = "",
        *,
        limit: int = limits.TABLE_SCAN_DEFAULT,
        after: str = "",
        timeout_ms: int | None = None,
    ) -> KvPage:
        """Returns keys that begin with `prefix`, in order, with values and versions.

            page = client.kv.scan("session/", limit=100)
            while page.more:
                page = client.kv.scan("session/", limit=100, after=page.after)

        A page has at most `limit` entries (10,000 at most), and may have fewer if they are large.
        Every partition is read at a moment of its own: a key that exists throughout the scan is
        found, a key that is written meanwhile may be.
        """
        return run(self._core.scan(prefix, limit=limit, after=after, timeout_ms=timeout_ms))

    def watch(
        self, prefix: str = "", *, key: str | None = None, after: Mapping[int, int] | None = None
    ) -> KvWatch:
        """Watches all keys with a prefix, or one `key`; `after` is the position of another watch.

        for change in client.kv.watch("session/"):
            print(change.key, change.value, change.resync)
        """
        options = WatchOptions(prefix, key, after)
        return self._open.watch(options)
