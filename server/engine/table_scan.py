"""scan: rows of the hash table in the order of their keys, page by page.

A page merges the rows of its partitions, and waits for the commit of all that it has read.
"""

from __future__ import annotations

from heapq import merge
from operator import itemgetter
from typing import Final

from weft import limits
from weft.proto import wire

from . import table_rows
from .handlers import handles
from .state import EngineState

#: Expired rows removed by one page; the next page goes on.
_EXPIRED_MAX: Final = 1_000


@handles(wire.ScanKeys)
def scan_keys(state: EngineState, request: wire.ScanKeys, to: object) -> None:
    limits.check_range("limit", request.limit, 1, limits.TABLE_SCAN_MAX)
    check_prefix(request.prefix)
    limits.check_range("after bytes", len(request.after.encode()), 0, limits.TABLE_KEY_BYTES_MAX)
    numbers = span_of(state, request.partitions)
    found = merge(
        *(table_rows.rows(state, n, request.after, request.prefix) for n in numbers),
        key=itemgetter(0),
    )
    page = wire.KeyPage([], [], [], "", False)
    after, size, expired, more = request.after, 0, 0, False
    for key, row in found:
        if row.expires and row.expires <= table_rows.clock(state, row.partition):
            table_rows.find(state, row.partition, key)  # removes the row, or finds a newer one
            expired += 1
        elif (
            len(page.keys) == request.limit
            or (page.keys and size + len(row.value) > limits.TABLE_BATCH_BYTES_MAX)
            or expired > _EXPIRED_MAX
        ):
            more = True
            break
        else:
            page.keys.append(key)
            page.values.append(row.value)
            page.versions.append(row.version)
            size += len(row.value) + len(key)
        after = key
    answer = wire.KeyPage(page.keys, page.values, page.versions, after, more)
    state.answer(to, answer, (), set(numbers), sure=True)


def check_prefix(prefix: str) -> None:
    limits.check_range("prefix bytes", len(prefix.encode()), 0, limits.TABLE_KEY_BYTES_MAX)


def span_of(state: EngineState, partitions: list[int]) -> list[int]:
    """The partitions of a request; none stand for all."""
    for number in partitions:
        limits.check_range("partition", number, 0, state.partitions - 1)
    return list(dict.fromkeys(partitions)) or list(range(state.partitions))
