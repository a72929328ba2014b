"""The keys of deliveries between partitions (``layout.OUTBOX``) and of their marks."""

from __future__ import annotations

import struct

from .layout import CHANNEL_MARK, OUTBOX

_channel = struct.Struct(">cH")
_delivery = struct.Struct(">cHHQ")
_mark = struct.Struct(">cHH")


def channel(source: int) -> bytes:
    """The key of the name of a source's channel; it sorts before the source's deliveries."""
    return _channel.pack(OUTBOX, source)


def delivery(source: int, destination: int, number: int) -> bytes:
    return _delivery.pack(OUTBOX, source, destination, number)


def unpack_delivery(key: bytes) -> tuple[int, int]:
    """(destination, number)."""
    _, _, destination, number = _delivery.unpack(key)
    return destination, number


def channel_mark(destination: int, source: int) -> bytes:
    return _mark.pack(CHANNEL_MARK, destination, source)


def unpack_channel_mark(key: bytes) -> int:
    """The source."""
    return int(_mark.unpack(key)[2])
