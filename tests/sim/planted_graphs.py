"""Planted bugs of task graphs; see ``planted``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from weft.server.engine import parent_counts, partition_recovery
from weft.server.engine.batch import TouchedBatch
from weft.server.engine.head import RELEASED, Part
from weft.server.engine.parent_counts import DecidedArrival
from weft.server.engine.queue import QueueState
from weft.server.engine.state import EngineState

from .graph_parts import Drawn
from .graphs import Graphs

_apply = parent_counts.apply
_restore = partition_recovery._restore


def applies_twice(state: EngineState, partition: int, arrival: DecidedArrival) -> None:
    """A parent counts as two."""
    _apply(state, partition, arrival)
    _apply(state, partition, arrival)


def counts_in_memory(state: EngineState, partition: int, arrival: DecidedArrival) -> None:
    """The count is in the memory of the primary, and not in the entry of the parent's end."""
    dirty = dict(state.dirty)
    _apply(state, partition, arrival)
    state.dirty.clear()
    state.dirty.update(dirty)


def ignores_failures(state: EngineState, partition: int, arrival: DecidedArrival) -> None:
    """Children of a failed task go on waiting."""
    _apply(state, partition, msgspec.structs.replace(arrival, failed=[]))


def restores_without_index(
    state: EngineState, batch: TouchedBatch, dead: list[TouchedBatch]
) -> None:
    """The next primary does not find the batch that an arrival names."""
    _restore(state, batch, dead)
    by_name = state.waiting_batches.by_name
    for name in [name for name, each in by_name.items() if each is batch]:
        del by_name[name]


def lists_waiting(state: EngineState, queue: QueueState, batch: TouchedBatch, part: Part) -> None:
    """A message that waits is listed like any other."""
    del batch.parts[part.first]
    state.wait(queue, batch, msgspec.structs.replace(part, waits=RELEASED))


def starts_early(graphs: Graphs, graph: Drawn) -> bool:
    """A client starts a graph when the first batch is stored."""
    return True


#: name -> (module or class, attribute, replacement)
PLANTS: dict[str, tuple[object, str, Callable[..., Any] | property]] = {
    "arrival_applied_twice": (parent_counts, "apply", applies_twice),
    "arrival_in_memory": (parent_counts, "apply", counts_in_memory),
    "failed_parent_ignored": (parent_counts, "apply", ignores_failures),
    "waits_lost_at_adoption": (partition_recovery, "_restore", restores_without_index),
    "waiting_part_listed": (parent_counts, "attach", lists_waiting),
    "started_before_stored": (Graphs, "_is_stored", starts_early),
}
