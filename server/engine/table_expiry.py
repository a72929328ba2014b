"""Background removal of expired rows, and of the records of named writes.

A request never returns an expired row (``table_rows.find``); this job frees the space of rows that
no request finds. Each step examines a bounded number of index entries.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from weft.persistence import table_layout

from . import table_rows
from .state import EngineState
from .table_state import row_of

#: Index entries examined per round.
_STEP: Final = 500
#: An index entry may be on its way into the store, where a scan does not see it yet: a partition
#: without entries is examined again for so long.
_SETTLE_US: Final = 60_000_000


def sweep(state: EngineState) -> Generator[None]:
    """Removes the rows that have expired, and their index entries; records the clocks."""
    table = state.table
    table.sweeping = True
    try:
        table_rows.mark_all(state)
        for partition in list(table.expiring):
            yield from _sweep(state, partition)
    finally:
        table.sweeping = False


def _sweep(state: EngineState, partition: int) -> Generator[None]:
    expiring = state.table.expiring
    now, count, left = table_rows.clock(state, partition), 0, False
    for entry, _ in state.overlay.scan(*table_layout.expiries(partition)):
        if partition not in expiring:
            return  # another node leads the partition
        expires, raw = table_layout.unpack_expiry(entry)
        if expires > now:
            left = True
            break
        _expire(state, partition, expires, raw)
        state.overlay.delete(entry)
        count += 1
        if count % _STEP == 0:
            yield
    if left or count:
        expiring[partition] = now
    elif partition in expiring and now - expiring[partition] > _SETTLE_US:
        del expiring[partition]


def _expire(state: EngineState, partition: int, expires: int, raw: bytes) -> None:
    """Removes the row of an index entry, unless a later write has replaced it."""
    data = state.overlay.read(state.table.starts[partition] + raw)
    if data is not None and (row := row_of(partition, data)).expires == expires:
        table_rows.remove(state, partition, raw.decode(), row)
