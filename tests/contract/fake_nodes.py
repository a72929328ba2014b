"""The wire endpoints of several nodes without nodes: ROUTER sockets in threads, one shared state.

The shared state stands for the replicated data: the view, the messages, the table. A node answers
for the partitions that it leads, and refuses the others with NOT_PRIMARY. Leases belong to a node,
so a partition that moves loses them. Nothing depends on time: a partition moves when a test moves
it (`lead`, `fail_over`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import zmq

from tests.contract.peer import Peer, reply
from weft.client.routing.cluster_view import ClusterView
from weft.client.routing.discovery import Discovery
from weft.dht import placement
from weft.ids import partition_of
from weft.proto import wire

PARTITIONS = 16
#: Sees a call before the node does: True means that the call gets no answer.
Tap = Callable[["FakeNode", wire.Call], bool]


class Stored:
    """One stored batch."""

    def __init__(self, partition: int, push: wire.Push, payload: bytes) -> None:
        self.partition = partition
        self.push = push
        self.payload = payload


class FakeNode(Peer):
    """One node. `tap` sees every call first; `mute` swallows all of them."""

    def __init__(self, world: FakeCluster, name: str) -> None:
        super().__init__(lambda call, payload: [])
        self.world = world
        self.name = name
        self.tap: Tap | None = None
        self.mute = False
        self.leases: dict[int, Stored] = {}
        self._parked: list[tuple[bytes, int, wire.Where, float]] = []

    @property
    def alive(self) -> bool:
        return self._thread is not None

    def kill(self) -> None:
        self.drop()
        self._parked.clear()
        self.leases.clear()

    def requests(self, kind: type[wire.Request]) -> list[wire.AnyRequest]:
        return [call.request for call in self.calls if isinstance(call.request, kind)]

    def leads(self, partition: int) -> bool:
        return self.world.primary(partition) is self

    # --- the socket's thread ---

    def _serve(self, bound: threading.Event) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        self._bind(socket)
        endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.port = int(endpoint.rstrip(b"\0").rsplit(b":", 1)[1])
        bound.set()
        while not self._stop.is_set():
            if socket.poll(5):
                self._take(socket)
            for peer, rid, nodes in self._woken():
                socket.send_multipart([peer, *reply(rid, wire.Nodes(nodes, self.world.heeds))])
        socket.close()

    def _take(self, socket: zmq.Socket[bytes]) -> None:
        peer, first, *payload = socket.recv_multipart()
        call = wire.decode_call(first)
        self.calls.append(call)
        silent = self.mute or (self.tap is not None and self.tap(self, call))
        if not silent:
            with self.world.lock:
                answered = self._answer(peer, call, payload)
            if answered is not None:
                socket.send_multipart([peer, *reply(call.rid, answered[0], *answered[1])])
        self.arrived.put(call)

    def _woken(self) -> Iterator[tuple[bytes, int, list[str]]]:
        parked, self._parked = self._parked, []
        for peer, rid, where, until in parked:
            with self.world.lock:
                nodes = self.world.holders(where.queue)
            if nodes or time.monotonic() >= until:
                yield peer, rid, nodes
            else:
                self._parked.append((peer, rid, where, until))

    # --- the verbs ---

    def _answer(
        self, peer: bytes, call: wire.Call, payload: Sequence[bytes]
    ) -> tuple[wire.AnyAnswer, Sequence[bytes]] | None:
        request = call.request
        if self.partition_of(request) not in (None, *self.led()):
            return wire.Failure("NOT_PRIMARY", f"{self.name} does not lead it", True), ()
        match request:
            case wire.Push() if self.world.failures:
                self.world.failed.append(request)
                return self.world.failures.pop(0), ()
            case wire.Push():
                return self.world.store(request, payload[0]), ()
            case wire.Pop():
                return self._pop(request)
            case wire.Ack() | wire.Nack() | wire.Extend():
                return self._settle(request), ()
            case wire.Where() if request.wait_ms and not self.world.holders(request.queue):
                until = time.monotonic() + request.wait_ms / 1000
                self._parked.append((peer, call.rid, request, until))
                return None
            case wire.Where():
                return wire.Nodes(self.world.holders(request.queue), self.world.heeds), ()
            case wire.GetView():
                return self.world.view(), ()
            case wire.Append():
                self.world.table[request.key] += request.value
                return wire.Done(len(self.world.table[request.key])), ()
            case wire.ListQueues():
                return wire.Queues([], False), ()
            case wire.DeleteQueue():
                return wire.Done(0), ()
        return wire.Failure("INVALID_ARGUMENT", f"the fake does not know {request}", False), ()

    def led(self) -> list[int]:
        return [p for p in range(PARTITIONS) if self.leads(p)]

    def partition_of(self, request: wire.AnyRequest) -> int | None:
        """The partition that the node must lead, if any; of several receipts, a foreign one."""
        match request:
            case wire.Push(dedup_key=None):
                return partition_of(request.producer, request.batch, PARTITIONS)
            case wire.Push(dedup_key=str(key)) | wire.Append(key=key) | wire.Where(queue=key):
                return placement.of_text(key, PARTITIONS)
            case wire.Ack() | wire.Nack() | wire.Extend():
                others = [r.partition for r in request.receipts if not self.leads(r.partition)]
                return others[0] if others else None
        return None

    def _pop(self, request: wire.Pop) -> tuple[wire.AnyAnswer, Sequence[bytes]]:
        ready = self.world.ready(request.queue)
        mine = [stored for stored in ready if self.leads(stored.partition)]
        taken: list[Stored] = []
        while mine and sum(one.push.count for one in taken) + mine[0].push.count <= request.limit:
            taken.append(mine.pop(0))
        lent = []
        for stored in taken:
            self.world.messages[request.queue].remove(stored)
            nonce = next(self.world.nonces)
            self.leases[nonce] = stored
            push = stored.push
            lent.append(
                wire.Lent(stored.partition, push.batch, nonce, 0, push.count, push.producer,
                          push.batch, 1, 0, 30_000)
            )  # fmt: skip
        left = sum(one.push.count for one in mine)
        fell = (1, len(self.calls)) if request.passes_on and not left else None
        return wire.Popped(lent, left, fell), [stored.payload for stored in taken]

    def _settle(self, request: wire.Ack | wire.Nack | wire.Extend) -> wire.AnyAnswer:
        lost = [n for n, r in enumerate(request.receipts) if r.nonce not in self.leases]
        for receipt in request.receipts:
            if isinstance(request, wire.Extend):
                continue
            stored = self.leases.pop(receipt.nonce, None)
            if stored is not None and isinstance(request, wire.Nack):
                self.world.messages[request.queue].append(stored)
            elif stored is not None:
                self.world.acked.append(stored)
        return wire.Settled(len(request.receipts) - len(lost), 0, lost)


class FakeCluster:
    def __init__(self, nodes: int) -> None:
        self.lock = threading.RLock()
        self.version = 1
        self.nodes = [FakeNode(self, f"n{number}") for number in range(nodes)]
        self.members = list(self.nodes)
        self.leaders = [self.nodes[p % nodes] for p in range(PARTITIONS)]
        self.messages: defaultdict[str, list[Stored]] = defaultdict(list)
        self.seen: dict[tuple[int, int], wire.Pushed] = {}
        self.acked: list[Stored] = []
        self.table: defaultdict[str, bytes] = defaultdict(bytes)
        self.nonces = itertools.count(1)
        #: Failures that answer the next pushes, and the pushes that were answered so.
        self.failures: list[wire.Failure] = []
        self.failed: list[wire.Push] = []
        #: Whether list owners accept from callers that a node is empty.
        self.heeds = True
        for node in self.nodes:
            node.listen()

    # --- replicated state ---

    def primary(self, partition: int) -> FakeNode:
        return self.leaders[partition]

    def view(self) -> wire.ViewInfo:
        members = self.members
        nodes = [wire.NodeInfo(n.name, n.address, n.address, "active") for n in members]
        primaries = [members.index(leader) for leader in self.leaders]
        return wire.ViewInfo("cluster", self.version, PARTITIONS, nodes, primaries=primaries)

    def store(self, push: wire.Push, payload: bytes) -> wire.Pushed:
        key = (push.producer, push.batch)
        if key in self.seen:
            first = self.seen[key]
            return wire.Pushed(
                first.partition, first.producer, first.batch, first.count, True, "disk"
            )
        partition = partition_of(push.producer, push.batch, PARTITIONS)
        if push.dedup_key is not None:
            partition = placement.of_text(push.dedup_key, PARTITIONS)
        self.messages[push.queue].append(Stored(partition, push, payload))
        self.seen[key] = wire.Pushed(
            partition, push.producer, push.batch, push.count, False, "disk"
        )
        return self.seen[key]

    def ready(self, queue: str) -> list[Stored]:
        return self.messages[queue]

    def holders(self, queue: str) -> list[str]:
        return sorted({self.primary(stored.partition).name for stored in self.ready(queue)})

    # --- controls for tests ---

    def put(self, node: FakeNode, queue: str, *bodies: bytes, partition: int | None = None) -> None:
        """Store messages on a partition that this node leads: the first one, or `partition`."""
        with self.lock:
            for body in bodies:
                number = next(self.nonces)
                push = wire.Push(queue, 1, number, 1)
                payload = wire.encode(wire.Payload([body]))
                place = node.led()[0] if partition is None else partition
                self.messages[queue].append(Stored(place, push, payload))

    def lead(self, node: FakeNode, *partitions: int) -> None:
        """Make the node lead these partitions; leases of their messages are lost."""
        with self.lock:
            for partition in partitions:
                before = self.leaders[partition]
                lost = [n for n, s in before.leases.items() if s.partition == partition]
                for nonce in lost:
                    stored = before.leases.pop(nonce)
                    self.messages[stored.push.queue].append(stored)
                self.leaders[partition] = node
            self.version += 1

    def fail_over(self, dead: FakeNode) -> None:
        """Remove the node from the view; the others take over its partitions."""
        with self.lock:
            self.members = [node for node in self.members if node is not dead]
            for number, partition in enumerate(dead.led()):
                self.lead(self.members[number % len(self.members)], partition)
            self.version += 1

    def die(self, node: FakeNode, after_s: float = 0.0) -> None:
        """Kill the node; the view changes `after_s` seconds later."""
        node.drop()  # first, so that leases granted meanwhile are returned, too
        with self.lock:
            for stored in node.leases.values():
                self.messages[stored.push.queue].append(stored)
        node.kill()
        time.sleep(after_s)
        self.fail_over(node)

    def discovery(self) -> Discovery:
        discovery = Discovery([self.nodes[0].address])
        discovery.view = ClusterView.of(self.view(), self.nodes[0].address)
        return discovery

    def owner(self, queue: str) -> FakeNode:
        """The owner of the queue's metadata list."""
        return self.primary(placement.of_text(queue, PARTITIONS))

    def close(self) -> None:
        for node in self.nodes:
            node.close()


@contextmanager
def fake_nodes(nodes: int) -> Iterator[FakeCluster]:
    cluster = FakeCluster(nodes)
    try:
        yield cluster
    finally:
        cluster.close()
