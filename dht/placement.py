"""Placement: hashing maps every key to one partition, without asking another node.

The partition of a batch's name is in `weft.ids`, because it is a part of every message id.

ZHT's zero-hop routing (paper 4, section 4.2.1): the number of partitions is fixed when the cluster
is made, so the hash of a key never changes; only the owner of a partition does.
"""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

from weft.ids import partition_of

_hash = xxhash.xxh3_64_intdigest

#: Partitions of a new cluster. Fixed for the cluster's life.
PARTITIONS = 256


def of_push(
    queue: str, ordered: bool, producer: int, batch: int, dedup_key: str | None, partitions: int
) -> int:
    """A push's partition: one for a whole ordered queue, and always the same for a dedup key."""
    if ordered:
        return of_text(queue, partitions)
    if dedup_key is not None:
        return of_text(dedup_key, partitions)
    return partition_of(producer, batch, partitions)


def of_text(text: str, partitions: int) -> int:
    """The partition of a dedup key, a queue's name, a table key or a message group.

    The queue is no part of a group's hash: a dead letter stays on the partition of its group.
    """
    return of_raw(text.encode(), partitions)


def of_raw(raw: bytes, partitions: int) -> int:
    """As `of_text` for an encoded text."""
    return _hash(raw) % partitions


def of_keys(keys: Iterable[bytes], partitions: int) -> list[int]:
    """As `of_text` for many encoded table keys."""
    hashed = _hash
    return [hashed(key) % partitions for key in keys]
