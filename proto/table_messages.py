"""The hash table on the wire: ZHT's verbs.

The rules for every struct of ``wire`` apply: new fields are only added at the end.

`Insert`, `Remove`, `Append` and `CompareAndSwap` are the verbs of version 0.1.0, for its clients.
The other writes have a *name*, (producer, number), chosen by the caller before sending: a partition
remembers the names of the writes that it executed, so a resent write is executed once and gets the
first result. They are new types and not new fields of the old ones, because a node of version 0.1.0
would ignore the fields; such a node refuses the new types.

Batches are columns. Each names its partitions, so that a node checks its leadership without hashing
every key; an empty list means that the node derives the partitions from the keys.
"""

from __future__ import annotations

from .request import Answer, Request

# --- requests ---------------------------------------------------------------------------------


class Insert(Request, frozen=True, tag="insert"):
    key: str
    value: bytes


class Lookup(Request, frozen=True, tag="lookup"):
    key: str


class Remove(Request, frozen=True, tag="remove"):
    key: str


class Append(Request, frozen=True, tag="append"):
    key: str
    value: bytes


class CompareAndSwap(Request, frozen=True, tag="compare_and_swap"):
    """`old` nil: only if the key is absent; `new` nil: remove the key."""

    key: str
    old: bytes | None
    new: bytes | None


class Put(Request, frozen=True, tag="put"):
    """An insert with all options. `ttl_ms` 0: the key does not expire. `if_version` is a condition:
    -1 for none, 0 if the key must be absent."""

    key: str
    value: bytes
    producer: int
    number: int
    ttl_ms: int = 0
    if_version: int = -1


class RemoveKey(Request, frozen=True, tag="remove_key"):
    """`if_version` as in `Put`."""

    key: str
    producer: int
    number: int
    if_version: int = -1


class AppendKey(Request, frozen=True, tag="append_key"):
    """Keeps the time at which the key expires."""

    key: str
    value: bytes
    producer: int
    number: int


class SwapKey(Request, frozen=True, tag="swap_key"):
    """As `CompareAndSwap`; a new value does not expire."""

    key: str
    old: bytes | None
    new: bytes | None
    producer: int
    number: int


class InsertMany(Request, frozen=True, tag="insert_many"):
    """Writes all keys of a partition or, after a failure of that partition, none of them."""

    partitions: list[int]
    keys: list[str]
    values: list[bytes]
    producer: int
    number: int
    ttl_ms: int = 0


class LookupMany(Request, frozen=True, tag="lookup_many"):
    partitions: list[int]
    keys: list[str]


class RemoveMany(Request, frozen=True, tag="remove_many"):
    partitions: list[int]
    keys: list[str]
    producer: int
    number: int


class ScanKeys(Request, frozen=True, tag="scan_keys"):
    """Rows with a prefix in the order of their keys, after a key; no partitions stand for all."""

    partitions: list[int]
    prefix: str
    after: str
    limit: int


class WatchKeys(Request, frozen=True, tag="watch_keys"):
    """The changes of keys with a prefix (`exact`: of one key) since a version of each partition.

    `after` has one version for each partition; -1 asks for the present version. The node answers
    when there is a change, at the latest after `wait_ms`.
    """

    partitions: list[int]
    prefix: str
    after: list[int]
    wait_ms: int = 0
    exact: bool = False


# --- answers ----------------------------------------------------------------------------------


class Value(Answer, frozen=True, tag="value"):
    value: bytes | None


class Swapped(Answer, frozen=True, tag="swapped"):
    swapped: bool
    #: The value before the call; nil when the key was absent.
    current: bytes | None
    #: The key's version after the call; 0: the key is absent, or was written by version 0.1.0.
    version: int = 0


class KeyWritten(Answer, frozen=True, tag="key_written"):
    """The result of a named write of one key."""

    #: False: the condition did not hold, or there was no key to remove; nothing has changed.
    done: bool
    #: The version of the write; if not done, the key's present version, 0 for an absent key.
    version: int
    #: The length of the value after an append.
    size: int = 0


class FoundRows(Answer, frozen=True, tag="found_rows"):
    """Values and versions in the order of the keys; nil and 0 for an absent key."""

    values: list[bytes | None]
    versions: list[int]


class KeysWritten(Answer, frozen=True, tag="keys_written"):
    """One flag per key: inserts, and removals of keys that existed."""

    done: list[bool]


class KeyPage(Answer, frozen=True, tag="key_page"):
    keys: list[str]
    values: list[bytes]
    versions: list[int]
    #: The next page begins after this key, if there is `more`.
    after: str
    more: bool


class KeyChanges(Answer, frozen=True, tag="key_changes"):
    """Changes in the order of their versions within each partition."""

    #: For each partition of the request, the version to continue from.
    positions: list[int]
    #: Partitions whose history since the version of the request is lost.
    lost: list[int]
    keys: list[str]
    #: Nil: the key was removed, or has expired.
    values: list[bytes | None]
    versions: list[int]
