"""The plan of a graph: where each task goes, how its message names the others.

All ids are chosen before anything is sent, so a message can name its children.

- A graph of up to ATOMIC_TASKS_MAX tasks goes to one partition. One commit stores it and starts it,
  and each end of a task releases children in its own log entry.
- A larger graph is cut: a task goes to the partition of its first parent as long as that one has
  less than PARTITION_TASKS_MAX tasks, so most dependencies stay on a partition. Every root
  waits for the start, too.

Batches are small, since the head of a batch is written again when one of its messages is released.
"""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from weft import limits
from weft.client.transaction.graph_commit import (
    Arrival,
    WaitingBatch,
    arrival,
    waiting_batch,
)
from weft.client.transaction.home_numbers import HomeNumbers
from weft.errors import InvalidArgument, TooLarge
from weft.ids import PRODUCER_BITS, MessageId, partition_of

from .call import PICKLED_TASK, PickledSlots, TaskCall
from .graph_links import (
    CHILD_BATCHES_MAX,
    GRAPH_TASK,
    ChildBatch,
    GraphLinks,
    Input,
    ranges_of,
)
from .graph_record import BatchRecord, GraphRecord
from .pickle_codec import python_version
from .signature import encode

if TYPE_CHECKING:
    from weft.client.routing.session import ClientSession

    from .graph import Graph, GraphNode

ATOMIC_TASKS_MAX: Final = 1_000
#: The bodies of a graph that is one commit.
ATOMIC_BYTES_MAX: Final = limits.COMMIT_BYTES_MAX // 2
PARTITION_TASKS_MAX: Final = 1_000
BATCH_TASKS_MAX: Final = 256
#: Batches of a graph: one commit starts or fails them all.
BATCHES_MAX: Final = limits.COMMIT_ARRIVALS_MAX
_BATCH_BYTES_MAX: Final = 2 * limits.MIB


class Names(Protocol):
    """Source of batch names that lead to a partition."""

    def draw_partition(self, partitions: int) -> int: ...
    def take(self, partition: int) -> tuple[int, int]: ...


class SessionNames:
    """Names of a client's session."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._numbers = HomeNumbers(session)

    def draw_partition(self, partitions: int) -> int:
        return secrets.randbelow(partitions)

    def take(self, partition: int) -> tuple[int, int]:
        return self._session.producer, self._numbers.take(partition)


class InlineNames:
    """Names without a session: for a graph inside a task, and for inline runs."""

    def __init__(self, partitions: int = 1) -> None:
        self._partitions = partitions
        self._producer = secrets.randbits(PRODUCER_BITS)
        self._last = 0

    def draw_partition(self, partitions: int) -> int:
        return 0

    def take(self, partition: int) -> tuple[int, int]:
        while True:
            self._last += 1
            if partition_of(self._producer, self._last, self._partitions) == partition:
                return self._producer, self._last


@dataclass
class PlannedBatch:
    """Tasks of one batch."""

    queue: str
    delay_ms: int
    priority: int
    partition: int
    nodes: list[GraphNode]
    producer: int = 0
    number: int = 0
    bodies: list[bytes] = field(default_factory=list)
    made: WaitingBatch | None = None

    @property
    def push(self) -> WaitingBatch:
        assert self.made is not None
        return self.made

    @property
    def bytes(self) -> int:
        return sum(map(len, self.bodies))

    @property
    def record(self) -> BatchRecord:
        count = len(self.nodes)
        return BatchRecord(self.queue, self.producer, self.number, self.partition, count)


@dataclass
class GraphPlan:
    record: GraphRecord
    batches: list[PlannedBatch]
    #: One commit stores and starts the graph.
    atomic: bool

    @property
    def bytes(self) -> int:
        return sum(batch.bytes for batch in self.batches)

    @property
    def queues(self) -> set[str]:
        return {batch.queue for batch in self.batches}

    def roots(self, partitions: int) -> list[Arrival]:
        """The arrivals that start a graph that is not atomic."""
        return [
            arrival(
                batch.queue, batch.producer, batch.number, partitions,
                [(first, count, 1) for first, count in ranges_of(roots)],
            )
            for batch in self.batches
            if (roots := [n for n, node in enumerate(batch.nodes) if not node.parents])
        ]  # fmt: skip


def plan(graph: Graph, partitions: int, names: Names, home: int | None) -> GraphPlan:
    """Raises InvalidArgument for a cycle or an empty graph. `home`: the only partition allowed."""
    if not graph.nodes:
        raise InvalidArgument("the graph has no tasks: add one")
    order = parents_first(graph)
    if home is not None and len(order) > ATOMIC_TASKS_MAX:
        raise TooLarge(
            f"a graph inside a task has at most {ATOMIC_TASKS_MAX} tasks, this has {len(order)}"
        )
    atomic = len(order) <= ATOMIC_TASKS_MAX
    if atomic:
        place = names.draw_partition(max(1, partitions)) if home is None else home
        places = dict.fromkeys(range(len(order)), place)
    else:
        places = _spread(order, names, partitions)
    made = _batches(order, places)
    _check_batches("the graph", len(made), BATCHES_MAX)
    record = _named(graph, made, names)
    _encode(graph, made, record)
    planned = GraphPlan(record, made, atomic)
    if atomic and planned.bytes > ATOMIC_BYTES_MAX:
        if home is not None:
            raise TooLarge(
                f"a graph inside a task has at most {ATOMIC_BYTES_MAX} bytes of arguments, this "
                f"has {planned.bytes}"
            )
        planned.atomic = False
    for batch in made:
        more = 0 if planned.atomic else 1
        waits = [len(node.parents) or more for node in batch.nodes]
        batch.made = waiting_batch(
            batch.queue, batch.producer, batch.number, batch.bodies, waits, batch.delay_ms,
            batch.priority,
        )  # fmt: skip
    return planned


def parents_first(graph: Graph) -> list[GraphNode]:
    """The nodes, parents first. Raises InvalidArgument with the tasks of a cycle."""
    nodes = graph.nodes
    if all(parent < node.index for node in nodes for parent in node.parents):
        return nodes
    children: list[list[int]] = [[] for _ in nodes]
    left = [len(node.parents) for node in nodes]
    for node in nodes:
        for parent in node.parents:
            children[parent].append(node.index)
    ready = deque(index for index, count in enumerate(left) if not count)
    order: list[GraphNode] = []
    while ready:
        index = ready.popleft()
        order.append(nodes[index])
        for child in children[index]:
            left[child] -= 1
            if not left[child]:
                ready.append(child)
    if len(order) < len(nodes):
        cycle = _cycle(nodes, {index for index, count in enumerate(left) if count})
        raise InvalidArgument(
            f"the graph has a cycle: {' -> '.join(map(repr, cycle))}: no task of a cycle can begin"
        )
    return order


def _cycle(nodes: list[GraphNode], open_: set[int]) -> list[GraphNode]:
    """One cycle, as its tasks in the order in which they would run."""
    path: list[int] = []
    index = min(open_)
    while index not in path:
        path.append(index)
        index = next(parent for parent in nodes[index].parents if parent in open_)
    found = [*path[path.index(index) :], index]
    return [nodes[each] for each in reversed(found)]


def _spread(order: list[GraphNode], names: Names, partitions: int) -> dict[int, int]:
    """The partition of each node."""
    load: dict[int, int] = {}
    places: dict[int, int] = {}
    current = -1
    for node in order:
        parent = next(iter(node.parents), -1)
        place = places.get(parent, -1)
        if place < 0 or load[place] >= PARTITION_TASKS_MAX:
            if current < 0 or load[current] >= PARTITION_TASKS_MAX:
                current = names.draw_partition(partitions)
                load.setdefault(current, 0)
            place = current
        places[node.index] = place
        load[place] = load.get(place, 0) + 1
    return places


def _batches(order: list[GraphNode], places: dict[int, int]) -> list[PlannedBatch]:
    open_: dict[tuple[str, int, int, int], tuple[PlannedBatch, int]] = {}
    made: list[PlannedBatch] = []
    for node in order:
        options, place = node.options, places[node.index]
        key = node.task.queue, options.delay_ms, options.priority, place
        size = sum(map(len, node.arguments))
        batch, used = open_.get(key, (None, 0))
        if batch is None or len(batch.nodes) >= BATCH_TASKS_MAX or used + size > _BATCH_BYTES_MAX:
            batch, used = PlannedBatch(*key, []), 0
            made.append(batch)
        batch.nodes.append(node)
        open_[key] = batch, used + size
    return made


def _check_batches(what: str, batches: int, most: int) -> None:
    """One commit releases all children of a task, and all tasks of a graph that is given up."""
    if batches > most:
        raise TooLarge(
            f"{what} would be {batches} batches, at most {most} are allowed: up to "
            f"{BATCH_TASKS_MAX} tasks of one queue, delay and priority share a batch, so use fewer "
            "different delays, or submit several graphs"
        )


def _named(graph: Graph, made: list[PlannedBatch], names: Names) -> GraphRecord:
    """Names the batches, and thereby the tasks."""
    places: list[tuple[int, int]] = [(0, 0)] * len(graph.nodes)
    for position, batch in enumerate(made):
        batch.producer, batch.number = names.take(batch.partition)
        for index, node in enumerate(batch.nodes):
            node.number = MessageId.of(batch.partition, batch.producer, batch.number, index)
            places[node.index] = position, index
    tasks = list(dict.fromkeys(node.task.name for node in graph.nodes))
    numbers = {name: number for number, name in enumerate(tasks)}
    first = made[0].nodes[0].number
    return GraphRecord(
        first.to_bytes(16, "big"),
        tasks,
        [numbers[node.task.name] for node in graph.nodes],
        [batch.record for batch in made],
        places,
        [list(node.parents) for node in graph.nodes],
        [node.index for node in graph.nodes if node.on_failure == "run"],
        graph.ttl_ms,
    )


def _encode(graph: Graph, made: list[PlannedBatch], record: GraphRecord) -> None:
    children = record.children()
    for batch in made:
        bodies = [_body(graph, node, children[node.index], record) for node in batch.nodes]
        for node, body in zip(batch.nodes, bodies, strict=True):
            if len(body) > limits.BODY_BYTES_MAX:
                raise TooLarge(
                    f"{node!r} has {len(body)} bytes with its links, at most "
                    f"{limits.BODY_BYTES_MAX} are allowed: pass the address of large data"
                )
        batch.bodies = bodies


def _body(graph: Graph, node: GraphNode, children: list[int], record: GraphRecord) -> bytes:
    grouped: dict[int, tuple[list[int], list[int]]] = {}
    for child in children:
        place, index = record.places[child]
        tolerant = graph.nodes[child].on_failure == "run"
        grouped.setdefault(place, ([], []))[tolerant].append(index)
    named = [
        ChildBatch(
            record.batches[place].queue, record.batches[place].producer,
            record.batches[place].batch, ranges_of(strict), ranges_of(tolerant),
        )
        for place, (strict, tolerant) in grouped.items()
    ]  # fmt: skip
    _check_batches(f"the children of {node!r}", len(named), CHILD_BATCHES_MAX)
    inputs = [
        Input(slot, item, parent.number.to_bytes(16, "big")) for slot, item, parent in node.places
    ]
    pickled = None
    if node.pickled or (node.places and node.task.pickles):
        # The results of parents may be pickled.
        pickled = PickledSlots(node.task.name, node.pickled, python_version())
    links = GraphLinks(
        PICKLED_TASK if pickled else node.task.name,
        record.id,
        named,
        inputs,
        record.ttl_ms,
        node.on_failure == "run",
    )
    args, words = map(msgspec.Raw, node.arguments)
    return encode(TaskCall(GRAPH_TASK, args, words, node.options.call, links, pickled))
