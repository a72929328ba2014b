"""The operations of ZHT on the cluster's hash table."""

from __future__ import annotations

from dataclasses import dataclass

from weft import limits
from weft.proto import wire

from . import arguments
from .producer.batch import Body
from .routing.session import ClientSession


@dataclass(frozen=True, slots=True)
class Swap:
    """The result of a compare-and-swap; true if the value was swapped."""

    swapped: bool
    #: The value before; None if the key was absent.
    current: bytes | None

    def __bool__(self) -> bool:
        return self.swapped


class KvCore:
    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def insert(self, key: str, value: Body, *, timeout_ms: int | None = None) -> None:
        """Sets the value of the key and replaces any old value."""
        request = wire.Insert(key, _value(value))
        await self._session.ask(self._place(key), request, wire.Done, timeout_ms)

    async def lookup(self, key: str, *, timeout_ms: int | None = None) -> bytes | None:
        """Returns the value of the key; None if the key is absent."""
        place = self._place(key)
        return (await self._session.ask(place, wire.Lookup(key), wire.Value, timeout_ms)).value

    async def remove(self, key: str, *, timeout_ms: int | None = None) -> bool:
        """Removes the key; returns True if the key existed."""
        place = self._place(key)
        return (await self._session.ask(place, wire.Remove(key), wire.Done, timeout_ms)).count > 0

    async def append(self, key: str, value: Body, *, timeout_ms: int | None = None) -> int:
        """Appends to the value without a read; returns the new length in bytes."""
        request = wire.Append(key, _value(value))
        return (await self._session.ask(self._place(key), request, wire.Done, timeout_ms)).count

    async def compare_and_swap(
        self, key: str, old: Body | None, new: Body | None, *, timeout_ms: int | None = None
    ) -> Swap:
        """Sets `new` if the value is `old`. `old` None means absent, `new` None removes the key."""
        before = None if old is None else _value(old, "old")
        after = None if new is None else _value(new, "new")
        request = wire.CompareAndSwap(key, before, after)
        answer = await self._session.ask(self._place(key), request, wire.Swapped, timeout_ms)
        return Swap(answer.swapped, answer.current)

    def _place(self, key: str) -> int:
        arguments.check_text("key", key, 1, limits.TABLE_KEY_BYTES_MAX)
        return self._session.router.of_text(key)


def _value(value: Body, name: str = "value") -> bytes:
    return arguments.as_bytes(
        name, value, limits.TABLE_VALUE_BYTES_MAX, "split it over several keys"
    )
