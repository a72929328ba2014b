"""A node: its parts, the calls of other threads, and the thread that runs everything else.

The node is the driver, the one place where the pure node core meets the network, the disk and the
clock. One thread does everything, in rounds (`round.py`). Other threads reach this thread through
the inbox.

A storage error ends the node: LevelDB may lose acknowledged writes once a write has failed, so the
node acknowledges nothing after that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Final

from weft.dht.core import decode_view
from weft.dht.view import Member
from weft.errors import InvalidArgument, StorageError
from weft.persistence.background_writer import BackgroundWriter
from weft.persistence.directory import DataDirectory
from weft.persistence.store import Store
from weft.proto import wire
from weft.server.address import Address
from weft.server.config import LEARNERS_DEFAULT, Config
from weft.server.core.node_core import NodeCore
from weft.server.edges.peer_edge import PeerEdge
from weft.server.edges.response_budget import ResponseBudget
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.server.observability.log import fields
from weft.server.observability.node_stats import NodeStats
from weft.server.security.access import Access
from weft.server.security.audit import Audit
from weft.server.security.caller import ANONYMOUS, Caller
from weft.server.security.data_key import data_key
from weft.server.security.quota import Quotas

from .batch_names import BatchNames
from .call_inbox import CallInbox
from .client_calls import ClientCalls
from .cluster_join import check_not_lost
from .disk_reserve import DiskReserve
from .leads_handover import hand_over
from .node_api import OnAnswer
from .node_status import NodeStatus
from .poller import CLIENTS, INBOX, Clock, Poller, random_numbers
from .round import Rounds

log = logging.getLogger(__name__)

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
        self._background_writer = BackgroundWriter(store)
        self._clock = Clock()
        sizes = directory.free_bytes, store.size_bytes
        self._disk_reserve = DiskReserve(*sizes, config.reserve_bytes)
        self._inbox = CallInbox()
        self._data_key = data_key(directory.keys)
        self.edge = self._edge = ZmtpEdge(  # for the node's thread only, by `look`
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
        response_budget = ResponseBudget(self._edge)
        self._node_core = NodeCore(
            directory.node,
            directory.cluster,
            self._background_writer,
            partitions=directory.partitions,
            durability=config.durability,
            cache_bytes=config.cache_bytes,
            entropy=random_numbers().__next__,
        )
        self.batch_names = BatchNames(self._node_core)
        self._node_core.engine.limit(config.in_flight_max, response_budget)
        self._calls = ClientCalls(
            self._node_core, self._edge, response_budget,
            Quotas(config, self._clock.now_us()), audit, lambda: self._status.info(),
        )  # fmt: skip
        self._rounds = Rounds(
            self._node_core, self._calls, self._edge, self._peers, self._inbox,
            response_budget, store, self._background_writer, self._disk_reserve, self._clock,
            sync=config.durability == "disk", share_period_us=config.share_period_us,
        )  # fmt: skip
        #: Durations of rounds with work, and of their synced writes.
        self.round_times = self._rounds.round_times
        self.fsync_times = self._rounds.committer.fsync_times
        #: How long decided multicasts waited for their place in the queues.
        self.convoy_times = self._node_core.engine.state.proposals.convoy
        self._status = NodeStatus(
            directory, config.durability, self._node_core, store, self._disk_reserve,
            self._rounds.committer, self._peers, self._clock,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="weft-node", daemon=True)
        self._stopping = False
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
        check_not_lost(node_core.core)
        if 0 <= wanted != node_core.view.learners:
            raise InvalidArgument(
                f"learners is {wanted}, but the cluster has {node_core.view.learners}, which "
                "stays: leave it out"
            )
        for _ in range(_FIRST_ROUNDS_MAX):
            # The only member of a cluster leads all partitions before the first request.
            if len(node_core.view.members) != 1 or node_core.leads == len(node_core.view.places):
                break
            self._rounds.run(0)
        self._thread.start()

    @property
    def grpc_address(self) -> str:
        """The gRPC address advertised to clients; its edge starts after this node."""
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
        self._rounds.views.put(decode_view(view))
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
            rounds = self._rounds
            while not self._stopping:
                patience_ms, soon = rounds.patience_ms(), rounds.answered == 1
                rounds.answered = 0
                rounds.run(poller.wait(patience_ms, soon=soon))
            rounds.due = 0  # no round is short from now on
            rounds.committer.flush()
            hand_over(self._node_core, self._clock, lambda: rounds.run(poller.wait(20)))
            self._node_core.drain()
            rounds.run(CLIENTS | INBOX)
            rounds.committer.flush()
        except Exception as error:
            self.failure = error
            if isinstance(error, StorageError):  # the disk's fault: its message says all
                log.critical("storage failed", extra=fields(error=error.message))
            else:
                log.critical("node failed", extra=fields(error=str(error)), exc_info=error)
        finally:
            self._background_writer.close()
            self._node_core.close()
            self._calls.fail_all()  # before the edge closes: gRPC calls are answered on it
            self._edge.close()
            self._peers.close()
            self._inbox.close()
            self._on_end()

    def _member(self) -> Member:
        """This node as a member of the view."""
        advertised = self._config.advertised
        return Member(
            str(advertised(self._peers.address)), self._directory.keys.public, self.grpc_address,
            str(advertised(self._edge.address)), "active", self._config.witness,
            self._data_key.public, self._config.zone,
        )  # fmt: skip
