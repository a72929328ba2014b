"""The key layout of the store. Only this file, and ``channel_layout``, know the bytes of a key.

| key                                              | value                                  |
|--------------------------------------------------|----------------------------------------|
| ``h`` partition(2) lsn(8)                        | a batch's head: small, changes         |
| ``b`` partition(2) lsn(8)                        | a batch's payload: large, never changes|
| ``a`` partition(2) queue(8) app                  | a publishing app's record              |
| ``c`` partition(2) queue(8) app 0 batch(8) token(8) | a stage that was closed or given up |
| ``d`` partition(2) slice(4) queue(8) producer(7) batch(5) | dedup: a batch that is gone   |
| ``e`` partition(2) slice(4) queue(8) dedup key   | dedup: a dedup key that is gone        |
| ``f`` partition(2) queue(8) app                  | the last batch revealed here           |
| ``g`` feature                                    | a feature that every member knows      |
| ``k`` partition(2) lsn(8)                        | a hold: the owner of held messages     |
| ``l`` partition(2) lsn(8)                        | an entry of a partition's log          |
| ``m`` partition(2)                               | a replica's own: promise, log, applied |
| ``n`` name                                       | the node's own: view, vote, boot       |
| ``o`` partition(2) queue(8)                      | the leases of an ordered queue         |
| ``p`` partition(2)                               | a partition's state: lsn upper bound   |
| ``q`` queue name                                 | a queue's record                       |
| ``r`` partition(2) lsn(8) nonce(8)               | a lease record                         |
| ``s`` partition(2) nonce(8)                      | leases that ended recently             |
| ``t`` partition(2)                               | the hash table                         |
| ``u`` partition(2) queue(8) subscription         | a subscription's ledger                |
| ``v`` partition(2) queue(8) subscription 0 number(8) | a reservation's slices             |
| ``w`` partition(2)                               | the name of the partition's channel    |
| ``w`` partition(2) destination(2) number(8)      | a delivery to another partition        |
| ``x`` partition(2) source(2)                     | the last delivery taken from a source  |
| ``y`` topic name                                 | a topic's record: its bindings         |

The keys of the hash table, kind ``t``, are in ``table_layout``.
Numbers are big-endian, so keys sort in numeric order. Heads are separate from payloads, so a
restart reads only heads: the cost depends on the number of waiting batches, not on the bytes. While
a batch lives, the head is also the batch's dedup entry; when the last message is acked, the entry
becomes a ``d`` record. Dedup records are grouped by time slice, so one range scan expires a whole
slice.

``a b c d e f h k o p r s t u v w x`` belong to the partition in the key, ``g q y`` to the
*catalogue*, the partition after the last one: together these kinds are a partition's state, which
is replicated. The other kinds are local to a node.

Every value is a *record*: an xxh3-64 checksum of (key, data), then the data. The checksum includes
the key, so a value under a wrong key is detected too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import xxhash

from weft.errors import StoreDamaged

HEAD, BODY, DEDUP, DEDUP_KEY, PARTITION, QUEUE, TABLE = b"h", b"b", b"d", b"e", b"p", b"q", b"t"
LOG, NODE, REPLICA, LEASES, LEASE, ENDED = b"l", b"n", b"m", b"o", b"r", b"s"
HOLD, SUBSCRIPTION, RESERVATION, APP, CLOSED, FENCE = b"k", b"u", b"v", b"a", b"c", b"f"
OUTBOX, CHANNEL_MARK, TOPIC, FEATURE = b"w", b"x", b"y", b"g"
#: Every kind of record.
KINDS = (
    QUEUE, TOPIC, FEATURE, NODE, REPLICA, LOG, PARTITION, HEAD, BODY, DEDUP, DEDUP_KEY, LEASES,
    LEASE, ENDED, HOLD, SUBSCRIPTION, RESERVATION, APP, CLOSED, FENCE, OUTBOX, CHANNEL_MARK, TABLE,
)  # fmt: skip
#: The number of a partition has 16 bits, and the catalogue needs one number, too.
PARTITIONS_MAX = 0xFFFF
_OF_PARTITION = (
    HEAD, BODY, DEDUP, DEDUP_KEY, LEASES, LEASE, ENDED, PARTITION, TABLE,
    HOLD, SUBSCRIPTION, RESERVATION, APP, CLOSED, FENCE, OUTBOX, CHANNEL_MARK,
)  # fmt: skip
#: The kinds of the catalogue; every other kind of a state has its partition in the key.
OF_CATALOGUE = frozenset({QUEUE, TOPIC, FEATURE})

_batch = struct.Struct(">cHQ")
_lease = struct.Struct(">cHQQ")
_dedup = struct.Struct(">cHIQ7s5s")
_dedup_key = struct.Struct(">cHIQ")
_small = struct.Struct(">cH")
_named = struct.Struct(">cHQ")
_word = struct.Struct(">Q")
_closed = struct.Struct(">QQ")
_sum = struct.Struct(">Q")
#: The length of the checksum before the data of a record.
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
    """The scan bounds of one partition's log after an lsn: skips entries deleted before."""
    return log(partition, after + 1), _small.pack(LOG, partition) + b"\xff" * 9


def replica(partition: int) -> bytes:
    """The key of a replica's own record."""
    return _small.pack(REPLICA, partition)


def partition_of(key: bytes, catalogue: int) -> int:
    """The partition that a state key belongs to."""
    return catalogue if key[:1] in OF_CATALOGUE else int.from_bytes(key[1:3], "big")


def state_ranges(partition: int, catalogue: int) -> list[tuple[bytes, bytes]]:
    """The scan bounds of a partition's whole state."""
    if partition == catalogue:
        return [kind_range(kind) for kind in sorted(OF_CATALOGUE)]
    return [partition_range(kind, partition) for kind in _OF_PARTITION]


def partition_range(kind: bytes, partition: int) -> tuple[bytes, bytes]:
    """The scan bounds of one kind in one partition."""
    assert partition < PARTITIONS_MAX
    return _small.pack(kind, partition), _small.pack(kind, partition + 1)


def leases(partition: int, queue: int) -> bytes:
    """The key of the leases of an ordered queue."""
    return _batch.pack(LEASES, partition, queue)


def lease(partition: int, lsn: int, nonce: int) -> bytes:
    """The key of the record of one lease, of the batch at `lsn`."""
    return _lease.pack(LEASE, partition, lsn, nonce)


def ended(partition: int, nonce: int) -> bytes:
    """The key of a group of ended leases, named by the nonce of the first one."""
    return _batch.pack(ENDED, partition, nonce)


def hold(partition: int, lsn: int) -> bytes:
    return _batch.pack(HOLD, partition, lsn)


def named(kind: bytes, partition: int, queue: int, name: str) -> bytes:
    """The key of a subscription's ledger, an app's record, or an app's fence."""
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
    """The key of one of a node's own records."""
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
    """The scan bounds of a partition's dedup records, of slices up to and including this one."""
    start = _small.pack(kind, partition)
    return start, start + (time_slice + 1).to_bytes(4, "big")


def partition(number: int) -> bytes:
    return _small.pack(PARTITION, number)


def of_catalogue(name: str, kind: bytes = QUEUE) -> bytes:
    """The key of a queue, a topic or a feature."""
    return kind + name.encode()


def kind_range(kind: bytes) -> tuple[bytes, bytes]:
    """The scan bounds of one kind."""
    return kind, bytes([kind[0] + 1])


def seal(key: bytes, data: bytes) -> bytes:
    """The record that holds ``data`` under ``key``."""
    return _sum.pack(_hash(data, _hash(key))) + data


def batch_records(
    partition: int, lsn: int, head_data: bytes, payload: bytes
) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """The two records of a new batch, with keys: in one step, because a caller waits for them."""
    head_key = _batch.pack(HEAD, partition, lsn)
    body_key = BODY + head_key[1:]
    return (
        (head_key, _digest(head_data, _hash(head_key)) + head_data),
        (body_key, _digest(payload, _hash(body_key)) + payload),
    )


def unseal(key: bytes, record: bytes, path: str) -> memoryview:
    """The data of a record; raises StoreDamaged if a single bit has changed."""
    data = memoryview(record)[_sum.size :]
    if len(record) < _sum.size or _sum.unpack_from(record)[0] != _hash(data, _hash(key)):
        raise _damaged(key, path)
    return data


def unseal_parted(key: bytes, seal: bytes, data: bytes, path: str) -> bytes:
    """As `unseal`, for a record read in two parts (`SEAL_BYTES`): no bytes are copied."""
    if seal != _digest(data, _hash(key)):
        raise _damaged(key, path)
    return data


def unseal_rows(rows: Iterable[tuple[bytes, bytes]], path: str) -> Iterator[tuple[bytes, bytes]]:
    """As `unseal`, for a scan of many small records: there a copy is cheaper than a view."""
    digest, hash_, start = _digest, _hash, _sum.size
    for key, record in rows:
        data = record[start:]
        if record[:start] != digest(data, hash_(key)):  # big-endian, as packed
            raise _damaged(key, path)
        yield key, data


def _damaged(key: bytes, path: str) -> StoreDamaged:
    return StoreDamaged(
        f"checksum mismatch in {path} at key {key.hex()}: the record was changed on disk. "
        "Restore this data directory from a backup or a replica"
    )
