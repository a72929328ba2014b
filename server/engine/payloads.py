"""Payload cache: the bodies of batches, read on demand by pops.

A push adds its payload to the cache, so a consumer with no lag never causes a disk read. Beyond
``bytes_max`` the oldest payloads are evicted, and read from the store when needed. A pop of a whole
batch gets the stored bytes unchanged. The first pop of a part decodes the batch into columns, and
the cache keeps the columns while consumers pop the rest of the batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from weft.proto import wire

from . import handle

#: Batches cached as columns: one per consumer popping a batch in small parts.
_COLUMNS_MAX: Final = 16


class Payloads:
    def __init__(self, load: Callable[[int], bytes], bytes_max: int) -> None:
        self._load = load
        self._bytes_max = bytes_max
        self._bytes = 0
        self._whole: OrderedDict[int, bytes] = OrderedDict()
        self._columns: OrderedDict[int, wire.Payload] = OrderedDict()

    def add(self, key: int, payload: bytes) -> None:
        self._whole[key] = payload
        self._bytes += len(payload)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._whole.popitem(last=False)[1])

    def drop(self, key: int) -> None:
        payload = self._whole.pop(key, None)
        if payload is not None:
            self._bytes -= len(payload)
        self._columns.pop(key, None)

    def drop_partitions(self, partitions: set[int]) -> None:
        """Drops all batches of some partitions."""
        for key in [key for key in self._whole if handle.split_key(key)[0] in partitions]:
            self._bytes -= len(self._whole.pop(key))
        for key in [key for key in self._columns if handle.split_key(key)[0] in partitions]:
            del self._columns[key]

    def whole(self, key: int) -> bytes:
        payload = self._whole.get(key)
        return self._load(key) if payload is None else payload

    def part(self, key: int, first: int, count: int) -> bytes:
        """The encoded payload of a range of a batch."""
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = wire.decode_payload(self.whole(key))
            if len(self._columns) > _COLUMNS_MAX:
                self._columns.popitem(last=False)
        stop = first + count
        return wire.encode(
            wire.Payload(
                columns.bodies[first:stop],
                columns.headers and columns.headers[first:stop],
                columns.keys and columns.keys[first:stop],
            )
        )
