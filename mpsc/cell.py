"""The memory layout of an item: a cell of whole words, one size for all cells of a queue.

    stamp (8 bytes) | length (8 bytes, only if sizes vary) | body | padding to a whole word

With one size an index is an address, and numpy can split a thousand cells at once: nothing below
touches items one by one except to cut variable bodies to length.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.errors import InvalidArgument, TooLarge

from .window import WORD_BYTES, words_of

_STAMP = struct.Struct("=q")
_STAMP_LENGTH = struct.Struct("=qq")

#: Cells as rows of words; the first is the stamp.
Records = npt.NDArray[np.int64]


class Cells:
    """The cell format of one queue."""

    def __init__(self, item_bytes: int, variable: bool) -> None:
        self._item_bytes = item_bytes
        self._variable = variable
        head = 2 * WORD_BYTES if variable else WORD_BYTES
        self._head = head
        self.words = words_of(head + item_bytes)
        self.bytes = self.words * WORD_BYTES
        names, formats, offsets = ["stamp", "body"], ["=i8", f"V{item_bytes}"], [0, head]
        if variable:
            names, formats, offsets = [*names, "length"], [*formats, "=i8"], [*offsets, WORD_BYTES]
        self._dtype: np.dtype[Any] = np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": self.bytes}
        )

    def check(self, item: bytes) -> None:
        """Raises an error if the item does not fit into a cell."""
        if len(item) > self._item_bytes:
            raise TooLarge(
                f"an item of {len(item)} bytes in a queue of item_bytes={self._item_bytes}: "
                "open the queue with larger cells, or split the item"
            )
        if not self._variable and len(item) != self._item_bytes:
            raise InvalidArgument(
                f"an item of {len(item)} bytes in a queue of fixed item_bytes={self._item_bytes}: "
                "open the queue with variable=True"
            )

    def pack(self, item: bytes, stamp: int) -> bytes:
        """One cell, without padding: only the used bytes are sent."""
        if self._variable:
            return _STAMP_LENGTH.pack(stamp, len(item)) + item
        return _STAMP.pack(stamp) + item

    def pack_many(self, items: Sequence[bytes], stamp: int) -> bytes:
        """Consecutive cells with consecutive stamps."""
        cells = np.zeros(len(items), self._dtype)
        cells["stamp"] = np.arange(stamp, stamp + len(items))
        if self._variable:
            cells["length"] = [len(item) for item in items]
            items = [item.ljust(self._item_bytes, b"\0") for item in items]
        cells["body"] = np.frombuffer(b"".join(items), dtype=f"V{self._item_bytes}")
        return cells.tobytes()

    def unpack(self, cell: bytes | bytearray) -> bytes:
        """The item of one cell."""
        size = _STAMP_LENGTH.unpack_from(cell)[1] if self._variable else self._item_bytes
        return bytes(cell[self._head : self._head + size])

    def view(self, raw: bytearray) -> Records:
        """Fetched cells as rows of words, without a copy: rows are cheap to sort and to join."""
        return np.frombuffer(raw, np.int64).reshape(-1, self.words)

    def bodies(self, records: Records) -> list[bytes]:
        """The items of records, in the order of the records."""
        if not len(records):
            return []
        cells = np.ascontiguousarray(records).view(self._dtype).reshape(-1)
        if not self._variable:
            fixed: list[bytes] = cells["body"].tolist()
            return fixed
        lengths = cells["length"]
        size = int(lengths[0])
        if size and (lengths == size).all():
            # Most programs send items of one size: then each item is cut out once, not twice.
            same: list[bytes] = cells.view(self._of_size(size))["body"].tolist()
            return same
        bodies: list[bytes] = cells["body"].tolist()
        sizes = lengths.tolist()
        return [body[:size] for body, size in zip(bodies, sizes, strict=True)]

    def _of_size(self, size: int) -> np.dtype[Any]:
        """The cell type of cells with bodies of one size."""
        return np.dtype(
            {
                "names": ["body"],
                "formats": [f"V{size}"],
                "offsets": [self._head],
                "itemsize": self.bytes,
            }
        )
