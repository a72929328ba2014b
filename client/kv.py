"""ZHT's verbs on the cluster's own hash table."""

from __future__ import annotations

from dataclasses import dataclass

from weft import limits
from weft.errors import InvalidArgument, TooLarge
from weft.proto import wire

from .batch import Body, text_bytes
from .session import Session


@dataclass(frozen=True, slots=True)
class Swap:
    """How a compare-and-swap ended. True when it swapped."""

    swapped: bool
    #: What stood there before; None when nothing did.
    current: bytes | None

    def __bool__(self) -> bool:
        return self.swapped


class KvCore:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def insert(self, key: str, value: Body, *, timeout_ms: int | None = None) -> None:
        """Sets the key's value, whatever stood there."""
        request = wire.Insert(key, _value(value))
        await self._session.ask(self._place(key), request, wire.Done, timeout_ms)

    async def lookup(self, key: str, *, timeout_ms: int | None = None) -> bytes | None:
        """The key's value; None when there is none."""
        place = self._place(key)
        return (await self._session.ask(place, wire.Lookup(key), wire.Value, timeout_ms)).value

    async def remove(self, key: str, *, timeout_ms: int | None = None) -> bool:
        """Whether there was something to remove."""
        place = self._place(key)
        return (await self._session.ask(place, wire.Remove(key), wire.Done, timeout_ms)).count > 0

    async def append(self, key: str, value: Body, *, timeout_ms: int | None = None) -> int:
        """Adds to the end of the value, without a read; the value's new length."""
        request = wire.Append(key, _value(value))
        return (await self._session.ask(self._place(key), request, wire.Done, timeout_ms)).count

    async def compare_and_swap(
        self, key: str, old: Body | None, new: Body | None, *, timeout_ms: int | None = None
    ) -> Swap:
        """Sets `new` if the value is `old`. None as `old` means absent, as `new` it removes."""
        before = None if old is None else _value(old)
        after = None if new is None else _value(new)
        request = wire.CompareAndSwap(key, before, after)
        answer = await self._session.ask(self._place(key), request, wire.Swapped, timeout_ms)
        return Swap(answer.swapped, answer.current)

    def _place(self, key: str) -> int:
        if not isinstance(key, str):
            raise InvalidArgument(f"a table key is a text, not {type(key).__name__}")
        limits.check_range("bytes of the key", text_bytes(key), 1, limits.TABLE_KEY_BYTES_MAX)
        return self._session.router.of_text(key)


def _value(value: Body) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidArgument(f"a table value is bytes, not {type(value).__name__}")
    value = bytes(value)
    if len(value) > limits.TABLE_VALUE_BYTES_MAX:
        raise TooLarge(
            f"a table value has at most {limits.TABLE_VALUE_BYTES_MAX} bytes, not {len(value)}"
        )
    return value
