"""Argument checks of the public API: a wrong type or range raises InvalidArgument with the name.

Every public method of both clients checks its arguments here before it sends anything, so that the
client reports a mistake in the caller's own terms and not as an internal TypeError or as a refusal
by a node. The ranges are in `weft.limits`; nodes check them too.

`bool` is a subclass of `int` and is refused where a whole number is expected: `delay_ms=True` is a
mistake.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Final

from weft import limits
from weft.errors import InvalidArgument, TooLarge
from weft.ids import MessageId

#: Largest timeout of one call.
TIMEOUT_MS_MAX: Final = limits.DAY_MS

#: Longest time in seconds that a call waits for the application's own work.
WAIT_S_MAX: Final = limits.DAY_MS // 1000

_BYTES_TYPES: Final = (bytes, bytearray, memoryview)


def wrong_type(name: str, expected: str, value: object) -> InvalidArgument:
    return InvalidArgument(f"{name} must be {expected}, not {type(value).__name__}")


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Accepts a whole number from `low` to `high`."""
    if type(value) is not int and (not isinstance(value, int) or isinstance(value, bool)):
        raise wrong_type(name, "a whole number", value)
    if not low <= value <= high:
        shown = value if abs(value) < 1 << 64 else f"a number of {value.bit_length()} bits"
        raise InvalidArgument(f"{name} must be {low} to {high}, not {shown}")


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Accepts a number from `low` to `high`; fractions are allowed, NaN is not."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise wrong_type(name, "a number", value)
    if not low <= value <= high:  # also refuses NaN
        raise InvalidArgument(f"{name} must be {low} to {high}, not {value}")


def check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)


def check_text(name: str, value: object, low: int, high: int) -> None:
    """Accepts a text with a UTF-8 encoding of `low` to `high` bytes."""
    if not isinstance(value, str):
        raise wrong_type(name, "a text (str)", value)
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name} cannot be encoded as UTF-8: {error}") from None
    if not low <= size <= high:
        raise InvalidArgument(f"{name} must have {low} to {high} bytes, not {size}")


def check_queue_name(argument: str, value: object) -> None:
    """Accepts the name of a queue, a subscription or an app, which all have the same form."""
    if not isinstance(value, str):
        raise wrong_type(argument, "a text (str)", value)
    try:
        limits.check_queue_name(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"{argument}: {error.message}") from None


def check_timeout(value: object, name: str = "timeout_ms") -> None:
    check_integer(name, value, 1, TIMEOUT_MS_MAX)


def check_lease_ms(value: object) -> None:
    """0 stands for the queue's own lease_ms."""
    if type(value) is int and value == 0:
        return
    check_integer("lease_ms", value, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)


def check_push_options(delay_ms: object, priority: object) -> None:
    check_integer("delay_ms", delay_ms, 0, limits.DELAY_MS_MAX)
    check_integer("priority", priority, 0, limits.PRIORITY_MAX)


def check_callback(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise wrong_type(name, "a function or None", value)


def check_function(name: str, value: object) -> None:
    if not callable(value):
        raise wrong_type(name, "a function", value)


def check_iterable(name: str, value: object, of: str, *, also_async: bool = False) -> None:
    """Accepts any iterable except texts and bytes objects, which iterate over other elements."""
    if type(value) is list:  # the usual case, without the cost of abstract base classes
        return
    if isinstance(value, (str, *_BYTES_TYPES)):
        raise InvalidArgument(f"{name} must be an iterable of {of}, not a single {_kind(value)}")
    if isinstance(value, Iterable) or (also_async and isinstance(value, AsyncIterable)):
        return
    hint = ": use weft.aio for an async iterable" if isinstance(value, AsyncIterable) else ""
    raise InvalidArgument(f"{name} must be an iterable of {of}, not {type(value).__name__}{hint}")


def as_bytes(name: str, value: object, most: int, advice: str) -> bytes:
    """Converts bytes, a bytearray or a memoryview to bytes of at most `most`."""
    if type(value) is not bytes:
        if not isinstance(value, _BYTES_TYPES):
            hint = ": encode it, as in text.encode()" if isinstance(value, str) else ""
            raise InvalidArgument(f"{name} must be bytes, not {type(value).__name__}{hint}")
        value = bytes(value)
    if len(value) > most:
        raise TooLarge(f"{name} has at most {most} bytes, not {len(value)}: {advice}")
    return value


def as_message_id(name: str, value: object) -> MessageId:
    """Accepts a MessageId, or its text of 32 hexadecimal digits."""
    if isinstance(value, MessageId):
        return value
    if not isinstance(value, str):
        raise wrong_type(name, "a MessageId or its text", value)
    try:
        return MessageId.parse(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error.message}") from None


def check_server_list(value: object) -> None:
    if value is None or isinstance(value, str):
        return
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise wrong_type("servers", "a text or a list of texts, each HOST:PORT", value)


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else "bytes object"
