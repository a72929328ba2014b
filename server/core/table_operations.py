"""Batches of the hash table for a plain client: one request for each primary, at once.

A batch is split by the primaries of its keys. Keys of partitions that answer "not primary" or
"unavailable" are asked again, at the next primary; the batch's name makes that safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import structs

from weft.dht import placement
from weft.proto import wire
from weft.proto.key_pages import merged_page

from .cluster_host import ClusterHost
from .operation import Operation, Pause, Question, operation_of
from .primary_operations import given_up, passes

T = TypeVar("T")


@operation_of(wire.InsertMany, wire.LookupMany, wire.RemoveMany)
def table_batch(
    cluster: ClusterHost,
    request: wire.InsertMany | wire.LookupMany | wire.RemoveMany,
    payload: Sequence[bytes],
) -> Operation:
    """Each position of the answer's columns is filled by the answer of its key's primary."""
    columns: dict[int, tuple[Any, ...]] = {}
    numbers = placement.of_keys((key.encode() for key in request.keys), cluster.view.catalogue)
    if isinstance(request, wire.InsertMany) and len(request.values) != len(request.keys):
        words = f"{len(request.keys)} keys have {len(request.values)} values"
        return wire.Failure("INVALID_ARGUMENT", words, False), ()
    left, since = list(range(len(numbers))), cluster.now
    while left:
        by_node: dict[str, list[int]] = {}
        for position in left:
            node = cluster.view.places[numbers[position]].primary
            by_node.setdefault(node, []).append(position)
        said = yield [
            Question(node, part_of(request, positions, {numbers[p] for p in positions}))
            for node, positions in by_node.items()
        ]
        left = []
        for positions, (answer, frames) in zip(by_node.values(), said, strict=True):
            if isinstance(answer, wire.FoundRows):
                rows = zip(answer.values, answer.versions, strict=True)
                columns.update(zip(positions, rows, strict=True))
            elif isinstance(answer, wire.KeysWritten):
                columns.update(zip(positions, zip(answer.done, strict=True), strict=True))
            elif passes(answer):
                left += positions
            else:
                return answer, frames
        for position in left:
            if failure := given_up(cluster, numbers[position], since):
                return failure, ()
        if left:
            yield Pause()
    in_order = [columns[position] for position in range(len(numbers))]
    if isinstance(request, wire.LookupMany):
        return wire.FoundRows([row[0] for row in in_order], [row[1] for row in in_order]), ()
    return wire.KeysWritten([row[0] for row in in_order]), ()


@operation_of(wire.ScanKeys)
def scan(cluster: ClusterHost, request: wire.ScanKeys, payload: Sequence[bytes]) -> Operation:
    """Asks all primaries for a page, and merges the pages up to the first incomplete one's end."""
    since, count = cluster.now, cluster.view.catalogue
    if not all(0 <= number < count for number in request.partitions):
        return wire.Failure("INVALID_ARGUMENT", f"there are {count} partitions", False), ()
    numbers = request.partitions or list(range(count))
    while True:
        by_node: dict[str, list[int]] = {}
        for number in numbers:
            by_node.setdefault(cluster.view.places[number].primary, []).append(number)
        said = yield [
            Question(node, structs.replace(request, partitions=part))
            for node, part in by_node.items()
        ]
        pages = [answer for answer, _ in said if isinstance(answer, wire.KeyPage)]
        if len(pages) == len(said):
            return merged_page(pages, request.limit), ()
        for part, (answer, frames) in zip(by_node.values(), said, strict=True):
            if isinstance(answer, wire.Failure):
                if not passes(answer):
                    return answer, frames
                if failure := given_up(cluster, part[0], since):
                    return failure, ()
        yield Pause()


@operation_of(wire.WatchKeys)
def watch(cluster: ClusterHost, request: wire.WatchKeys, payload: Sequence[bytes]) -> Operation:
    """Asks the primary of the first partition; the caller groups partitions by their primaries."""
    numbers = request.partitions or [0]
    if not 0 <= numbers[0] < cluster.view.catalogue:
        return wire.Failure("INVALID_ARGUMENT", f"there is no partition {numbers[0]}", False), ()
    ((answer, frames),) = yield [Question(cluster.view.places[numbers[0]].primary, request)]
    return answer, frames


def part_of(request: Any, positions: Sequence[int], numbers: set[int]) -> wire.AnyRequest:
    """The same request for some of its keys."""
    keys = _picked(request.keys, positions)
    if isinstance(request, wire.InsertMany):
        values = _picked(request.values, positions)
        return structs.replace(request, partitions=sorted(numbers), keys=keys, values=values)
    part: wire.AnyRequest = structs.replace(request, partitions=sorted(numbers), keys=keys)
    return part


def _picked(column: list[T], positions: Sequence[int]) -> list[T]:
    return [column[position] for position in positions]
