"""Where everything is in the store. This is the only file that knows a key's bytes.

| key                                              | value                                  |
|--------------------------------------------------|----------------------------------------|
| ``h`` partition(2) lsn(8)                        | a batch's head: small, changes         |
| ``b`` partition(2) lsn(8)                        | a batch's payload: large, never changes|
| ``d`` slice(4) partition(2) queue(8) producer(7) batch(5) | dedup: a batch that is gone   |
| ``e`` slice(4) partition(2) queue(8) dedup key   | dedup: a dedup key that is gone        |
| ``l`` partition(2) lsn(8)                        | an entry of a partition's log          |
| ``n`` name                                       | the node's own: view, vote, boot       |
| ``p`` partition(2)                               | a partition's own state                |
| ``q`` queue name                                 | a queue's record                       |
| ``t`` partition(2) key                           | a value of the hash table              |

Numbers are big-endian, so keys sort as the numbers do. Heads stand apart from payloads, so a
restart reads only heads: it costs what is waiting in number, not in bytes. A batch's dedup entry
is its head while it lives, and becomes a ``d`` record when the last message is acked; entries are
grouped by time slice, so that a whole slice expires with one range scan.

Every value is a *record*: an xxh3-64 checksum of (key, data), then the data. The key is in the sum,
so a value that stands under a wrong key is caught too.
"""

from __future__ import annotations

import struct

import xxhash

from weft.errors import StoreDamaged

HEAD, BODY, DEDUP, DEDUP_KEY, PARTITION, QUEUE, TABLE = b"h", b"b", b"d", b"e", b"p", b"q", b"t"
LOG, NODE = b"l", b"n"

_batch = struct.Struct(">cHQ")
_dedup = struct.Struct(">cIHQ7s5s")
_dedup_key = struct.Struct(">cIHQ")
_small = struct.Struct(">cH")
_sum = struct.Struct(">Q")
_hash = xxhash.xxh3_64_intdigest


def head(partition: int, lsn: int) -> bytes:
    return _batch.pack(HEAD, partition, lsn)


def body(partition: int, lsn: int) -> bytes:
    return _batch.pack(BODY, partition, lsn)


def unpack_batch(key: bytes) -> tuple[int, int]:
    """(partition, lsn) of a head's or a body's key."""
    _, partition, lsn = _batch.unpack(key)
    return partition, lsn


def log(partition: int, lsn: int) -> bytes:
    return _batch.pack(LOG, partition, lsn)


def unpack_log(key: bytes) -> int:
    """The lsn."""
    return int(_batch.unpack(key)[2])


def log_range(partition: int) -> tuple[bytes, bytes]:
    """The scan bounds of one partition's log."""
    return _small.pack(LOG, partition), _small.pack(LOG, partition) + b"\xff" * 9


def node(name: str) -> bytes:
    """What a node keeps about itself."""
    return NODE + name.encode()


def dedup(time_slice: int, partition: int, queue: int, producer: int, batch: int) -> bytes:
    return _dedup.pack(
        DEDUP, time_slice, partition, queue, producer.to_bytes(7, "big"), batch.to_bytes(5, "big")
    )


def unpack_dedup(key: bytes) -> tuple[int, int, int, int, int]:
    """(slice, partition, queue, producer, batch)."""
    _, time_slice, partition, queue, producer, batch = _dedup.unpack(key)
    return (
        time_slice,
        partition,
        queue,
        int.from_bytes(producer, "big"),
        int.from_bytes(batch, "big"),
    )


def dedup_key(time_slice: int, partition: int, queue: int, key: str) -> bytes:
    return _dedup_key.pack(DEDUP_KEY, time_slice, partition, queue) + key.encode()


def unpack_dedup_key(key: bytes) -> tuple[int, int, int, str]:
    """(slice, partition, queue, dedup key)."""
    _, time_slice, partition, queue = _dedup_key.unpack_from(key)
    return time_slice, partition, queue, key[_dedup_key.size :].decode()


def slice_range(kind: bytes, time_slice: int) -> tuple[bytes, bytes]:
    """All dedup records of slices up to and with this one."""
    return kind, kind + (time_slice + 1).to_bytes(4, "big")


def partition(number: int) -> bytes:
    return _small.pack(PARTITION, number)


def unpack_partition(key: bytes) -> int:
    _, number = _small.unpack(key)
    return int(number)


def queue(name: str) -> bytes:
    return QUEUE + name.encode()


def table(partition_number: int, key: str) -> bytes:
    return _small.pack(TABLE, partition_number) + key.encode()


def kind_range(kind: bytes) -> tuple[bytes, bytes]:
    """The scan bounds of everything of one kind."""
    return kind, bytes([kind[0] + 1])


def seal(key: bytes, data: bytes) -> bytes:
    """The record that holds ``data`` under ``key``."""
    return _sum.pack(_hash(data, _hash(key))) + data


def unseal(key: bytes, record: bytes, path: str) -> memoryview:
    """The data of a record; raises StoreDamaged when a single bit of it has changed."""
    data = memoryview(record)[_sum.size :]
    if len(record) < _sum.size or _sum.unpack_from(record)[0] != _hash(data, _hash(key)):
        raise StoreDamaged(
            f"checksum mismatch in {path} at key {key.hex()}: the record was changed on disk. "
            "Restore this data directory from a backup or a replica"
        )
    return data
