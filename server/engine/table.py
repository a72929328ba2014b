"""The verbs of the hash table: reads the value, applies ``dht.table_verbs``, writes the result."""

from __future__ import annotations

from weft.dht import placement, table_verbs
from weft.proto import wire

from .handlers import handles
from .state import EngineState


@handles(*table_verbs.transforms.by_request)
def table(state: EngineState, request: wire.AnyRequest, to: object) -> None:
    key: str = request.key  # type: ignore[attr-defined]
    place = table_verbs.place(key, state.partitions)
    partition = placement.of_text(key, state.partitions)
    data = state.overlay.read(place)
    transform = table_verbs.transforms.by_request[type(request)]
    outcome = transform(request, None if data is None else bytes(data))
    if outcome.writes and outcome.value is None:
        state.overlay.delete(place)
    elif outcome.value is not None:
        state.check_space()
        state.overlay.put(place, outcome.value)
    else:  # a read is valid only while this node still leads the partition
        state.barriers.add(partition)
    state.answer(to, outcome.answer, (), {partition})
