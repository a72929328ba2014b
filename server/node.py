"""The driver: the one place where the pure loom meets the network, the disk and the clock.

One thread does everything, round by round: take what has come from clients and other nodes (up to a
round's worth), let the loom work, write all changes with one synced write, then send messages and
answers. While the disk is busy requests pile up in the sockets, and the next round takes them
together: that is the group commit, and it adapts by itself. Nothing is said before it is written,
because what there is to say is asked for after the write. When one push comes and there is nothing
else to do, the round is cut short (`_lone_push`): what need not be done before the write is done
when its caller has his answer.

A long write that is synced, of a node that is its whole cluster, is handed to the scribe
(`persistence.scribe`), and this thread goes on: the rounds that follow are one write, the next, and
what each has to say is owed until the write that it is in, or rests on, has ended. In a cluster
what is said depends on what others have, too, and a round ends with its own write.

A storage error ends the node: LevelDB may lose acknowledged writes once a write has failed, so
nothing is acknowledged after that. The other edges (gRPC) live in threads of their own and reach
this one through the inbox.
"""

from __future__ import annotations

import logging
import queue
import resource
import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from importlib.metadata import version
from typing import Final

from weft.dht.core import decode_view
from weft.dht.messages import AnyMessage
from weft.dht.view import Member, View
from weft.errors import InvalidArgument, StorageError, WeftError
from weft.limits import KIB
from weft.persistence.directory import DataDirectory
from weft.persistence.layout import NODE
from weft.persistence.leveldb import WRITE_BUFFER_BYTES
from weft.persistence.scribe import Scribe
from weft.persistence.store import Change, Store
from weft.proto import wire

from . import cluster_figures
from .access import Access
from .address import Address
from .ask import OnAnswer
from .audit import Audit, audited
from .clock import Clock
from .compaction import Compaction
from .config import LEARNERS_DEFAULT, Config
from .data_key import data_key
from .direct_edge import DirectEdge
from .edge import ROUND_BYTES_MAX, ROUND_MESSAGES_MAX, Caller, Received
from .engine.state import Answered
from .figures import Figures, Labels, of_queues
from .hearing import Hearing
from .inbox import Asked, Inbox
from .join import check_newcomer
from .log import fields
from .loom.loom import Loom
from .peers import PeerEdge
from .quota import Quotas
from .space import Space
from .timing import Timing
from .watch import CLIENTS, INBOX, PEERS, WRITTEN, Watch
from .who import NOBODY, Who

log = logging.getLogger(__name__)

#: How often the store's size is compared with what is alive.
_LOOK_US: Final = 1_000_000
#: Rounds in which a node that is alone takes the lead of everything, before it serves.
_FIRST_ROUNDS_MAX: Final = 20
#: How long a node that stops may take to hand over what it leads.
_HAND_OVER_US: Final = 2_000_000
#: How long it is still there for those who have not heard of that; longer than between two pings.
_FAREWELL_US: Final = 300_000
#: A synced write of so much is carried out by the scribe: two threads are woken for it, and
#: meanwhile this one handles what has come. A smaller one is done before they are awake.
BEHIND_BYTES_MIN: Final = 64 * KIB
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
        #: Actions that are written down when they are answered.
        self._audited: dict[object, tuple[Who, wire.AnyRequest]] = {}
        self._directory = directory
        self._store = store
        self._scribe = Scribe(store)
        #: Answers that wait for the write under way, and for the one after it.
        self._owed: list[Answered] = []
        self._owed_next: list[Answered] = []
        self._sync = config.durability == "disk"
        self._clock = Clock()
        self._started_us = self._clock.now_us()
        self._space = Space(directory.free_bytes, config.reserve_bytes, WRITE_BUFFER_BYTES)
        self._compaction = Compaction(store)
        self._inbox = Inbox()
        self._views: queue.SimpleQueue[View] = queue.SimpleQueue()
        self._quotas = Quotas(config, self._started_us)
        self._data_key = data_key(directory.keys)
        self._edge = DirectEdge(
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
        self._loom = Loom(
            directory.node,
            directory.cluster,
            self._scribe,
            partitions=directory.partitions,
            durability=config.durability,
            cache_bytes=config.cache_bytes,
            entropy=lambda: secrets.randbits(63),
        )
        self._loom.engine.state.leases.most = config.in_flight_max
        self._hearing = self._loom.engine.state.ears = Hearing(self._edge)
        #: Those who wait for something that is there, and were deaf when it came.
        self._passed = self._loom.engine.state.passed
        self._known_version = 0
        self._on_answer: dict[int, OnAnswer] = {}
        self._thread = threading.Thread(target=self._run, name="weft-node", daemon=True)
        self._stopping = False
        self._again = False  # a send has put something back, or made room: the next round is now
        self._answered = 0  # in the last round
        self._due = 0  # when the loom has something to do although nobody asks
        self._commits = 0
        self._look_at = 0
        self._labels = Labels()
        #: How long the rounds took that had something to do, and their synced writes.
        self.round_times, self.fsync_times = Timing(), Timing()
        #: What the cluster adds to the figures.
        self.cluster_figures = cluster_figures.of(self._loom.core)
        self._on_end: Callable[[], None] = lambda: None
        #: Why the node ended by itself, if it did.
        self.failure: Exception | None = None
        self._grpc_address = ""

    def start(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Rebuilds what it knows from the store, then serves. `on_end` is called when it ends."""
        self._on_end = on_end
        loom, wanted = self._loom, self._config.learners
        if not self._config.seeds and not loom.core.founded:
            loom.found(self._member(), LEARNERS_DEFAULT if wanted < 0 else wanted)
        loom.recover(self._clock.now_us())
        if 0 <= wanted != loom.view.learners:
            raise InvalidArgument(
                f"learners is {wanted}, and this cluster was made with {loom.view.learners}, which "
                "stays: leave it out"
            )
        for _ in range(_FIRST_ROUNDS_MAX):
            # Whoever is alone in its cluster leads all of it before the first request.
            if len(loom.view.members) != 1 or loom.leads == len(loom.view.places):
                break
            self._round(0)
        self._thread.start()

    @property
    def grpc_address(self) -> str:
        """The gRPC address that clients are told; its edge is started after this node."""
        return self._grpc_address

    @grpc_address.setter
    def grpc_address(self, address: str) -> None:
        self._grpc_address = address
        self._loom.me = self._member()

    @property
    def zmq_address(self) -> Address:
        return self._edge.address

    @property
    def peer_address(self) -> Address:
        """Where it listens for the other nodes."""
        return self._peers.address

    @property
    def has_view(self) -> bool:
        """Whether it knows its cluster."""
        return bool(self._loom.view.members)

    def adopt(self, view: bytes) -> None:
        """A view to go on from, as nodes hand it to each other. From any thread."""
        self._views.put(decode_view(view))
        self._inbox.wake()

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Who = NOBODY,
    ) -> int:
        return self._inbox.submit(request, payload, on_answer, who)

    def cancel(self, ticket: int) -> None:
        self._inbox.cancel(ticket)

    def look(self, look: Callable[[], None]) -> bool:
        """Has `look` called in the node's thread, where `figures` may be read; see `Inbox.look`."""
        return self._inbox.look(look)

    def figures(self, *, queues: bool) -> Generator[None, None, Figures]:
        """What the node knows of itself: each step is to be taken in its own thread, by `look`."""
        state = self._loom.engine.state
        found = []
        if queues:
            found = yield from of_queues(state.queues, self._clock.now_us(), self._labels)
        cluster = {name: read() for name, read in self.cluster_figures.items()}
        return Figures(self._status(), self._space.full, found, cluster)

    def stop(self) -> None:
        """Hands over, answers everything that has come and all who wait, then ends."""
        self._stopping = True
        self._inbox.wake()
        if self._thread.ident is not None:
            self._thread.join()

    # --- the node's thread -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            watch = Watch(
                self._edge.fd, self._peers, self._inbox.fd, self._scribe.fd, self._config.awake_us
            )
            while not self._stopping:
                patience_ms, soon = self._patience_ms(), self._answered == 1
                self._answered = 0
                self._round(watch.wait(patience_ms, soon=soon))
            self._catch_up()
            self._hand_over(watch)
            self._loom.drain()
            self._round(CLIENTS | INBOX)
            self._catch_up()
        except Exception as error:
            self.failure = error
            if isinstance(error, StorageError):  # the disk's fault: its message says all
                log.critical("storage failed", extra=fields(error=error.message))
            else:
                log.critical("node failed", extra=fields(error=str(error)), exc_info=error)
        finally:
            self._scribe.close()
            self._loom.close()
            self._edge.close()
            self._peers.close()
            self._inbox.close()
            for on_answer in self._on_answer.values():
                on_answer(_FAILED, ())
            self._on_end()

    def _hand_over(self, watch: Watch) -> None:
        """Other nodes lead what this one led before it is gone: the pause is a short one."""
        until = self._clock.now_us() + _HAND_OVER_US
        while self._loom.retire() and self._clock.now_us() < until:
            self._round(watch.wait(20))
        if len(self._loom.view.members) > 1:
            # Sockets close without waiting: whoever has missed the news asks with its next ping.
            until = self._clock.now_us() + _FAREWELL_US
            while self._clock.now_us() < until:
                self._round(watch.wait(20))

    def _patience_ms(self) -> int:
        """How long the network may be waited for; rounded up, or the last millisecond spins."""
        if self._again:
            self._again = False
            self._due = 0
            return 0
        self._due = self._loom.next_due()
        wait_us = self._due - self._clock.now_us()
        return max(0, -(-wait_us // 1000))

    def _round(self, ready: int) -> None:
        """One round; only a source that has something is looked at."""
        began = time.perf_counter()
        loom, now = self._loom, self._clock.now_us()
        if ready & WRITTEN:
            self._written()
            if ready == WRITTEN and now < self._due and not self._passed:
                return
        received: Sequence[Received] = ()
        if ready & CLIENTS:
            received = self._edge.receive()
            if ready == CLIENTS:
                alone = len(received) == 1 and not self._scribe.busy
                if alone and self._lone_push(received[0], now, began):
                    return
                if not received and now < self._due and not self._passed:
                    return  # a ping, a piece of a request, a newcomer
        loom.begin(now)
        loom.set_full(self._space.look(now))
        if ready & PEERS:
            for sender, messages in self._peers.receive():
                for message in messages:
                    loom.receive(sender, message)
        for caller, request, payload, who in received:
            self._handle(request, payload, caller, who, plain=False)
        if ready & INBOX:
            for asked in self._inbox.take(ROUND_MESSAGES_MAX):
                self._handle_asked(asked)
            while not self._views.empty():
                loom.core.learn(self._views.get())
        for ear in [ear for ear in self._passed if self._hearing.hears(ear)]:
            loom.engine.serve_ear(ear)
        loom.introduce()
        changes = loom.end()
        if loom.single and (self._scribe.busy or (self._sync and _is_long(changes))):
            self._write_behind(changes)
        else:
            self._catch_up()
            took = self._write(changes) if changes else 0.0
            self._say(*loom.deliver())
            if changes:
                self._count(changes, took)
        if loom.view.version != self._known_version:
            self._know(loom.view)
        if now >= self._look_at:
            self._look_at = now + _LOOK_US
            self._edge.tend()
            led = sum(each.bytes for each in loom.engine.state.queues.values())
            # What it follows is about as large, replica by replica, as what it leads.
            live = led * loom.holds // loom.leads if loom.leads else self._store.size_bytes()
            self._compaction.look(live, self._space.free_bytes, full=self._space.full)
        if changes or ready:
            self.round_times.observe(time.perf_counter() - began)
        if ready & INBOX:
            for look in self._inbox.take_looks():
                look()

    def _lone_push(self, received: Received, now: int, began: float) -> bool:
        """A round that is one push, if this is one: its books are kept after its answer."""
        caller, request, payload, who = received
        if type(request) is not wire.Push or self._quotas.limits_pushes:
            return False
        if who is not NOBODY and who.principal is not None and who.principal.limits.on_pushes:
            return False
        lone = None if self._stopping else self._loom.lone_push(now, request, payload)
        if lone is None:
            return False
        perf_counter = time.perf_counter
        began_write = perf_counter()
        self._store.write(lone.changes, sync=self._sync)
        took = perf_counter() - began_write if self._sync else 0.0
        self._edge.send(caller, lone.answer, ())
        self._answered = 1
        self._loom.enter(lone)
        self._count(lone.changes, took)
        self._loom.set_full(self._space.look(now))
        self.round_times.observe(perf_counter() - began)
        return True

    def _write(self, changes: list[Change]) -> float:
        """Writes the round; the seconds of its sync, if it was one."""
        sync = self._is_synced(changes)
        began = time.perf_counter()
        self._store.write(changes, sync=sync)
        return time.perf_counter() - began if sync else 0.0

    def _is_synced(self, changes: list[Change]) -> bool:
        # What a node has promised and voted for is synced whatever the messages' durability is.
        return self._sync or any(key[:1] == NODE for key, _ in changes)

    # --- writes that others wait for, and this thread does not ---

    def _write_behind(self, changes: list[Change]) -> None:
        """Hands the round's changes to the scribe, or leaves them for its next write; what the
        round has to say waits for that."""
        scribe = self._scribe
        sends, answers = self._loom.deliver()
        if changes:
            before = scribe.gathered_bytes
            scribe.gather(changes, sync=self._is_synced(changes))
            self._space.written(scribe.gathered_bytes - before)
        if scribe.gathered:
            self._owed_next += answers
        else:
            self._owed += answers  # they rest on what was handed over before
        if not scribe.busy:
            scribe.begin()
            self._owed, self._owed_next = self._owed_next, []
        elif scribe.gathered_bytes >= ROUND_BYTES_MAX:
            self._written()
        if sends:
            self._catch_up()
            self._say(sends, [])

    def _written(self) -> None:
        """Waits for the write under way; the next one begins, and what rests on it is said."""
        scribe = self._scribe
        took = scribe.settle()
        self._commits += 1
        if self._sync:
            self.fsync_times.observe(took)
        answers, self._owed = self._owed, self._owed_next
        self._owed_next = []
        if scribe.gathered:
            scribe.begin()
        else:
            answers += self._owed
            self._owed = []
        self._say([], answers)

    def _catch_up(self) -> None:
        """Everything is written, and said."""
        while self._scribe.busy:
            self._written()

    def _count(self, changes: list[Change], sync_s: float) -> None:
        """Who waits for an answer does not wait for the books."""
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
        if self._passed and any(map(self._hearing.hears, self._passed)):
            self._again = True

    def _know(self, view: View) -> None:
        """Who may speak to this node, and where to find them."""
        self._known_version = view.version
        self._peers.know({node: (each.peer, each.key) for node, each in view.members.items()})

    def _member(self) -> Member:
        """This node, as the others are to know it."""
        advertised = self._config.advertised
        return Member(
            str(advertised(self._peers.address)), self._directory.keys.public, self.grpc_address,
            str(advertised(self._edge.address)), "active", self._config.witness,
            self._data_key.public,
        )  # fmt: skip

    def _handle(
        self, request: wire.AnyRequest, payload: Sequence[bytes], to: object, who: Who, *,
        plain: bool,
    ) -> None:  # fmt: skip
        if self._audit is not None and audited(request):
            self._audited[to] = who, request
        state = self._loom.engine.state
        try:
            self._quotas.check(request, payload, who.principal, state.queues, self._loom.now)
        except WeftError as error:
            state.answer(to, wire.Failure(error.code, error.message, error.retriable))
            return
        if self._stopping:
            self._loom.engine.state.answer(to, _STOPPING)
        elif isinstance(request, wire.Status):
            self._loom.engine.state.answer(to, self._status())
        elif isinstance(request, wire.Join) and (refusal := _unfit(request)) is not None:
            self._loom.engine.state.answer(to, refusal)
        else:
            self._loom.handle(request, payload, to, plain=plain)

    def _handle_asked(self, asked: Asked) -> None:
        if asked.request is None:
            if (found := self._audited.pop(asked.ticket, None)) is not None:
                assert self._audit is not None
                self._audit.done(*found, _GONE)  # it may be done all the same
            if self._on_answer.pop(asked.ticket, None) is not None:
                self._loom.cancel(asked.ticket)
            return
        assert asked.on_answer is not None
        self._on_answer[asked.ticket] = asked.on_answer
        self._handle(asked.request, asked.payload, asked.ticket, asked.who, plain=True)

    def _send(self, answered: Answered) -> None:
        to, answer, payload = answered[:3]
        if self._audited and (found := self._audited.pop(to, None)) is not None:
            assert self._audit is not None
            self._audit.done(*found, answer)
        if isinstance(to, Caller):
            self._hearing.told(to)
            sent = self._edge.send(to, answer, payload)
        else:
            assert isinstance(to, int)
            on_answer = self._on_answer.pop(to, None)
            sent = on_answer is not None
            if on_answer is not None:
                on_answer(answer, payload)
        if not sent and isinstance(answer, wire.Popped) and answer.lent:
            self._loom.give_back(answer.lent)
            self._again = True

    def _status(self) -> wire.StatusInfo:
        queues = self._loom.engine.state.queues.values()
        usage = resource.getrusage(resource.RUSAGE_SELF)
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
            int((usage.ru_utime + usage.ru_stime) * 1_000_000),
            _rss_bytes(),
            self._peers.messages,
            self._peers.bytes,
            self._loom.popping.searches,
            self._loom.popping.hops,
            self._loom.popping.loot.stolen,
            self._clock.now_us() // 1000,
            self._peers.pings,
        )


def _is_long(changes: list[Change]) -> bool:
    """Whether writing them takes so long that it is worth to wake another thread for it."""
    return sum([len(value) for _, value in changes if value]) >= BEHIND_BYTES_MIN


def _unfit(request: wire.Join) -> wire.Failure | None:
    """A node that nobody could reach, or would know, does not get into the view."""
    try:
        check_newcomer(request)
    except InvalidArgument as error:
        return wire.Failure(error.code, error.message, error.retriable)
    return None


def _rss_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
