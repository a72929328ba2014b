"""One request and its response: a stream of HTTP/2, and the head of its request.

A head is parsed once for each distinct list of fields on a connection: calls of one kind share it,
together with the meaning that the layer above derives from it.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Final

from .hpack_table import HeaderField
from .http2_limits import STREAM_WINDOW

#: Fields of one connection, which HTTP/2 has no use for (RFC 9113, section 8.2.2).
_FORBIDDEN: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_REQUIRED: Final = (b":method", b":scheme", b":path")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_BAD_VALUE: Final = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z")
#: Digits of a content-length: more than any body has.
_LENGTH_DIGITS_MAX: Final = 18


class RequestHead:
    """The head of a request; `malformed` if RFC 9113, section 8.1.1, makes it a stream error."""

    __slots__ = ("content_length", "context", "fields", "malformed", "method", "path")

    def __init__(self, fields: tuple[HeaderField, ...]) -> None:
        pseudo: dict[bytes, bytes] = {}
        regular: list[HeaderField] = []
        #: The regular fields, in order; a varying field has an empty value (`HeaderBlock`).
        self.fields = regular
        self.content_length: int | None = None
        self.malformed = False
        for name, value in fields:
            if name[:1] != b":":
                regular.append((name, value))
                if not self._is_valid(name, value):
                    self.malformed = True
            elif regular or name in pseudo or name not in _PSEUDO or _BAD_VALUE.search(value):
                self.malformed = True
            else:
                pseudo[name] = value
        if not all(pseudo.get(name) for name in _REQUIRED):
            self.malformed = True
        self.method = pseudo.get(b":method", b"")
        self.path = pseudo.get(b":path", b"")
        #: What the layer above made of the head.
        self.context: Any = None

    def _is_valid(self, name: bytes, value: bytes) -> bool:
        if not is_valid(name, value):
            return False
        if name == b"te":
            return value == b"trailers"
        if name == b"content-length":
            if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
                return False
            self.content_length = int(value)
        return True


def are_valid_values(fields: tuple[HeaderField, ...]) -> bool:
    """True if the values of fields with valid names may stand in a request."""
    for _, value in fields:
        if not value.isalnum() and _BAD_VALUE.search(value) is not None:
            return False
    return True


def is_valid(name: bytes, value: bytes) -> bool:
    """True if a regular field may stand in a request or in its trailers."""
    return (
        _NAME.fullmatch(name) is not None
        and name not in _FORBIDDEN
        and _BAD_VALUE.search(value) is None
    )


class Http2Stream:
    """The state of one open stream.

    | state (section 5.1) | `ended` | `closed` |
    |---|---|---|
    | open | False | False |
    | half-closed (remote) | True | False |
    | closed | any | True |

    This end never half-closes alone: with its last frame it resets a stream that the client has not
    ended.
    """

    __slots__ = (
        "body_bytes",
        "chunks",
        "closed",
        "context",
        "ended",
        "head",
        "noted",
        "number",
        "queue",
        "responded",
        "send_window",
        "trailers",
        "varying",
        "window",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        head: RequestHead,
        varying: tuple[HeaderField, ...],
        send_window: int,
    ) -> None:
        self.number = number
        self.head = head
        #: The fields with another value in each request.
        self.varying = varying
        #: DATA that the layer above has not taken.
        self.chunks: list[bytes] = []
        self.body_bytes = 0
        #: The client has sent the last frame of the request.
        self.ended = False
        #: The stream was answered in full, or reset by either end. Nothing can be sent any more.
        self.closed = False
        #: Listed in the result of the current `receive`.
        self.noted = True
        #: Bytes that the client may still send, and bytes that this end may send.
        self.window = STREAM_WINDOW
        self.send_window = send_window
        #: The response's head was sent.
        self.responded = False
        #: Unsent DATA, if the windows have no room, and the trailers that follow.
        self.queue: deque[bytes | memoryview] | None = None
        self.trailers: tuple[HeaderField, ...] | None = None
        #: For the layer above.
        self.context: Any = None
