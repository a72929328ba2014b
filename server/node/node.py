"""The driver: the one place where the pure node core meets the network, the disk and the clock.

One thread does everything, in rounds: receive from clients and other nodes (up to a round's worth),
run the node core, write all changes with one synced write, then send messages and answers. While
the disk is busy, requests gather in the sockets, and the next round takes them together: a group
commit that adapts by itself. Nothing is sent before the write, because the driver asks for output
only after the write. When one push arrives and there is no other work, the round is cut short
(`_lone_push`): work not needed for the write is done after the answer.

On a single-node cluster, the background writer (`persistence.background_writer`) takes a long
synced write, and this thread continues: the following rounds form the next write, and the answers
of each round are owed until the write that contains the round, or that the answers rest on, has
ended. In a larger cluster the output also depends on other nodes, and a round ends with its own
write.

A storage error ends the node: LevelDB may lose acknowledged writes once a write has failed, so the
node acknowledges nothing after that. The gRPC threads reach this thread through the inbox.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from importlib.metadata import version
from typing import Final

from weft.dht.core import decode_view
from weft.dht.messages import AnyMessage
from weft.dht.rebalancer import Handover
from weft.dht.view import Member, View
from weft.errors import InvalidArgument, StorageError, UsageError, WeftError
from weft.limits import KIB
from weft.persistence.background_writer import BackgroundWriter
from weft.persistence.directory import DataDirectory
from weft.persistence.layout import NODE
from weft.persistence.store import Change, Store
from weft.proto import wire
from weft.server.address import Address
from weft.server.config import LEARNERS_DEFAULT, Config
from weft.server.core.node_core import NodeCore
from weft.server.edges.edge import ROUND_BYTES_MAX, ROUND_MESSAGES_MAX, EdgeCaller, Received
from weft.server.edges.peer_edge import PeerEdge
from weft.server.edges.response_budget import ResponseBudget
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.server.engine.state import Answered
from weft.server.observability import cluster_stats
from weft.server.observability.histogram import Histogram
from weft.server.observability.log import fields
from weft.server.observability.node_stats import Labels, NodeStats, of_queues
from weft.server.security.access import Access
from weft.server.security.audit import Audit, audited
from weft.server.security.caller import ANONYMOUS, Caller
from weft.server.security.data_key import data_key
from weft.server.security.quota import Quotas

from . import process_usage
from .call_inbox import CallInbox, QueuedCall
from .clock import Clock
from .cluster_join import refusal_of
from .compaction import Compaction
from .disk_reserve import DiskReserve
from .node_api import OnAnswer
from .poller import CLIENTS, INBOX, PEERS, WRITTEN, Poller

log = logging.getLogger(__name__)

#: The interval of comparisons of the store's size with the live bytes.
_LOOK_US: Final = 1_000_000
#: Rounds in which a single-node cluster takes the lead of all partitions, before serving.
_FIRST_ROUNDS_MAX: Final = 20
#: Time for the handover of a stopping node, and the part of it in which the node waits for learners
#: to catch up: after that, the node only hands over its leads.
_HAND_OVER_US: Final = 2_000_000
_LEVEL_US: Final = 1_000_000
#: The same while an under-replicated sync set is about to get a copy, with this node in the set.
#: Together with the rest of a stop, the time fits into the 30 s granted by ``docker/compose.yaml``.
_REPLICATE_US: Final = 10_000_000
#: Time to stay up for members unaware of the handover; longer than the ping interval.
_FAREWELL_US: Final = 300_000
#: A synced write of at least this size goes to the background writer. The hand-off wakes two
#: threads, and this thread handles requests meanwhile; a smaller write ends before they are awake.
BEHIND_BYTES_MIN: Final = 64 * KIB
#: Remembered callers with a recent cancel. An answer made before the cancel still goes to the
#: caller, which knows the queue and returns leased messages to the nodes that lead them. Beyond
#: this number, messages leased by another node come back when their leases expire.
_CANCELLED_MAX: Final = 1024
_FAILED: Final = wire.Failure(
    "UNAVAILABLE", "the node has failed: this may or may not have been done", True
)
_GONE: Final = wire.Failure("CANCELLED", "the caller did not wait for the answer", False)
_STOPPING: Final = wire.Failure("SHUTTING_DOWN", "the node is stopping", True)


class Node:
    def __init__(
        self,
        config: Config,
        directory: DataDirectory,
        store: Store,
        access: Access | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._config = config
        self._audit = audit
        #: Actions to be written to the audit log when they are answered.
        self._audited: dict[object, tuple[Caller, wire.AnyRequest]] = {}
        self._directory = directory
        self._store = store
        self._background_writer = BackgroundWriter(store)
        #: Answers that wait for the write under way, and for the next write.
        self._owed: list[Answered] = []
        self._owed_next: list[Answered] = []
        self._sync = config.durability == "disk"
        self._clock = Clock()
        self._started_us = self._clock.now_us()
        self._space = DiskReserve(directory.free_bytes, store.size_bytes, config.reserve_bytes)
        self._compaction = Compaction(store)
        self._inbox = CallInbox()
        self._views: queue.SimpleQueue[View] = queue.SimpleQueue()
        self._quotas = Quotas(config, self._started_us)
        self._data_key = data_key(directory.keys)
        self._edge = ZmtpEdge(
            config.zmq_address, access, audit, config.connections_max,
            self._data_key.secret if config.tls_cert else None,
        )  # fmt: skip
        try:
            self._peers = PeerEdge(
                config.peer_address, directory.keys, directory.cluster, directory.node
            )
        except BaseException:
            self._edge.close()
            raise
        self._node_core = NodeCore(
            directory.node,
            directory.cluster,
            self._background_writer,
            partitions=directory.partitions,
            durability=config.durability,
            cache_bytes=config.cache_bytes,
            entropy=lambda: secrets.randbits(63),
        )
        engine_state = self._node_core.engine.state
        engine_state.leases.most = config.in_flight_max
        self._response_budget = engine_state.backpressure = ResponseBudget(self._edge)
        #: Pops deferred because their connection's response budget is used up.
        self._deferred = engine_state.deferred
        self._known_version = 0
        self._on_answer: dict[int, OnAnswer] = {}
        self._cancelled: dict[int, OnAnswer] = {}  # see _CANCELLED_MAX
        self._thread = threading.Thread(target=self._run, name="weft-node", daemon=True)
        self._stopping = False
        self._again = False  # a send returned messages, or made room: the next round is now
        self._answered = 0  # answers of the last round
        self._due = 0  # time at which the node core has work without a request
        self._commits = self._look_at = 0
        self._labels = Labels()
        #: Durations of rounds with work, and of their synced writes.
        self.round_times, self.fsync_times = Histogram(), Histogram()
        #: The cluster's part of the stats.
        self.cluster_figures = cluster_stats.of(self._node_core.core, self._node_core.local_verdict)
        self._on_end: Callable[[], None] = lambda: None
        #: The error that ended the node, if any.
        self.failure: Exception | None = None
        self._grpc_address = ""

    def start(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Recovers the state from the store, then serves. Calls `on_end` when the node ends."""
        self._on_end = on_end
        node_core, wanted = self._node_core, self._config.learners
        if not self._config.seeds and not node_core.core.founded:
            node_core.found(self._member(), LEARNERS_DEFAULT if wanted < 0 else wanted)
        node_core.recover(self._clock.now_us())
        self._check_not_lost()
        if 0 <= wanted != node_core.view.learners:
            raise InvalidArgument(
                f"learners is {wanted}, but the cluster has {node_core.view.learners}, which "
                "stays: leave it out"
            )
        for _ in range(_FIRST_ROUNDS_MAX):
            # The only member of a cluster leads all partitions before the first request.
            if len(node_core.view.members) != 1 or node_core.leads == len(node_core.view.places):
                break
            self._round(0)
        self._thread.start()

    def _check_not_lost(self) -> None:
        """Raises UsageError if an operator has declared this node lost: it must not serve."""
        if self._node_core.core.is_lost:
            raise UsageError(
                f"node {self._node_core.node} was declared lost by `weft cluster recover`, and the "
                "cluster goes on without it. Its data is kept as it was. To use this machine "
                "again, start with an empty --data and --join: it joins as a new node"
            )

    @property
    def grpc_address(self) -> str:
        """The gRPC address advertised to clients; the gRPC edge starts after this node."""
        return self._grpc_address

    @grpc_address.setter
    def grpc_address(self, address: str) -> None:
        self._grpc_address = address
        self._node_core.me = self._member()

    @property
    def zmq_address(self) -> Address:
        return self._edge.address

    @property
    def peer_address(self) -> Address:
        """The address at which the node listens for other nodes."""
        return self._peers.address

    @property
    def has_view(self) -> bool:
        """True if the node knows its cluster."""
        return bool(self._node_core.view.members)

    def adopt(self, view: bytes) -> None:
        """Takes a view to start from, in the encoding used between nodes. Thread-safe."""
        self._views.put(decode_view(view))
        self._inbox.wake()

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Caller = ANONYMOUS,
    ) -> int:
        return self._inbox.submit(request, payload, on_answer, who)

    def cancel(self, ticket: int) -> None:
        self._inbox.cancel(ticket)

    def look(self, look: Callable[[], None]) -> bool:
        """Calls `look` in the node's thread, where `node_stats` may run; see `CallInbox`."""
        return self._inbox.look(look)

    def node_stats(self, *, queues: bool) -> Generator[None, None, NodeStats]:
        """The node's own stats; each step must run in the node's thread, by `look`."""
        state = self._node_core.engine.state
        found = []
        if queues:
            found = yield from of_queues(state.queues, self._clock.now_us(), self._labels)
        cluster = {name: read() for name, read in self.cluster_figures.items()}
        outage = self._node_core.local_verdict.verdict().outage
        return NodeStats(self._status(), self._space.full, found, cluster, outage)

    def stop(self) -> None:
        """Hands over, answers all received and all waiting requests, then ends."""
        self._stopping = True
        self._inbox.wake()
        if self._thread.ident is not None:
            self._thread.join()

    # --- the node's thread -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            watch = Poller(
                self._edge.fd,
                self._peers,
                self._inbox.fd,
                self._background_writer.fd,
                self._config.awake_us,
            )
            while not self._stopping:
                patience_ms, soon = self._patience_ms(), self._answered == 1
                self._answered = 0
                self._round(watch.wait(patience_ms, soon=soon))
            self._catch_up()
            self._hand_over(watch)
            self._node_core.drain()
            self._round(CLIENTS | INBOX)
            self._catch_up()
        except Exception as error:
            self.failure = error
            if isinstance(error, StorageError):  # the disk's fault: its message says all
                log.critical("storage failed", extra=fields(error=error.message))
            else:
                log.critical("node failed", extra=fields(error=str(error)), exc_info=error)
        finally:
            self._background_writer.close()
            self._node_core.close()
            self._edge.close()
            self._peers.close()
            self._inbox.close()
            for on_answer in self._on_answer.values():
                on_answer(_FAILED, ())
            self._on_end()

    def _hand_over(self, watch: Poller) -> None:
        """Moves the leads to other nodes before this node ends, to keep the pause short."""
        began = recorded_at = self._clock.now_us()
        limits = {Handover.MOVING: _HAND_OVER_US, Handover.UNDER_REPLICATED: _REPLICATE_US}
        while True:
            now = self._clock.now_us()
            left = self._node_core.retire(hurry=now - began >= _LEVEL_US)
            if left is Handover.RECORDING:  # bounded by ``lease_handover.STOP_US_MAX``
                recorded_at = now
            elif now - recorded_at >= limits.get(left, 0):
                break
            self._round(watch.wait(20))
        if len(self._node_core.view.members) > 1:
            # Sockets close without waiting: a member that missed the view asks with a ping.
            until = self._clock.now_us() + _FAREWELL_US
            while self._clock.now_us() < until:
                self._round(watch.wait(20))

    def _patience_ms(self) -> int:
        """How long to wait for the network; rounded up, or the last millisecond would spin."""
        if self._again or self._edge.undelivered:
            self._again = False
            self._due = 0
            return 0
        self._due = self._node_core.next_due()
        wait_us = self._due - self._clock.now_us()
        return max(0, -(-wait_us // 1000))

    def _round(self, ready: int) -> None:  # noqa: C901 - one pass in order; a call costs every round
        """Runs one round; reads only from ready sources."""
        began = time.perf_counter()
        node_core, now = self._node_core, self._clock.now_us()
        if ready & WRITTEN:
            self._written()
            if ready == WRITTEN and now < self._due and not self._deferred:
                return
        received: Sequence[Received] = ()
        if ready & CLIENTS:
            received = self._edge.receive()
            if ready == CLIENTS:
                alone = len(received) == 1 and not self._background_writer.busy
                if alone and self._lone_push(received[0], now, began):
                    return
                if not received and now < self._due and not self._deferred:
                    return  # a ping, a part of a request, or a new connection
        node_core.begin(now)
        node_core.set_full(self._space.look(now))
        if self._edge.undelivered:
            undelivered, self._edge.undelivered = self._edge.undelivered, []
            node_core.give_back(undelivered)
        if ready & PEERS:
            for sender, messages in self._peers.receive():
                for message in messages:
                    node_core.receive(sender, message)
        for caller, request, payload, who in received:
            self._handle(request, payload, caller, who, plain=False)
        if ready & INBOX:
            for asked in self._inbox.take(ROUND_MESSAGES_MAX):
                self._handle_asked(asked)
            while not self._views.empty():
                node_core.core.learn(self._views.get())
        for peer in [peer for peer in self._deferred if self._response_budget.hears(peer)]:
            node_core.engine.serve_peer(peer)
        node_core.introduce()
        changes = node_core.end()
        if node_core.single and (
            self._background_writer.busy or (self._sync and _is_long(changes))
        ):
            self._write_behind(changes)
        else:
            self._catch_up()
            took = self._write(changes) if changes else 0.0
            self._say(*node_core.deliver())
            if changes:
                self._count(changes, took)
        if node_core.view.version != self._known_version:
            self._check_not_lost()
            self._know(node_core.view)
        if now >= self._look_at:
            self._look_at = now + _LOOK_US
            self._edge.tend()
            led = sum(each.bytes for each in node_core.engine.state.queues.values())
            # A followed replica is about as large as a led one.
            live = (
                led * node_core.holds // node_core.leads
                if node_core.leads
                else self._store.size_bytes()
            )
            self._compaction.look(live, self._space.free_bytes, full=self._space.full)
        if changes or ready:
            self.round_times.observe(time.perf_counter() - began)
        if ready & INBOX:
            for look in self._inbox.take_looks():
                look()

    def _lone_push(self, received: Received, now: int, began: float) -> bool:
        """Runs a round of one push, if `received` is one; does the bookkeeping after the answer."""
        caller, request, payload, who = received
        if type(request) is not wire.Push or self._quotas.limits_pushes:
            return False
        if who is not ANONYMOUS and who.principal is not None and who.principal.limits.on_pushes:
            return False
        single_push = (
            None if self._stopping else self._node_core.start_single_push(now, request, payload)
        )
        if single_push is None:
            return False
        perf_counter = time.perf_counter
        began_write = perf_counter()
        self._store.write(single_push.changes, sync=self._sync)
        took = perf_counter() - began_write if self._sync else 0.0
        self._edge.send(caller, single_push.answer, ())
        self._answered = 1
        self._node_core.enter(single_push)
        self._count(single_push.changes, took)
        self._node_core.set_full(self._space.look(now))
        self.round_times.observe(perf_counter() - began)
        return True

    def _write(self, changes: list[Change]) -> float:
        """Writes the round; returns the seconds of a synced write, 0 for any other."""
        sync = self._is_synced(changes)
        began = time.perf_counter()
        self._store.write(changes, sync=sync)
        return time.perf_counter() - began if sync else 0.0

    def _is_synced(self, changes: list[Change]) -> bool:
        # Promises and votes of a node are synced at any durability of messages.
        return self._sync or any(key[:1] == NODE for key, _ in changes)

    # --- background writes: callers wait, this thread does not ---

    def _write_behind(self, changes: list[Change]) -> None:
        """Gives the round's changes to the background writer, at once or with the next write; the
        answers of the round wait for that write."""
        background_writer = self._background_writer
        sends, answers = self._node_core.deliver()
        if changes:
            before = background_writer.gathered_bytes
            background_writer.gather(changes, sync=self._is_synced(changes))
            self._space.written(background_writer.gathered_bytes - before)
        if background_writer.gathered:
            self._owed_next += answers
        else:
            self._owed += answers  # they rest on changes handed over before
        if not background_writer.busy:
            background_writer.begin()
            self._owed, self._owed_next = self._owed_next, []
        elif background_writer.gathered_bytes >= ROUND_BYTES_MAX:
            self._written()
        if sends:
            self._catch_up()
            self._say(sends, [])

    def _written(self) -> None:
        """Waits for the write under way, begins the next write, and sends the answers owed."""
        background_writer = self._background_writer
        took = background_writer.settle()
        self._commits += 1
        if self._sync:
            self.fsync_times.observe(took)
        answers, self._owed = self._owed, self._owed_next
        self._owed_next = []
        if background_writer.gathered:
            background_writer.begin()
        else:
            answers += self._owed
            self._owed = []
        self._say([], answers)

    def _catch_up(self) -> None:
        """Finishes all background writes, and sends their answers."""
        while self._background_writer.busy:
            self._written()

    def _count(self, changes: list[Change], sync_s: float) -> None:
        """Updates the stats after the answer, so that no caller waits for the stats."""
        self._commits += 1
        if sync_s:
            self.fsync_times.observe(sync_s)
        self._space.written(sum([len(value) for _, value in changes if value]))

    def _say(self, sends: Sequence[tuple[str, AnyMessage]], answers: Sequence[Answered]) -> None:
        if sends:
            by_peer: dict[str, list[AnyMessage]] = {}
            for to, message in sends:
                by_peer.setdefault(to, []).append(message)
            for to, messages in by_peer.items():
                self._peers.send(to, messages)
        self._answered = len(answers)
        for answered in answers:
            self._send(answered)
        if self._deferred and any(map(self._response_budget.hears, self._deferred)):
            self._again = True

    def _know(self, view: View) -> None:
        """Passes the members to the peer edge: their addresses, and the keys to admit."""
        self._known_version = view.version
        self._peers.know({node: (each.peer, each.key) for node, each in view.members.items()})

    def _member(self) -> Member:
        """This node as a member of the view."""
        advertised = self._config.advertised
        return Member(
            str(advertised(self._peers.address)), self._directory.keys.public, self.grpc_address,
            str(advertised(self._edge.address)), "active", self._config.witness,
            self._data_key.public,
        )  # fmt: skip

    def _handle(
        self, request: wire.AnyRequest, payload: Sequence[bytes], to: object, who: Caller, *,
        plain: bool,
    ) -> None:  # fmt: skip
        if self._audit is not None and audited(request):
            self._audited[to] = who, request
        state = self._node_core.engine.state
        try:
            self._quotas.check(request, payload, who.principal, state.queues, self._node_core.now)
        except WeftError as error:
            state.answer(to, wire.Failure(error.code, error.message, error.retriable))
            return
        if self._stopping:
            self._node_core.engine.state.answer(to, _STOPPING)
        elif isinstance(request, wire.StopWaiting) and isinstance(to, EdgeCaller):
            self._node_core.cancel(to._replace(rid=request.call))
            state.answer(to, wire.Done(0))
        elif isinstance(request, wire.Status):
            self._node_core.engine.state.answer(to, self._status())
        elif isinstance(request, wire.Join) and (refusal := refusal_of(request)) is not None:
            self._node_core.engine.state.answer(to, refusal)
        else:
            self._node_core.handle(request, payload, to, plain=plain)

    def _handle_asked(self, asked: QueuedCall) -> None:
        if asked.request is None:
            if (found := self._audited.pop(asked.ticket, None)) is not None:
                assert self._audit is not None
                self._audit.done(*found, _GONE)  # the action may be executed all the same
            on_answer = self._on_answer.pop(asked.ticket, None)
            if on_answer is not None:
                self._node_core.cancel(asked.ticket)
                self._cancelled[asked.ticket] = on_answer
                if len(self._cancelled) > _CANCELLED_MAX:
                    del self._cancelled[next(iter(self._cancelled))]
            return
        assert asked.on_answer is not None
        self._on_answer[asked.ticket] = asked.on_answer
        self._handle(asked.request, asked.payload, asked.ticket, asked.who, plain=True)

    def _send(self, answered: Answered) -> None:
        to, answer, payload = answered[:3]
        if self._audited and (found := self._audited.pop(to, None)) is not None:
            assert self._audit is not None
            self._audit.done(*found, answer)
        if isinstance(to, EdgeCaller):
            self._response_budget.told(to)
            sent = self._edge.send(to, answer, payload)
        else:
            assert isinstance(to, int)
            on_answer = self._on_answer.pop(to, None) or self._cancelled.pop(to, None)
            sent = on_answer is not None
            if on_answer is not None:
                on_answer(answer, payload)
        if not sent and isinstance(answer, wire.Popped) and answer.lent:
            self._node_core.give_back(answer.lent)
            self._again = True

    def _status(self) -> wire.StatusInfo:
        queues = self._node_core.engine.state.queues.values()
        return wire.StatusInfo(
            self._directory.node,
            version("weft"),
            (self._clock.now_us() - self._started_us) // 1000,
            self._config.durability,
            len(queues),
            sum(each.ready for each in queues),
            sum(each.leased for each in queues),
            sum(each.delayed for each in queues),
            self._store.size_bytes(),
            self._space.free_bytes,
            self._space.reserve_bytes,
            self._commits,
            process_usage.cpu_us(),
            process_usage.resident_bytes(),
            self._peers.messages,
            self._peers.bytes,
            self._node_core.popping.searches,
            self._node_core.popping.hops,
            self._node_core.popping.prefetched.stolen,
            self._clock.now_us() // 1000,
            self._peers.pings,
            self._node_core.popping.prefetched.returned,
            self._space.full,
            self._space.limit_bytes,
            sorted(self._node_core.core.full_peers),
        )


def _is_long(changes: list[Change]) -> bool:
    """True if the write takes long enough to be worth waking another thread."""
    return sum([len(value) for _, value in changes if value]) >= BEHIND_BYTES_MIN
