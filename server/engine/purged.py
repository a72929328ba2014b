"""Records of messages removed by a purge or a delete, for an undo by restore.

An acknowledged message and a purged message leave the same trace: none. A backup cannot distinguish
the two cases either, because the backup was taken before both. So the engine records every purged
message in the same write as the batch's new head. An undo (`backup.restore` with `purged_only`)
takes messages out of the record, in the same write as the restored batch.

Invariants:
- A message is in a record only if removed by a purge or a delete, and not in any batch.
- A restored message leaves the record, so a second undo does not restore the message again, even
  after an acknowledgement in between.

A record is a row of its partition's table, under a key never given to a client:
``\\0purged/SLICE/PRODUCER BATCH``, with the ranges of messages as its value. SLICE is the week of
the purge: a week's records expire together, found by one range scan. Rows are part of the
partition's state and move with the partition. A record costs some 80 bytes on disk for each purged
batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from weft.persistence import table_layout
from weft.persistence.overlay import Overlay

from . import message_set

PREFIX: Final = "\0purged/"
SLICE_US: Final = 7 * 24 * 3600 * 1_000_000
#: Whole weeks to keep a record after the week of the purge.
SLICES_KEPT: Final = 4

_decode = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_encode = msgspec.msgpack.Encoder().encode


def write(
    overlay: Overlay, now: int, partition: int, producer: int, batch: int, bits: int
) -> None:  # fmt: skip
    """Adds messages, as bits, to the record of a batch."""
    key = table_layout.key(partition, _name(now // SLICE_US, producer, batch))
    overlay.put(key, _encode(list(message_set.runs(bits | _read(overlay, key)))))


def take(
    overlay: Overlay, now: int, partition: int, producer: int, batch: int, wanted: int
) -> int:  # fmt: skip
    """Removes wanted messages from the records of a batch; returns the messages found."""
    taken = 0
    current = now // SLICE_US
    for number in range(max(0, current - SLICES_KEPT), current + 1):
        key = table_layout.key(partition, _name(number, producer, batch))
        found = _read(overlay, key)
        if not found & wanted:
            continue
        taken |= found & wanted
        if left := found & ~wanted:
            overlay.put(key, _encode(list(message_set.runs(left))))
        else:
            overlay.delete(key)
    return taken


def expired(overlay: Overlay, now: int, partition: int) -> Iterator[bytes]:
    """The keys of records older than `SLICES_KEPT`."""
    first_kept = max(0, now // SLICE_US - SLICES_KEPT)
    stop = table_layout.key(partition, f"{PREFIX}{first_kept:04x}")
    for key, _ in overlay.scan(table_layout.key(partition, PREFIX), stop):
        yield key


def _read(overlay: Overlay, key: bytes) -> int:
    data = overlay.read(key)
    return 0 if data is None else message_set.of_ranges(_decode(data))


def _name(number: int, producer: int, batch: int) -> str:
    return f"{PREFIX}{number:04x}/{producer:014x}{batch:010x}"
