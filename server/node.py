"""The driver: the one place where the pure engine meets the network, the disk and the clock.

One thread does everything, round by round: take what has come (up to a round's worth), let the
engine work, write all changes with one synced write, then send the answers. While the disk is busy
requests pile up in the sockets, and the next round takes them together: that is the group commit,
and it adapts by itself. Nothing is answered before it is written, because the answers are asked
for after the write.

A storage error ends the node: LevelDB may lose acknowledged writes once a write has failed, so
nothing is acknowledged after that. The other edges (gRPC) live in threads of their own and reach
this one through the inbox.
"""

from __future__ import annotations

import logging
import resource
import secrets
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Final

import zmq

from weft.errors import StorageError
from weft.persistence.directory import DataDirectory
from weft.persistence.leveldb import WRITE_BUFFER_BYTES
from weft.persistence.store import Store
from weft.proto import wire

from .address import Address
from .ask import OnAnswer
from .clock import Clock
from .compaction import Compaction
from .config import Config
from .engine.engine import Engine
from .engine.state import Answered
from .inbox import Asked, Inbox
from .log import fields
from .space import Space
from .zmq_edge import ROUND_MESSAGES_MAX, Caller, ZmqEdge

log = logging.getLogger(__name__)

#: How often the store's size is compared with what is alive.
_LOOK_US: Final = 1_000_000
_FAILED: Final = wire.Failure(
    "UNAVAILABLE", "the node has failed: this may or may not have been done", True
)
_STOPPING: Final = wire.Failure("SHUTTING_DOWN", "the node is stopping", True)


class Node:
    def __init__(self, config: Config, directory: DataDirectory, store: Store) -> None:
        self._config = config
        self._directory = directory
        self._store = store
        self._sync = config.durability == "disk"
        self._clock = Clock()
        self._started_us = self._clock.now_us()
        self._space = Space(directory.free_bytes, config.reserve_bytes, WRITE_BUFFER_BYTES)
        self._compaction = Compaction(store)
        self._inbox = Inbox()
        self._edge = ZmqEdge(config.zmq_address)
        self._engine = Engine(
            store,
            partitions=directory.partitions,
            durability=config.durability,
            cache_bytes=config.cache_bytes,
            entropy=lambda: secrets.randbits(63),
        )
        self._on_answer: dict[int, OnAnswer] = {}
        self._thread = threading.Thread(target=self._run, name="weft-node", daemon=True)
        self._stopping = False
        self._again = False  # a send has put something back: no waiting before the next round
        self._commits = 0
        self._look_at = 0
        self._on_end: Callable[[], None] = lambda: None
        #: Why the node ended by itself, if it did.
        self.failure: Exception | None = None
        #: The gRPC address that clients are told; its edge is started after this node.
        self.grpc_address = ""

    def start(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Rebuilds the queues from the store, then serves. `on_end` is called when it ends."""
        self._on_end = on_end
        self._engine.recover(self._clock.now_us())
        self._thread.start()

    @property
    def zmq_address(self) -> Address:
        return self._edge.address

    def submit(
        self, request: wire.AnyRequest, payload: Sequence[bytes], on_answer: OnAnswer
    ) -> int:
        return self._inbox.submit(request, payload, on_answer)

    def cancel(self, ticket: int) -> None:
        self._inbox.cancel(ticket)

    def stop(self) -> None:
        """Answers everything that has come and all who wait, then ends. Returns when it has."""
        self._stopping = True
        self._inbox.wake()
        if self._thread.ident is not None:
            self._thread.join()

    # --- the node's thread -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            poller = zmq.Poller()
            poller.register(self._edge.socket, zmq.POLLIN)
            poller.register(self._inbox.fd, zmq.POLLIN)
            while not self._stopping:
                ready = {source for source, _ in poller.poll(self._patience_ms())}
                self._round(self._edge.socket in ready, self._inbox.fd in ready)
            self._engine.drain()
            self._round(True, True)
        except Exception as error:
            self.failure = error
            if isinstance(error, StorageError):  # the disk's fault: its message says all
                log.critical("storage failed", extra=fields(error=error.message))
            else:
                log.critical("node failed", extra=fields(error=str(error)), exc_info=error)
        finally:
            self._engine.close()
            self._edge.close()
            self._inbox.close()
            for on_answer in self._on_answer.values():
                on_answer(_FAILED, ())
            self._on_end()

    def _patience_ms(self) -> int:
        """How long the network may be waited for; rounded up, or the last millisecond spins."""
        if self._again:
            self._again = False
            return 0
        wait_us = self._engine.next_due() - self._clock.now_us()
        return max(0, -(-wait_us // 1000))

    def _round(self, network: bool, inbox: bool) -> None:
        """One round; only a source that has something is looked at."""
        engine, now = self._engine, self._clock.now_us()
        engine.begin(now)
        engine.set_full(self._space.look(now))
        if network:
            for caller, request, payload in self._edge.receive():
                self._handle(request, payload, caller)
        if inbox:
            for asked in self._inbox.take(ROUND_MESSAGES_MAX):
                self._handle_asked(asked)
        changes = engine.end()
        if changes:
            self._store.write(changes, sync=self._sync)
            self._commits += 1
            self._space.written(sum(len(value) for _, value in changes if value))
        for answered in engine.answers():
            self._send(answered)
        if now >= self._look_at:
            self._look_at = now + _LOOK_US
            live = sum(queue.bytes for queue in engine.state.queues.values())
            self._compaction.look(live, self._space.free_bytes, full=self._space.full)

    def _handle(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None:
        if self._stopping:
            self._engine.state.answer(to, _STOPPING)
        elif isinstance(request, wire.View):
            self._engine.state.answer(to, self._view())
        elif isinstance(request, wire.Status):
            self._engine.state.answer(to, self._status())
        else:
            self._engine.handle(request, payload, to)

    def _handle_asked(self, asked: Asked) -> None:
        if asked.request is None:
            if self._on_answer.pop(asked.ticket, None) is not None:
                self._engine.cancel(asked.ticket)
            return
        assert asked.on_answer is not None
        self._on_answer[asked.ticket] = asked.on_answer
        self._handle(asked.request, asked.payload, asked.ticket)

    def _send(self, answered: Answered) -> None:
        to, answer, payload = answered
        if isinstance(to, Caller):
            sent = self._edge.send(to, answer, payload)
        else:
            assert isinstance(to, int)
            on_answer = self._on_answer.pop(to, None)
            sent = on_answer is not None
            if on_answer is not None:
                on_answer(answer, payload)
        if not sent and isinstance(answer, wire.Popped) and answer.lent:
            self._engine.give_back(answer.lent)
            self._again = True

    def _view(self) -> wire.ViewInfo:
        zmq_address = self._config.advertised(self.zmq_address)
        node = wire.NodeInfo(self._directory.node, self.grpc_address, str(zmq_address), "active")
        return wire.ViewInfo(self._directory.cluster, 1, self._directory.partitions, [node])

    def _status(self) -> wire.StatusInfo:
        queues = self._engine.state.queues.values()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return wire.StatusInfo(
            self._directory.node,
            version("weft"),
            (self._clock.now_us() - self._started_us) // 1000,
            self._config.durability,
            len(queues),
            sum(queue.ready for queue in queues),
            sum(queue.leased for queue in queues),
            sum(queue.delayed for queue in queues),
            self._store.size_bytes(),
            self._space.free_bytes,
            self._space.reserve_bytes,
            self._commits,
            int((usage.ru_utime + usage.ru_stime) * 1_000_000),
            _rss_bytes(),
        )


def _rss_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
