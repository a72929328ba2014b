"""Real node cores with one ordered queue each, in virtual time, for ``tests.sim.convoy``.

The cluster is founded and joined as a real one, with two copies of each partition. Then, and only
then, the messages of the protocol (requests between nodes, answers, entries and their replies) take
the transit times of the model, over the model's connections. Pings, announcements of ready queues
and commit indexes arrive at once: no multicast waits for them, and on a real connection they go
out with other messages. Nodes act, and write, in no time.

Queue number i is on the node of process i. A queue with a smaller number has a smaller partition,
so it coordinates: as in the model.

A publisher hands its multicast to the coordinator's node in no time. A multicast is *assigned* on a
node when its proposal there gets the sequence number, and *listed* when the proposal is gone.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from weft.dht import placement
from weft.dht.core import Timing, decode_view
from weft.dht.messages import (
    AnyMessage,
    AppendEntries,
    EntriesAppended,
    PeerReply,
    PeerRequest,
)
from weft.dht.view import Member, View
from weft.models.replicated_skeen import Connections
from weft.models.skeen import MulticastModel, MulticastRun, SkeenSimulation, key_of, summary
from weft.persistence.memory import MemoryStore
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.core.node_core import NodeCore
from weft.server.engine.proposal import Pending

from .machine import Machine

PARTITIONS: Final = 64
START: Final = 1_000_000_000_000
SECOND: Final = 1_000_000
#: The resends of `again` are for lost messages; none is lost here.
PACE: Final = Timing(ping=400_000, suspect=20 * SECOND, again=2 * SECOND, backoff=40_000)
_TRANSIT: Final = (PeerRequest, PeerReply, AppendEntries, EntriesAppended)
_PAYLOAD: Final = wire.encode(wire.Payload([b"x"]))
_SETTINGS: Final = Settings(lease_ms=30_000, ordered=True)
_PRODUCER: Final = 9
#: The cluster is ready, or a multicast is listed, well before this.
_PATIENCE: Final = 120 * SECOND
#: The longest that a cluster without load is observed for a change.
_CALM: Final = 5 * SECOND

Work = Callable[[NodeCore], None]


class NodeCluster:
    """As many nodes as the model has processes, and one virtual clock."""

    def __init__(self, processes: int, seed: int) -> None:
        self.now = START
        self._random = random.Random(f"nodes {seed}")
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._wake: dict[str, int] = {}
        self._callers: dict[object, Callable[[wire.AnyAnswer], None]] = {}
        self._stores: dict[str, MemoryStore] = {}
        self.connections: Connections | None = None
        self.on_round: Callable[[str], None] = lambda name: None
        self.nodes: dict[str, NodeCore] = {}
        self._build([f"n{number}" for number in range(processes)])
        #: The node, the queue and the follower of each process.
        self.names, self.queues, self.followers = self._choose()
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._create()

    # --- the cluster --------------------------------------------------------------------------

    def _build(self, names: list[str]) -> None:
        for name in names:
            store = self._stores[name] = MemoryStore(name)
            self.nodes[name] = NodeCore(
                name, "simulated", store, partitions=PARTITIONS, pace=PACE,
                entropy=lambda: self._random.getrandbits(62) + 1,
            )  # fmt: skip
        first, *others = names
        self.nodes[first].core.found(Member(first, first), 0)
        for name in names:
            self.nodes[name].recover(self.now)
            self.round(name)
        self.run(self.now + SECOND)
        for name in others:
            joining = Machine(name, self._stores[name], self.nodes[name])
            answer = self.call(first, joining.join_request())
            assert isinstance(answer, wire.Joined), answer
            view = decode_view(answer.view)
            self.round(name, lambda node, view=view: node.core.learn(view))  # type: ignore[misc]
        end = self.now + _PATIENCE
        while not self._is_ready():
            assert self.now < end, "the cluster does not become whole"
            self.run(self.now + SECOND)

    def _is_ready(self) -> bool:
        """True if every partition has two copies, and nothing has changed for a while."""
        before = self.view.version
        self.run(self.now + _CALM)
        nodes = self.nodes.values()
        same = {node.view.version for node in nodes} == {before}
        copies = min(2, len(self.nodes))
        return (
            same
            and set(self.view.members) == set(self.nodes)
            and all(len(place.sync) == copies for place in self.view.places)
            and {place.primary for place in self.view.places} == set(self.nodes)
        )

    @property
    def view(self) -> View:
        return next(iter(self.nodes.values())).view

    def _choose(self) -> tuple[list[str], list[str], tuple[int, ...]]:
        """Nodes, queues and followers by process: one partition of each node, in ascending order,
        and each node is the follower of one other."""
        places, nodes = self.view.places, sorted(self.nodes)
        ring = dict(zip(nodes, [*nodes[1:], nodes[0]], strict=True))
        chosen = sorted(
            next(p for p in range(PARTITIONS) if places[p].sync == (name, follower))
            for name, follower in ring.items()
        )
        names = [places[partition].primary for partition in chosen]
        followers = tuple(names.index(ring[name]) for name in names)
        return names, [_queue_on(partition) for partition in chosen], followers

    def _create(self) -> None:
        for queue in self.queues:
            answer = self.call(self.names[0], wire.CreateQueue(queue, _SETTINGS), plain=True)
            assert isinstance(answer, wire.Created), answer
        self.run(self.now + _CALM)
        # The first multicast asks all members for the feature.
        assert isinstance(self.call(self.names[0], self.multicast(range(len(self.names)), 0, None),
                                    _PAYLOAD), wire.Multicasted)  # fmt: skip
        self.run(self.now + _CALM)

    # --- requests -----------------------------------------------------------------------------

    def multicast(self, to: range | tuple[int, ...], batch: int, key: str | None) -> wire.Multicast:
        queues = [self.queues[each] for each in to]
        return wire.Multicast(queues, _PRODUCER, batch, 1, conflict_key=key)

    def call(
        self, name: str, request: wire.AnyRequest, *payload: bytes, plain: bool = False
    ) -> wire.AnyAnswer:
        """The answer to a request, which the clock waits for."""
        said: list[wire.AnyAnswer] = []
        self.ask(name, request, said.append, *payload, plain=plain)
        end = self.now + _PATIENCE
        while not said:
            assert self.now < end, f"no answer to {request}"
            self.run(self.now + SECOND // 100)
        return said[0]

    def ask(
        self,
        name: str,
        request: wire.AnyRequest,
        answered: Callable[[wire.AnyAnswer], None],
        *payload: bytes,
        plain: bool = False,
    ) -> None:
        token = ("client", next(self._order))
        self._callers[token] = answered
        self.round(name, lambda node: node.handle(request, payload, token, plain=plain))

    # --- time ---------------------------------------------------------------------------------

    def at(self, when: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def run(self, until: int) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    def round(self, name: str, work: Work | None = None) -> None:
        """Rounds at one time, until the node has nothing due."""
        node = self.nodes[name]
        while True:
            node.begin(self.now)
            if work is not None:
                work(node)
            ready = node.end()
            if ready.writes:
                self._stores[name].write(ready.writes, sync=True)
            self.on_round(name)
            for to, message in ready.sends:
                self._carry(name, to, message)
            for answered in ready.answers:
                self._callers.pop(answered.to)(answered.answer)
            due = node.next_due()
            if due > self.now:
                break
            work = None
        if not self.now < self._wake.get(name, 0) <= due:
            self._wake[name] = due
            self.at(due, lambda: self._woken(name, due))

    def _woken(self, name: str, due: int) -> None:
        if self._wake.get(name) == due:
            self.round(name)

    def _carry(self, sender: str, to: str, message: AnyMessage) -> None:
        arrives = self.now
        if self.connections is None:
            arrives += 100
        elif isinstance(message, _TRANSIT):
            at = self._numbers[sender], self._numbers[to]
            arrives = self.connections.arrival(self.now, *at)
        self.at(arrives, lambda: self.round(to, lambda node: node.receive(sender, message)))


class ConvoyRun:
    """The multicasts of a model, on the nodes of a cluster. `every_ms`: one multicast after each
    such interval, and not at random."""

    def __init__(
        self, model: MulticastModel, messages: int, seed: int = 1, *, every_ms: int = 0
    ) -> None:
        self._model, self._seed = model, seed
        #: The messages and their destinations are those of the model's simulator.
        self._messages = SkeenSimulation(model, messages, seed).messages
        if every_ms:
            self._messages = [
                each._replace(sent=number * every_ms * 1000)
                for number, each in enumerate(self._messages)
            ]
        self._cluster = NodeCluster(model.processes, seed)
        self.followers = self._cluster.followers
        self._began = self._cluster.now
        self._waiting: dict[str, dict[tuple[int, int], Pending]] = {n: {} for n in self._nodes}
        self._number_of = {name: number for number, name in enumerate(self._nodes)}
        self._orders: list[list[int]] = [[] for _ in self._nodes]
        self._times: list[list[int]] = [[] for _ in self._nodes]
        self._waits: list[int] = []
        self._answers = 0

    @property
    def _nodes(self) -> list[str]:
        return self._cluster.names

    def run(self) -> MulticastRun:
        """Runs until every multicast is listed at its destinations."""
        cluster, model = self._cluster, self._model
        draw = random.Random(f"transit times {self._seed}")
        mean = round(model.delay_ms * 1000)
        constant = model.delays == "constant"
        cluster.connections = Connections(
            lambda: mean if constant else round(draw.expovariate(1.0) * mean)
        )
        cluster.on_round = self._look
        before = list(self._histograms())
        for number, message in enumerate(self._messages):
            cluster.at(self._began + message.sent, partial(self._publish, number))
        expected = len(self._messages) * model.destinations
        end = self._began + self._messages[-1].sent + _PATIENCE
        while len(self._waits) < expected or self._answers < len(self._messages):
            assert cluster.now < end, f"{len(self._waits)} of {expected} messages were listed"
            cluster.run(cluster.now + SECOND)
        (sums, counts) = (
            sum(after[at] - first[at]
                for first, after in zip(before, self._histograms(), strict=True))
            for at in (0, 1)
        )  # fmt: skip
        assert (sums, counts) == (sum(self._waits), expected), "as weft_multicast_convoy_seconds"
        return summary(self._messages, self._orders, self._times, self._waits)

    def _histograms(self) -> Iterator[tuple[int, int]]:
        for name in self._nodes:
            convoy = self._cluster.nodes[name].engine.state.proposals.convoy
            yield convoy.sum_us, convoy.count

    def _publish(self, number: int) -> None:
        model, message = self._model, self._messages[number]
        key = None
        if model.keys is not None:
            key = f"k{key_of(number, model.keys, self._seed)}"
        elif model.commute:
            key = f"m{number}"
        request = self._cluster.multicast(message.destinations, number + 1, key)
        name = self._nodes[message.destinations[0]]
        self._cluster.ask(name, request, self._answered, _PAYLOAD)

    def _answered(self, answer: wire.AnyAnswer) -> None:
        assert isinstance(answer, wire.Multicasted), answer
        self._answers += 1

    def _look(self, name: str) -> None:
        """After a round: which proposals of the node are listed."""
        proposals = self._cluster.nodes[name].engine.state.proposals
        now = {(each.partition, each.proposal.token): each for each in proposals}
        gone = [each for key, each in self._waiting[name].items() if key not in now]
        self._waiting[name] = now
        at = self._number_of[name]
        for each in sorted(gone, key=lambda pending: pending.head.stamp):
            assert each.proposal.decided, "no attempt is given up"
            self._orders[at].append(each.head.batch - 1)
            self._times[at].append(self._cluster.now - self._began)
            self._waits.append(self._cluster.now - each.assigned_at)


def _queue_on(partition: int) -> str:
    names = (f"convoy-{number}" for number in itertools.count())
    return next(name for name in names if placement.of_text(name, PARTITIONS) == partition)
