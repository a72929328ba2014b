"""The operations of ZHT on the cluster's hash table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from weft import limits
from weft.errors import VersionMismatch
from weft.proto import wire
from weft.proto.key_pages import merged_page

from . import arguments, kv_batch
from .kv_entry import KvEntry, KvPage, Swap
from .producer.batch import Body
from .routing.session import ClientSession

A = TypeVar("A", bound=wire.Answer)


class KvCore:
    """The operations of ZHT on the cluster's hash table.

        await client.kv.insert("colour", b"blue")
        value = await client.kv.lookup("colour")

    A key is a text of at most 1 KiB, a value is at most 4 MiB. A change is durable when the call
    returns. A write is executed once, however often the client has to send it. Every call raises
    InvalidArgument for a bad key, TooLarge for a value that is too long, and Unavailable if no node
    answers in time; then a write may or may not have been executed.
    """

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def insert(
        self,
        key: str,
        value: Body,
        *,
        ttl_ms: int | None = None,
        if_version: int | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Sets the value of the key and replaces any old value; returns the new version.

            await client.kv.insert("session/7", b"anna", ttl_ms=60_000)
            await client.kv.insert("leader", b"node-1", if_version=0)

        With `ttl_ms` the key expires after so many milliseconds, and not before. With `if_version`
        the call raises VersionMismatch, and changes nothing, unless the key has this version; 0
        stands for an absent key.
        """
        data = _value(value)
        _check_key(key)
        request = wire.Put(key, data, *self._name(), _ttl(ttl_ms), _condition(if_version))
        answer = await self._session.ask(request, wire.KeyWritten, self._limit(timeout_ms))
        if not answer.done:
            raise _mismatch(key, if_version, answer.version)
        return answer.version

    async def lookup(self, key: str, *, timeout_ms: int | None = None) -> bytes | None:
        """Returns the value of the key; None if the key is absent."""
        _check_key(key)
        return (await self._session.ask(wire.Lookup(key), wire.Value, timeout_ms)).value

    async def lookup_entry(self, key: str, *, timeout_ms: int | None = None) -> KvEntry | None:
        """Returns the value of the key with its version; None if the key is absent.

        entry = await client.kv.lookup_entry("leader")
        await client.kv.remove("leader", if_version=entry.version)
        """
        _check_key(key)
        found = await self._entries([key], timeout_ms)
        return found.get(key)

    async def remove(
        self, key: str, *, if_version: int | None = None, timeout_ms: int | None = None
    ) -> bool:
        """Removes the key; returns True if the key existed.

        With `if_version` the call raises VersionMismatch, and changes nothing, if the key has
        another version or is absent.
        """
        _check_key(key)
        if if_version is not None:
            arguments.check_integer("if_version", if_version, 1, limits.NUMBER_MAX)
        request = wire.RemoveKey(key, *self._name(), _condition(if_version))
        answer = await self._session.ask(request, wire.KeyWritten, self._limit(timeout_ms))
        if not answer.done and if_version is not None:
            raise _mismatch(key, if_version, answer.version)
        return answer.done

    async def append(self, key: str, value: Body, *, timeout_ms: int | None = None) -> int:
        """Appends to the value without a read; returns the new length in bytes.

            length = await client.kv.append("log", b"line")

        A key that expires keeps its time. Raises TooLarge if the value would exceed 4 MiB.
        """
        data = _value(value)
        _check_key(key)
        request = wire.AppendKey(key, data, *self._name())
        return (await self._session.ask(request, wire.KeyWritten, self._limit(timeout_ms))).size

    async def compare_and_swap(
        self, key: str, old: Body | None, new: Body | None, *, timeout_ms: int | None = None
    ) -> Swap:
        """Sets `new` if the value is `old`. `old` None means absent, `new` None removes the key.

        swap = await client.kv.compare_and_swap("leader", None, b"node-1")
        if not swap:
            print("the leader is", swap.current)
        """
        before = None if old is None else _value(old, "old")
        after = None if new is None else _value(new, "new")
        _check_key(key)
        request = wire.SwapKey(key, before, after, *self._name())
        answer = await self._session.ask(request, wire.Swapped, self._limit(timeout_ms))
        return Swap(answer.swapped, answer.current, answer.version)

    async def insert_many(
        self,
        items: Mapping[str, Body],
        *,
        ttl_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets many keys, with one request for each node; at most 10,000 keys and 8 MiB.

            await client.kv.insert_many({"a": b"1", "b": b"2"}, ttl_ms=60_000)

        All keys of one partition are written, or none of them; different partitions are written
        independently. An error names keys whose outcome is not known.
        """
        keys, values = kv_batch.checked_items(items)
        ttl = _ttl(ttl_ms)
        if not keys:
            return
        name = self._name()

        def request_of(positions: Sequence[int] | None, numbers: list[int]) -> wire.InsertMany:
            if positions is None:
                return wire.InsertMany(numbers, keys, values, *name, ttl)
            some = [values[position] for position in positions]
            return wire.InsertMany(numbers, _some(keys, positions), some, *name, ttl)

        await self._by_node(keys, request_of, wire.KeysWritten, self._limit(timeout_ms))

    async def lookup_many(
        self, keys: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, bytes]:
        """Returns the values of the keys that exist; at most 10,000 keys, and 8 MiB of values.

        colours = await client.kv.lookup_many(["sky", "sea"])
        """
        distinct = kv_batch.checked_keys("keys", keys)
        found: dict[str, bytes] = {}
        for some, answer in await self._rows(distinct, timeout_ms):
            if None not in answer.values:
                found.update(zip(some, answer.values, strict=True))  # type: ignore[arg-type]
            else:
                rows = zip(some, answer.values, strict=True)
                found.update((key, value) for key, value in rows if value is not None)
        return found

    async def lookup_entries(
        self, keys: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, KvEntry]:
        """Returns the keys that exist, with values and versions; at most 10,000 keys."""
        return await self._entries(kv_batch.checked_keys("keys", keys), timeout_ms)

    async def remove_many(self, keys: Iterable[str], *, timeout_ms: int | None = None) -> int:
        """Removes many keys; returns the number of keys that existed.

            removed = await client.kv.remove_many(["a", "b"])

        Partitions and errors are as for `insert_many`.
        """
        distinct = kv_batch.checked_keys("keys", keys)
        if not distinct:
            return 0
        name = self._name()

        def request_of(positions: Sequence[int] | None, numbers: list[int]) -> wire.RemoveMany:
            return wire.RemoveMany(numbers, _some(distinct, positions), *name)

        ends = await self._by_node(distinct, request_of, wire.KeysWritten, self._limit(timeout_ms))
        return sum(sum(answer.done) for _, answer in ends)

    async def scan(
        self,
        prefix: str = "",
        *,
        limit: int = limits.TABLE_SCAN_DEFAULT,
        after: str = "",
        timeout_ms: int | None = None,
    ) -> KvPage:
        """Returns keys that begin with `prefix`, in order, with values and versions.

            page = await client.kv.scan("session/", limit=100)
            while page.more:
                page = await client.kv.scan("session/", limit=100, after=page.after)

        A page has at most `limit` entries (10,000 at most), and may have fewer if they are large.
        Every partition is read at a moment of its own: a key that exists throughout the scan is
        found, a key that is written meanwhile may be.
        """
        arguments.check_text("prefix", prefix, 0, limits.TABLE_KEY_BYTES_MAX)
        arguments.check_text("after", after, 0, limits.TABLE_KEY_BYTES_MAX)
        arguments.check_integer("limit", limit, 1, limits.TABLE_SCAN_MAX)
        deadline = self._session.deadline(timeout_ms)

        def request_of(numbers: list[int]) -> wire.ScanKeys:
            return wire.ScanKeys(numbers, prefix, after, limit)

        pages = await kv_batch.ask_every_node(
            self._session.router, request_of, wire.KeyPage, deadline
        )
        page = merged_page(pages, limit)
        rows = zip(page.keys, page.values, page.versions, strict=True)
        return KvPage([KvEntry(*row) for row in rows], page.after, page.more)

    async def _entries(self, keys: list[str], timeout_ms: int | None) -> dict[str, KvEntry]:
        return {
            key: KvEntry(key, value, version)
            for some, answer in await self._rows(keys, timeout_ms)
            for key, value, version in zip(some, answer.values, answer.versions, strict=True)
            if value is not None
        }

    async def _rows(
        self, keys: list[str], timeout_ms: int | None
    ) -> list[tuple[list[str], wire.FoundRows]]:
        def request_of(positions: Sequence[int] | None, numbers: list[int]) -> wire.LookupMany:
            return wire.LookupMany(numbers, _some(keys, positions))

        if not keys:
            return []
        ends = await self._by_node(keys, request_of, wire.FoundRows, timeout_ms)
        return [(_some(keys, positions), answer) for positions, answer in ends]

    async def _by_node(
        self,
        keys: list[str],
        request_of: kv_batch.RequestOf,
        expected: type[A],
        timeout_ms: int | None,
    ) -> list[tuple[Sequence[int], A]]:
        router, deadline = self._session.router, self._session.deadline(timeout_ms)
        return await kv_batch.ask_by_node(router, keys, request_of, expected, deadline)

    def _limit(self, timeout_ms: int | None) -> int:
        """The timeout of a write with a name."""
        return self._session.named_timeout_ms(timeout_ms)

    def _name(self) -> tuple[int, int]:
        """The name of a new write: a resend has the same name."""
        return self._session.producer, next(self._session.batches)


def _some(keys: list[str], positions: Sequence[int] | None) -> list[str]:
    if positions is None or len(positions) == len(keys):
        return keys
    return [keys[position] for position in positions]


def _mismatch(key: str, wanted: int | None, version: int) -> VersionMismatch:
    found = f"has version {version}" if version else "is absent, or has no version"
    return VersionMismatch(
        f"the key {key[:100]!r} {found}, not {wanted}: nothing was changed, look it up again"
    )


def _check_key(key: str) -> None:
    arguments.check_text("key", key, 1, limits.TABLE_KEY_BYTES_MAX)


def _ttl(ttl_ms: int | None) -> int:
    if ttl_ms is None:
        return 0
    arguments.check_integer("ttl_ms", ttl_ms, 1, limits.TABLE_TTL_MS_MAX)
    return ttl_ms


def _condition(if_version: int | None) -> int:
    if if_version is None:
        return -1
    arguments.check_integer("if_version", if_version, 0, limits.NUMBER_MAX)
    return if_version


def _value(value: Body, name: str = "value") -> bytes:
    return arguments.as_bytes(
        name, value, limits.TABLE_VALUE_BYTES_MAX, "split it over several keys"
    )
