"""The driver: the one place where the pure node core meets the network, the disk and the clock.

One thread does everything, in rounds (`_round`): receive from clients and other nodes (up to a
round's worth), run the node core, persist everything that the core has produced, then send messages
and answers. While the disk is busy, requests gather in the sockets, and the next round takes them
together: a group commit that adapts by itself. The committer (`committer.py`) upholds "persist
before you send". When one push arrives and there is no other work, the round is cut short
(`_single_push`): work not needed for the write is done after the answer.

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
from typing import Final

from weft.dht.core import decode_view
from weft.dht.messages import AnyMessage
from weft.dht.view import Member, View
from weft.errors import InvalidArgument, StorageError, UsageError
from weft.persistence.background_writer import BackgroundWriter
from weft.persistence.directory import DataDirectory
from weft.persistence.store import Store
from weft.proto import wire
from weft.server.address import Address
from weft.server.config import LEARNERS_DEFAULT, Config
from weft.server.core.node_core import NodeCore
from weft.server.core.ready import Ready
from weft.server.edges.edge import ROUND_MESSAGES_MAX, Received
from weft.server.edges.peer_edge import PeerEdge
from weft.server.edges.response_budget import ResponseBudget
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.server.engine.state import Answered
from weft.server.observability.histogram import Histogram
from weft.server.observability.log import fields
from weft.server.observability.node_stats import NodeStats
from weft.server.security.access import Access
from weft.server.security.audit import Audit
from weft.server.security.caller import ANONYMOUS, Caller
from weft.server.security.data_key import data_key
from weft.server.security.quota import Quotas

from .call_inbox import CallInbox
from .client_calls import ClientCalls
from .clock import Clock
from .committer import Committer
from .compaction import Compaction
from .disk_reserve import DiskReserve
from .leads_handover import hand_over
from .node_api import OnAnswer
from .node_status import NodeStatus
from .poller import CLIENTS, INBOX, PEERS, WRITTEN, Poller

log = logging.getLogger(__name__)

#: The interval of comparisons of the store's size with the live bytes.
_LOOK_US: Final = 1_000_000
#: Rounds in which a single-node cluster takes the lead of all partitions, before serving.
_FIRST_ROUNDS_MAX: Final = 20


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
        self._directory = directory
        self._store = store
        self._background_writer = BackgroundWriter(store)
        self._clock = Clock()
        self._disk_reserve = DiskReserve(
            directory.free_bytes, store.size_bytes, config.reserve_bytes
        )
        self._compaction = Compaction(store)
        self._inbox = CallInbox()
        self._views: queue.SimpleQueue[View] = queue.SimpleQueue()
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
        self._response_budget = ResponseBudget(self._edge)
        self._node_core = NodeCore(
            directory.node,
            directory.cluster,
            self._background_writer,
            partitions=directory.partitions,
            durability=config.durability,
            cache_bytes=config.cache_bytes,
            entropy=lambda: secrets.randbits(63),
        )
        engine = self._node_core.engine
        engine.limit(config.in_flight_max, self._response_budget)
        #: Pops deferred because their connection's response budget is used up.
        self._deferred = engine.deferred
        self._committer = Committer(
            store, self._background_writer, self._disk_reserve, self._send,
            sync=config.durability == "disk",
        )  # fmt: skip
        self._status = NodeStatus(
            directory, config.durability, self._node_core, store, self._disk_reserve,
            self._committer, self._peers, self._clock,
        )  # fmt: skip
        self._calls = ClientCalls(
            self._node_core, self._edge, self._response_budget,
            Quotas(config, self._clock.now_us()), audit, self._status.info,
        )  # fmt: skip
        self._known_version = 0  # the view known to the peer edge
        self._thread = threading.Thread(target=self._run, name="weft-node", daemon=True)
        self._stopping = False
        self._again = False  # a send returned messages, or made room: the next round is now
        self._answered = 0  # answers of the last round
        self._due = 0  # time at which the node core has work without a request
        self._look_at = 0
        #: Durations of rounds with work, and of their synced writes.
        self.round_times, self.fsync_times = Histogram(), self._committer.fsync_times
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
        return self._status.stats(queues=queues)

    def stop(self) -> None:
        """Hands over, answers all received and all waiting requests, then ends."""
        self._stopping = self._calls.stopping = True
        self._inbox.wake()
        if self._thread.ident is not None:
            self._thread.join()

    # --- the node's thread -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            poller = Poller(
                self._edge.fd,
                self._peers,
                self._inbox.fd,
                self._background_writer.fd,
                self._config.awake_us,
            )
            while not self._stopping:
                patience_ms, soon = self._patience_ms(), self._answered == 1
                self._answered = 0
                self._round(poller.wait(patience_ms, soon=soon))
            self._committer.flush()
            hand_over(self._node_core, self._clock, lambda: self._round(poller.wait(20)))
            self._node_core.drain()
            self._round(CLIENTS | INBOX)
            self._committer.flush()
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
            self._calls.fail_all()
            self._on_end()

    def _patience_ms(self) -> int:
        """How long to wait for the network; rounded up, or the last millisecond would spin."""
        if self._again or self._edge.undelivered:
            self._again = False
            self._due = 0
            return 0
        self._due = self._node_core.next_due()
        wait_us = self._due - self._clock.now_us()
        return max(0, -(-wait_us // 1000))

    def _round(self, sources: int) -> None:
        """Runs one round: receive, step, persist, send, tend. Reads only from ready sources."""
        began, now = time.perf_counter(), self._clock.now_us()
        if sources & WRITTEN:
            self._committer.written()
        received = self._edge.receive() if sources & CLIENTS else ()
        if self._is_empty(sources, received, now) or self._single_push(sources, received, now):
            return
        ready = self._step(sources, received, now)
        self._committer.commit(ready, single=self._node_core.single)
        self._tend(now)
        if ready.writes or sources:
            self.round_times.observe(time.perf_counter() - began)
        if sources & INBOX:
            for look in self._inbox.take_looks():
                look()

    def _is_empty(self, sources: int, received: Sequence[Received], now: int) -> bool:
        """True if the round has no work: a write ended, or a client sent a ping, a part of a
        request, or connected."""
        one_source = sources in (WRITTEN, CLIENTS)
        return one_source and not received and now < self._due and not self._deferred

    def _step(self, sources: int, received: Sequence[Received], now: int) -> Ready:
        """Gives the input of the round to the node core; returns everything the core produced."""
        node_core, calls = self._node_core, self._calls
        node_core.begin(now)
        node_core.set_full(self._disk_reserve.look(now))
        if self._edge.undelivered:
            undelivered, self._edge.undelivered = self._edge.undelivered, []
            node_core.give_back(undelivered)
        if sources & PEERS:
            for sender, messages in self._peers.receive():
                for message in messages:
                    node_core.receive(sender, message)
        for caller, request, payload, who in received:
            calls.handle(request, payload, caller, who, plain=False)
        if sources & INBOX:
            for call in self._inbox.take(ROUND_MESSAGES_MAX):
                calls.handle_queued(call)
            while not self._views.empty():
                node_core.core.learn(self._views.get())
        for peer in [peer for peer in self._deferred if self._response_budget.hears(peer)]:
            node_core.engine.serve_peer(peer)
        node_core.introduce()
        return node_core.end()

    def _single_push(self, sources: int, received: Sequence[Received], now: int) -> bool:
        """Runs a round that consists of one push, if it is one and there is no other work: the
        write and the answer first, all bookkeeping afterwards."""
        if sources != CLIENTS or len(received) != 1 or self._background_writer.busy:
            return False
        caller, request, payload, who = received[0]
        if type(request) is not wire.Push or self._stopping or self._calls.limits_push(who):
            return False
        began = time.perf_counter()
        single_push = self._node_core.start_single_push(now, request, payload)
        if single_push is None:
            return False
        self._committer.commit_inline(
            Ready(single_push.changes, [], [Answered(caller, single_push.answer)])
        )
        self._node_core.enter(single_push)
        self._node_core.set_full(self._disk_reserve.look(now))
        self.round_times.observe(time.perf_counter() - began)
        return True

    def _send(self, sends: Sequence[tuple[str, AnyMessage]], answers: Sequence[Answered]) -> None:
        """Sends what the committer has persisted."""
        if sends:
            by_peer: dict[str, list[AnyMessage]] = {}
            for to, message in sends:
                by_peer.setdefault(to, []).append(message)
            for to, messages in by_peer.items():
                self._peers.send(to, messages)
        self._answered = len(answers)
        for answered in answers:
            if not self._calls.answer(answered):
                self._again = True
        if self._deferred and any(map(self._response_budget.hears, self._deferred)):
            self._again = True

    def _tend(self, now: int) -> None:
        """Does the work of the driver that belongs to no request."""
        node_core = self._node_core
        if node_core.view.version != self._known_version:
            self._check_not_lost()
            self._known_version = node_core.view.version
            # The peer edge needs the members' addresses, and the keys to admit.
            members = node_core.view.members.items()
            self._peers.know({node: (each.peer, each.key) for node, each in members})
        if now >= self._look_at:
            self._look_at = now + _LOOK_US
            self._edge.tend()
            self._compaction.look(
                self._live_bytes(), self._disk_reserve.free_bytes, full=self._disk_reserve.full
            )

    def _live_bytes(self) -> int:
        """The estimated size of a store without garbage."""
        node_core = self._node_core
        if not node_core.leads:
            return self._store.size_bytes()
        led = sum(each.bytes for each in node_core.engine.queues.values())
        # A followed replica is about as large as a led one.
        return led * node_core.holds // node_core.leads

    def _member(self) -> Member:
        """This node as a member of the view."""
        advertised = self._config.advertised
        return Member(
            str(advertised(self._peers.address)), self._directory.keys.public, self.grpc_address,
            str(advertised(self._edge.address)), "active", self._config.witness,
            self._data_key.public,
        )  # fmt: skip
