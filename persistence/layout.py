"""Where everything is in the store. This is the only file that knows a key's bytes.

| key                                              | value                                  |
|--------------------------------------------------|----------------------------------------|
| ``h`` partition(2) lsn(8)                        | a batch's head: small, changes         |
| ``b`` partition(2) lsn(8)                        | a batch's payload: large, never changes|
| ``a`` partition(2) queue(8) app                  | an app that publishes: what it has     |
| ``c`` partition(2) queue(8) app 0 batch(8) token(8) | a stage that was closed or given up |
| ``d`` partition(2) slice(4) queue(8) producer(7) batch(5) | dedup: a batch that is gone   |
| ``e`` partition(2) slice(4) queue(8) dedup key   | dedup: a dedup key that is gone        |
| ``f`` partition(2) queue(8) app                  | the last batch that was revealed here  |
| ``k`` partition(2) lsn(8)                        | a hold: who has messages set aside     |
| ``l`` partition(2) lsn(8)                        | an entry of a partition's log          |
| ``m`` partition(2)                               | a replica's own: promise, log, applied |
| ``n`` name                                       | the node's own: view, vote, boot       |
| ``o`` partition(2) queue(8)                      | the leases of an ordered queue         |
| ``p`` partition(2)                               | a partition's state: no lsn after this |
| ``q`` queue name                                 | a queue's record                       |
| ``t`` partition(2) key                           | a value of the hash table              |
| ``u`` partition(2) queue(8) subscription         | a subscription: its ledger             |
| ``v`` partition(2) queue(8) subscription 0 number(8) | a reservation: where its messages are |

Numbers are big-endian, so keys sort as the numbers do. Heads stand apart from payloads, so a
restart reads only heads: it costs what is waiting in number, not in bytes. A batch's dedup entry
is its head while it lives, and becomes a ``d`` record when the last message is acked; entries are
grouped by time slice, so that a whole slice expires with one range scan.

``a b c d e f h k o p t u v`` belong to the partition in their key, ``q`` to the *catalogue*, the
partition after the last one: together they are a partition's state, which is replicated. The
others are a node's own.

Every value is a *record*: an xxh3-64 checksum of (key, data), then the data. The key is in the sum,
so a value that stands under a wrong key is caught too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import xxhash

from weft.errors import StoreDamaged

HEAD, BODY, DEDUP, DEDUP_KEY, PARTITION, QUEUE, TABLE = b"h", b"b", b"d", b"e", b"p", b"q", b"t"
LOG, NODE, REPLICA, LEASES = b"l", b"n", b"m", b"o"
HOLD, SUBSCRIPTION, RESERVATION, APP, CLOSED, FENCE = b"k", b"u", b"v", b"a", b"c", b"f"
#: The number of a partition has 16 bits, and the catalogue needs one too.
PARTITIONS_MAX = 0xFFFF
_OF_PARTITION = (
    HEAD, BODY, DEDUP, DEDUP_KEY, LEASES, PARTITION, TABLE,
    HOLD, SUBSCRIPTION, RESERVATION, APP, CLOSED, FENCE,
)  # fmt: skip

_batch = struct.Struct(">cHQ")
_dedup = struct.Struct(">cHIQ7s5s")
_dedup_key = struct.Struct(">cHIQ")
_small = struct.Struct(">cH")
_named = struct.Struct(">cHQ")
_word = struct.Struct(">Q")
_closed = struct.Struct(">QQ")
_sum = struct.Struct(">Q")
#: What stands before the data of a record.
SEAL_BYTES = _sum.size
_hash = xxhash.xxh3_64_intdigest
_digest = xxhash.xxh3_64_digest


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


def log_range(partition: int, after: int) -> tuple[bytes, bytes]:
    """The scan bounds of one partition's log, after an lsn: not over what was deleted before."""
    return log(partition, after + 1), _small.pack(LOG, partition) + b"\xff" * 9


def replica(partition: int) -> bytes:
    """What a replica keeps about itself."""
    return _small.pack(REPLICA, partition)


def partition_of(key: bytes, catalogue: int) -> int:
    """The partition whose state a key is in."""
    return catalogue if key[:1] == QUEUE else int.from_bytes(key[1:3], "big")


def state_ranges(partition: int, catalogue: int) -> list[tuple[bytes, bytes]]:
    """The scan bounds of a partition's whole state."""
    if partition == catalogue:
        return [kind_range(QUEUE)]
    return [partition_range(kind, partition) for kind in _OF_PARTITION]


def partition_range(kind: bytes, partition: int) -> tuple[bytes, bytes]:
    """The scan bounds of one kind in one partition."""
    assert partition < PARTITIONS_MAX
    return _small.pack(kind, partition), _small.pack(kind, partition + 1)


def leases(partition: int, queue: int) -> bytes:
    """What is lent of an ordered queue."""
    return _batch.pack(LEASES, partition, queue)


def hold(partition: int, lsn: int) -> bytes:
    return _batch.pack(HOLD, partition, lsn)


def named(kind: bytes, partition: int, queue: int, name: str) -> bytes:
    """A subscription's ledger, an app's record, or an app's fence."""
    return _named.pack(kind, partition, queue) + name.encode()


def unpack_named(key: bytes) -> tuple[int, str]:
    """(queue, name)."""
    _, _, queue = _named.unpack_from(key)
    return queue, key[_named.size :].decode()


def reservation(partition: int, queue: int, name: str, number: int) -> bytes:
    return named(RESERVATION, partition, queue, name) + b"\0" + _word.pack(number)


def unpack_reservation(key: bytes) -> tuple[int, str, int]:
    """(queue, subscription, number)."""
    name, number = key[_named.size : -9], key[-8:]
    return _named.unpack_from(key)[2], name.decode(), int(_word.unpack(number)[0])


def closed(partition: int, queue: int, app: str, batch: int, token: int) -> bytes:
    return named(CLOSED, partition, queue, app) + b"\0" + _closed.pack(batch, token)


def unpack_closed(key: bytes) -> tuple[int, str, int, int]:
    """(queue, app, batch, token)."""
    batch, token = _closed.unpack(key[-16:])
    return _named.unpack_from(key)[2], key[_named.size : -17].decode(), batch, token


def node(name: str) -> bytes:
    """What a node keeps about itself."""
    return NODE + name.encode()


def dedup(partition: int, time_slice: int, queue: int, producer: int, batch: int) -> bytes:
    return _dedup.pack(
        DEDUP, partition, time_slice, queue, producer.to_bytes(7, "big"), batch.to_bytes(5, "big")
    )


def unpack_dedup(key: bytes) -> tuple[int, int, int, int, int]:
    """(partition, slice, queue, producer, batch)."""
    _, partition, time_slice, queue, producer, batch = _dedup.unpack(key)
    return (
        partition,
        time_slice,
        queue,
        int.from_bytes(producer, "big"),
        int.from_bytes(batch, "big"),
    )


def dedup_key(partition: int, time_slice: int, queue: int, key: str) -> bytes:
    return _dedup_key.pack(DEDUP_KEY, partition, time_slice, queue) + key.encode()


def unpack_dedup_key(key: bytes) -> tuple[int, int, int, str]:
    """(partition, slice, queue, dedup key)."""
    _, partition, time_slice, queue = _dedup_key.unpack_from(key)
    return partition, time_slice, queue, key[_dedup_key.size :].decode()


def slice_range(kind: bytes, partition: int, time_slice: int) -> tuple[bytes, bytes]:
    """All dedup records of a partition, of slices up to and with this one."""
    start = _small.pack(kind, partition)
    return start, start + (time_slice + 1).to_bytes(4, "big")


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


def batch_records(
    partition: int, lsn: int, head_data: bytes, payload: bytes
) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """The two records of a new batch, with their keys: in one step, for a caller waits for it."""
    head_key = _batch.pack(HEAD, partition, lsn)
    body_key = BODY + head_key[1:]
    return (
        (head_key, _digest(head_data, _hash(head_key)) + head_data),
        (body_key, _digest(payload, _hash(body_key)) + payload),
    )


def unseal(key: bytes, record: bytes, path: str) -> memoryview:
    """The data of a record; raises StoreDamaged when a single bit of it has changed."""
    data = memoryview(record)[_sum.size :]
    if len(record) < _sum.size or _sum.unpack_from(record)[0] != _hash(data, _hash(key)):
        raise _damaged(key, path)
    return data


def unseal_parted(key: bytes, seal: bytes, data: bytes, path: str) -> bytes:
    """As `unseal`, for a record that was read in two (`SEAL_BYTES`): nothing is copied."""
    if seal != _digest(data, _hash(key)):
        raise _damaged(key, path)
    return data


def unseal_rows(rows: Iterable[tuple[bytes, bytes]], path: str) -> Iterator[tuple[bytes, bytes]]:
    """As `unseal`, for a scan of many small records: there a copy is cheaper than a view."""
    digest, hash_, start = _digest, _hash, _sum.size
    for key, record in rows:
        data = record[start:]
        if record[:start] != digest(data, hash_(key)):  # big-endian, as it was packed
            raise _damaged(key, path)
        yield key, data


def _damaged(key: bytes, path: str) -> StoreDamaged:
    return StoreDamaged(
        f"checksum mismatch in {path} at key {key.hex()}: the record was changed on disk. "
        "Restore this data directory from a backup or a replica"
    )
