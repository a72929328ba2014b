"""Placement: hashing maps every key to one partition, without asking another node.

ZHT's zero-hop routing (paper 4, section 4.2.1): the number of partitions is fixed when the cluster
is made, so the hash of a key never changes; only the owner of a partition does.
"""

from __future__ import annotations

import struct

import xxhash

#: Partitions of a new cluster. Fixed for the cluster's life.
PARTITIONS = 256

_batch = struct.Struct(">QQ")
_WORD = (1 << 64) - 1


def of_batch(producer: int, batch: int, partitions: int) -> int:
    """A batch's partition: each batch hashes afresh, which spreads a queue over all nodes."""
    name = _batch.pack(producer & _WORD, batch & _WORD)  # callers may pass any integers
    return xxhash.xxh3_64_intdigest(name) % partitions


def of_push(
    queue: str, ordered: bool, producer: int, batch: int, dedup_key: str | None, partitions: int
) -> int:
    """A push's partition: one for a whole ordered queue, and always the same for a dedup key."""
    if ordered:
        return of_text(queue, partitions)
    if dedup_key is not None:
        return of_text(dedup_key, partitions)
    return of_batch(producer, batch, partitions)


def of_text(text: str, partitions: int) -> int:
    """The partition of a dedup key, a queue's name or a table key."""
    return xxhash.xxh3_64_intdigest(text.encode()) % partitions
