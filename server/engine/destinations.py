"""The destinations of a multicast: which partitions store it, and what is refused.

Each ordered queue has its partition by its name, each grouped queue by the conflict key, which is
the group. The placement ignores the names of plain queues:

| destinations                        | plain queues are on the partition of      |
|-------------------------------------|-------------------------------------------|
| ordered or grouped queues among them| one of those, the *home*                  |
| plain queues, with a dedup key      | the dedup key                             |
| plain queues                        | the batch's name                          |

If all destinations are on one partition, one log entry suffices (``multicast``). Otherwise the home
coordinates (``ordered_multicast``). The home is the smallest of the partitions, so it does not
depend on the order of the names: a resend finds the same home, which detects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft import limits
from weft.dht import placement
from weft.errors import InvalidArgument, TooLarge
from weft.ids import partition_of
from weft.proto import wire

from .push import check_batch
from .queue import QueueState
from .state import EngineState
from .topic import matching

AnyMulticast = wire.Multicast | wire.PushTopic
#: (first, count) of bodies.
Ranges = list[tuple[int, int]]

#: The feature of a cluster whose members all know multicasts to several ordered queues.
ORDERED_MULTICAST = "ordered_multicast"


class Plan(NamedTuple):
    """The destinations that get messages, and their partitions."""

    home: int
    queues: list[QueueState]
    #: The bodies that each queue gets; None: all for all.
    ranges: list[Ranges] | None
    #: The partition of each queue.
    places: list[int]

    @property
    def partitions(self) -> list[int]:
        """The home first."""
        return sorted(set(self.places), key=lambda each: (each != self.home, each))

    def of_partition(self, partition: int) -> list[int]:
        """The positions of the queues on a partition."""
        return [number for number, place in enumerate(self.places) if place == partition]

    def ranges_of(self, position: int, count: int) -> Ranges:
        return [(0, count)] if self.ranges is None else self.ranges[position]


class Destinations:
    """Where a multicast is stored, for routing."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def place_of(self, request: AnyMulticast) -> int | None:
        """The home; None for an unknown queue or topic, and for a request to be refused."""
        state = self._state
        queues = [state.queues.get(name) for name in self.names(request) or ()]
        known = [queue for queue in queues if queue is not None]
        if len(known) < len(queues):
            return None
        if not known and isinstance(request, wire.PushTopic) and request.topic in state.topics:
            # This node may not have learned of a binding yet: a primary has, so it answers.
            return partition_of(request.producer, request.batch, state.partitions)
        if not known:
            return None
        try:
            return place_of(known, request, state.partitions)
        except InvalidArgument:
            return None

    def needs_agreement(self, request: AnyMulticast) -> bool:
        """True if several partitions have to agree. A node that is its whole cluster changes all
        of them in one write."""
        state = self._state
        if state.channels.alone:
            return False
        found = [state.queues.get(name) for name in self.names(request) or ()]
        queues = [queue for queue in found if queue is not None]
        return len(queues) == len(found) and is_spread(queues, request, state.partitions)

    def plan(self, request: AnyMulticast, payload: bytes) -> Plan | None:
        """The destinations of a valid request; None if no queue of a topic matches."""
        return plan(self._state, request, payload)

    def names(self, request: AnyMulticast) -> Sequence[str] | None:
        """The names of the destinations; None for an unknown topic."""
        if isinstance(request, wire.Multicast):
            return request.queues
        topic = self._state.topics.get(request.topic)
        return None if topic is None else list(topic.bindings)

    def count(self, request: wire.AnyRequest) -> int:
        """The number of destinations, for quotas; 1 for another request."""
        if not isinstance(request, AnyMulticast):
            return 1
        return len(self.names(request) or ())

    def are_known(self, request: AnyMulticast) -> bool:
        """True if this node knows the topic and all queues."""
        names = self.names(request)
        return names is not None and all(name in self._state.queues for name in names)

    @property
    def enabled(self) -> bool:
        """True if this node knows that every member of the cluster knows multicasts."""
        return bool(self._state.features)

    @property
    def ordered_enabled(self) -> bool:
        """The same of multicasts to several ordered queues."""
        return ORDERED_MULTICAST in self._state.features


def plan(state: EngineState, request: AnyMulticast, payload: bytes) -> Plan | None:
    check_batch(request, payload)
    ranges: list[Ranges] | None = None
    if isinstance(request, wire.Multicast):
        bound = queues = named_queues(state, request.queues)
    else:
        topic = state.topic(request.topic)
        bound = queues = [state.queue(name) for name in topic.bindings]
        if topic.filters:
            headers = wire.decode_payload_views(payload).headers
            found = [matching(each, headers, request.count) for each in topic.bindings.values()]
            queues = [queue for queue, own in zip(bound, found, strict=True) if own]
            ranges = [own for own in found if own]
    check_copies(request, len(queues))
    home = place_of(bound, request, state.partitions) if bound else 0
    if not queues:
        return None
    if not is_spread(bound, request, state.partitions):
        # All bound queues decide, not only those that match: equal keys meet on one partition.
        return Plan(home, queues, ranges, [home] * len(queues))
    home = place_of(queues, request, state.partitions)
    return Plan(home, queues, ranges, _places(queues, request, home, state.partitions))


def named_queues(state: EngineState, names: Sequence[str]) -> list[QueueState]:
    known = state.queues
    limits.check_range("queues", len(names), 1, limits.MULTICAST_QUEUES_MAX)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"{twice} is named twice: name each queue once")
    # Most names are known: no call for each.
    return [known[name] if name in known else state.queue(name) for name in names]


def check_copies(request: AnyMulticast, queues: int) -> None:
    if request.conflict_key is not None:
        size = len(request.conflict_key.encode())
        limits.check_range("conflict_key bytes", size, 1, limits.GROUP_BYTES_MAX)
    if request.count * queues > limits.BATCH_COUNT_MAX:
        raise TooLarge(
            f"{request.count} messages to {queues} queues are more than {limits.BATCH_COUNT_MAX} "
            "at once: push fewer at a time"
        )


def place_of(queues: Sequence[QueueState], request: AnyMulticast, partitions: int) -> int:
    """The home of a multicast; raises InvalidArgument for destinations that are refused."""
    key, dedup_key = request.conflict_key, request.dedup_key
    ordered = [queue.name for queue in queues if queue.settings.ordered]
    grouped = [queue.name for queue in queues if queue.settings.grouped]
    if (request.delay_ms or request.priority) and (ordered or grouped):
        name = [*ordered, *grouped][0]
        raise InvalidArgument(f"{name} keeps an order: it has neither delays nor priorities")
    if grouped and key is None:
        raise InvalidArgument(
            f"{grouped[0]} is grouped: give the multicast a conflict_key, which is the group"
        )
    if key is not None and dedup_key is not None:
        raise InvalidArgument(
            "a multicast has a conflict_key or a dedup_key, not both: each decides the partition"
        )
    places = {placement.of_text(name, partitions): name for name in ordered}
    if grouped and key is not None:
        places[placement.of_text(key, partitions)] = grouped[0]
    if dedup_key is not None and ordered and len(ordered) < len(queues):
        raise InvalidArgument(
            "a dedup key goes with ordered queues or with others, not with both: the key of "
            f"{ordered[0]} is kept on another partition than the key of the others"
        )
    if dedup_key is not None and len(places) > 1:
        first, second = list(places.values())[:2]
        raise InvalidArgument(
            f"{first} and {second} keep their dedup keys on different partitions, so a key could "
            "be new to one and known to the other: push without a dedup_key. A resend of the "
            "same push is recognised without one"
        )
    if places:
        return min(places)
    if dedup_key is not None:
        return placement.of_text(dedup_key, partitions)
    return partition_of(request.producer, request.batch, partitions)


def is_spread(queues: Sequence[QueueState], request: AnyMulticast, partitions: int) -> bool:
    """True if the destinations that keep an order are on several partitions."""
    places: set[int] = set()
    for queue in queues:
        if queue.settings.ordered:
            places.add(placement.of_text(queue.name, partitions))
        elif queue.settings.grouped and request.conflict_key is not None:
            places.add(placement.of_text(request.conflict_key, partitions))
    return len(places) > 1


def _places(
    queues: Sequence[QueueState], request: AnyMulticast, home: int, partitions: int
) -> list[int]:
    """The partition of each queue."""
    places: list[int] = []
    for queue in queues:
        place = home
        if queue.settings.ordered:
            place = placement.of_text(queue.name, partitions)
        elif queue.settings.grouped and request.conflict_key is not None:
            place = placement.of_text(request.conflict_key, partitions)
        places.append(place)
    return places
