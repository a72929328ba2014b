"""The stored structure of a graph, for programs that show, await or cancel the graph later.

The keys of a graph are beside its first task, as the results of a task are beside its message:

| key          | value                                                                   |
|--------------|-------------------------------------------------------------------------|
| `s` + number | the structure, compressed, in chunks; written before the graph starts   |
| `d`          | the decision: STARTED or ABANDONED; written once, by a commit           |
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from weft import limits
from weft.client.key_group import KeyGroup
from weft.client.routing.session import ClientSession
from weft.errors import InvalidArgument
from weft.ids import MessageId

STARTED: Final = b"started"
ABANDONED: Final = b"abandoned"
CHUNK_BYTES: Final = limits.MIB
#: The structure of the largest graph, unpacked.
RECORD_BYTES_MAX: Final = 64 * limits.MIB


class BatchRecord(msgspec.Struct, array_like=True, frozen=True):
    queue: str
    producer: int
    batch: int
    partition: int
    count: int


class GraphRecord(msgspec.Struct, array_like=True, frozen=True):
    """Nodes are numbered in the order in which they were added. New fields are added at the end."""

    #: The id of the graph: that of its first task.
    id: bytes
    #: The names of tasks, and the name of each node.
    tasks: list[str]
    names: list[int]
    batches: list[BatchRecord]
    #: The batch of each node, and its index there.
    places: list[tuple[int, int]]
    parents: list[list[int]]
    #: Nodes with on_failure="run".
    tolerant: list[int] = []
    ttl_ms: int = 0

    @property
    def number(self) -> MessageId:
        return MessageId(int.from_bytes(self.id, "big"))

    def id_of(self, node: int) -> MessageId:
        place, index = self.places[node]
        batch = self.batches[place]
        return MessageId.of(batch.partition, batch.producer, batch.batch, index)

    def name_of(self, node: int) -> str:
        return self.tasks[self.names[node]]

    def children(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.parents]
        for node, parents in enumerate(self.parents):
            for parent in parents:
                found[parent].append(node)
        return found

    def sinks(self) -> list[int]:
        """The nodes without children."""
        return [node for node, children in enumerate(self.children()) if not children]


_decode = msgspec.msgpack.Decoder(GraphRecord).decode


def chunks_of(record: GraphRecord) -> list[bytes]:
    data = zlib.compress(msgspec.msgpack.encode(record), 1)
    return [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]


def prefix_of(app: str, number: MessageId) -> str:
    return f"tasks/{app}/g/{number}/"


def keys_of(session: ClientSession, app: str, number: MessageId) -> KeyGroup:
    return KeyGroup(session, prefix_of(app, number), number.partition)


async def read_record(
    session: ClientSession, app: str, number: MessageId
) -> tuple[GraphRecord, bytes]:
    """The structure and the decision, b"" if there is none yet. Raises InvalidArgument."""
    group = keys_of(session, app, number)
    if number.partition >= session.router.partitions:
        raise _unknown(app, number)
    entries = {entry.key.removeprefix(group.prefix): entry for entry in await group.scan()}
    by_name = {name.partition("~")[0]: entry.value for name, entry in entries.items()}
    chunks = [by_name[f"s{n}"] for n in range(len(by_name)) if f"s{n}" in by_name]
    if not chunks:
        raise _unknown(app, number)
    try:
        unpacked = zlib.decompressobj().decompress(b"".join(chunks), RECORD_BYTES_MAX)
        record = _decode(unpacked)
    except (zlib.error, msgspec.DecodeError) as error:
        raise InvalidArgument(f"the structure of graph {number} is damaged: {error}") from None
    return record, by_name.get("d", b"")


def _unknown(app: str, number: MessageId) -> InvalidArgument:
    return InvalidArgument(
        f"the app {app} has no graph {number}: its id is the one that submit returned, and its "
        "structure is kept for the graph's ttl"
    )
