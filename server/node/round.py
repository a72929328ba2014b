"""The rounds of a node, and the committer, which upholds "persist before you send" in each of them.

A round receives from clients and other nodes, runs the node core, persists everything that the core
has produced, then sends messages and answers (`Rounds.run`). While the disk is busy, requests
gather in the sockets, and the next round takes them together: a group commit that adapts by itself.
When nothing is due and only clients have sent something, the round is cut short (`_short_round`): a
node that is its whole cluster then runs the engine alone. `_single_push` is a round of one push.

The committer persists the output of a round, then has it sent:

| strategy   | used for                                           | when the output leaves        |
|------------|----------------------------------------------------|-------------------------------|
| inline     | short writes, writes without a sync, a single push | in the round, after the write |
| background | a single-node cluster: a long synced write, and    | when the write that contains  |
|            | all rounds while such a write is in flight         | the round has ended           |
| replicated | a cluster of several nodes: as inline, after all   | in the round; answers wait in |
|            | background writes                                  | the commit gate for others    |

Only a single-node cluster may write in the background: every answer there rests on this node's own
writes, in their order. In a larger cluster the messages to other nodes rest on the write, too.

Invariant: `send` gets an answer or a message only after every write that it rests on is on disk
(`Ready`). An error of the store leaves `commit` as a StorageError, and nothing more is sent.
"""

from __future__ import annotations

import queue
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from weft.dht.messages import AnyMessage
from weft.dht.view import View
from weft.limits import KIB
from weft.persistence.background_writer import BackgroundWriter
from weft.persistence.layout import NODE
from weft.persistence.store import Change, Store
from weft.proto import wire
from weft.server.core.node_core import NodeCore
from weft.server.core.ready import Ready
from weft.server.core.request_lines import PERIOD_US
from weft.server.edges.edge import ROUND_BYTES_MAX, ROUND_MESSAGES_MAX, Received
from weft.server.edges.peer_edge import PeerEdge
from weft.server.edges.response_budget import ResponseBudget
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.server.engine.state import Answered
from weft.server.observability.histogram import Histogram

from .call_inbox import CallInbox
from .client_calls import AdmittedRequest, ClientCalls
from .cluster_join import check_not_lost
from .compaction import Compaction, live_bytes
from .disk_reserve import DiskReserve
from .poller import CLIENTS, INBOX, PEERS, WRITTEN, Clock
from .request_scheduler import RequestScheduler

#: The interval of comparisons of the store's size with the live bytes.
_POLL_US: Final = 1_000_000
#: A synced write of at least this size goes to the background writer. The hand-off wakes two
#: threads, and the node's thread handles requests meanwhile; a smaller write ends before they are
#: awake.
BACKGROUND_BYTES_MIN: Final = 64 * KIB

Send = Callable[[Sequence[tuple[str, AnyMessage]], Sequence[Answered]], None]


class Committer:
    def __init__(
        self,
        store: Store,
        background_writer: BackgroundWriter,
        disk_reserve: DiskReserve,
        send: Send,
        *,
        sync: bool,
    ) -> None:
        self._store = store
        self._writer = background_writer
        self._disk_reserve = disk_reserve
        self._send = send
        #: True: every write is synced. False: only promises and votes of this node are.
        self._sync = sync
        #: Answers that wait for the background write in flight, and for the next one.
        self._owed: list[Answered] = []
        self._owed_next: list[Answered] = []
        #: While so many bytes wait for the next background write, no more rounds run.
        self.gathered_bytes_max = ROUND_BYTES_MAX
        #: Number of writes.
        self.writes = 0
        self.fsync_times = Histogram()

    def commit(self, ready: Ready, *, single: bool) -> None:
        """Commits one round. `single`: this node is its whole cluster."""
        if single and (self._writer.busy or (self._sync and _is_long(ready.writes))):
            self._commit_in_background(ready)
        else:
            if self._writer.busy:
                self.flush()
            self.commit_inline(ready)

    def commit_inline(self, ready: Ready) -> None:
        """Writes, sends, and then updates the stats, so that no caller waits for the stats."""
        writes = ready.writes
        if not writes:
            self._send(ready.sends, ready.answers)
            return
        sync = self._is_synced(writes)
        began = time.perf_counter()
        self._store.write(writes, sync=sync)
        took = time.perf_counter() - began
        self._send(ready.sends, ready.answers)
        self.writes += 1
        if sync:
            self.fsync_times.recent.append(took)
        self._disk_reserve.written_bytes += sum([len(value) for _, value in writes if value])

    def flush(self) -> None:
        """Finishes all background writes, and sends their answers."""
        while self._writer.busy:
            self.written()

    def written(self) -> None:
        """Waits for the background write in flight, begins the next, and sends the answers owed."""
        took = self._writer.settle()
        self.writes += 1
        if self._sync:
            self.fsync_times.recent.append(took)
        answers, self._owed = self._owed, self._owed_next
        self._owed_next = []
        if self._writer.gathered:
            self._writer.begin()
        else:
            answers += self._owed
            self._owed = []
        self._send([], answers)

    def _commit_in_background(self, ready: Ready) -> None:
        """Gives the round's writes to the background writer, now or with its next write."""
        writer = self._writer
        if ready.writes:
            before = writer.gathered_bytes
            writer.gather(ready.writes, sync=self._is_synced(ready.writes))
            self._disk_reserve.written_bytes += writer.gathered_bytes - before
        if writer.gathered:
            self._owed_next += ready.answers
        else:
            self._owed += ready.answers  # they rest on changes handed over before
        if not writer.busy:
            writer.begin()
            self._owed, self._owed_next = self._owed_next, []
        elif writer.gathered_bytes >= self.gathered_bytes_max:
            self.written()
        if ready.sends:
            self.flush()
            self._send(ready.sends, [])

    def _is_synced(self, writes: list[Change]) -> bool:
        # Promises and votes of a node are synced at any durability of messages.
        return self._sync or NODE in {key[:1] for key, _ in writes}


def _is_long(writes: list[Change]) -> bool:
    """True if the write takes long enough to be worth waking another thread."""
    return sum([len(value) for _, value in writes if value]) >= BACKGROUND_BYTES_MIN


class Rounds:
    def __init__(
        self,
        node_core: NodeCore,
        calls: ClientCalls,
        edge: ZmtpEdge,
        peers: PeerEdge,
        inbox: CallInbox,
        response_budget: ResponseBudget,
        store: Store,
        background_writer: BackgroundWriter,
        disk_reserve: DiskReserve,
        clock: Clock,
        *,
        sync: bool,
        share_period_us: int = PERIOD_US,
    ) -> None:
        self._node_core, self._calls, self._clock = node_core, calls, clock
        self._edge, self._peers, self._inbox = edge, peers, inbox
        self._response_budget = response_budget
        self._deferred = node_core.engine.deferred  # pops without response budget
        self._store, self._background_writer = store, background_writer
        self._disk_reserve, self._compaction = disk_reserve, Compaction(store)
        self.committer = Committer(store, background_writer, disk_reserve, self._send, sync=sync)
        self._scheduler = RequestScheduler(calls, edge, self.committer, share_period_us)
        #: Views to start from, of other threads.
        self.views: queue.SimpleQueue[View] = queue.SimpleQueue()
        self._known_version = self._tend_at = 0  # the view known to the peer edge; see _tend
        self._again = False  # a send returned messages, or made room: the next round is now
        #: Answers of the last round.
        self.answered = 0
        #: Time at which the node core has work without a request; 0: no round may be short.
        self.due = 0
        #: Durations of rounds with work.
        self.round_times = Histogram()

    def patience_ms(self) -> int:
        """How long to wait for the network; rounded up, or the last millisecond would spin."""
        if self._again or self._edge.undelivered:
            self._again = False
            self.due = 0
            return 0
        self.due = self._node_core.next_due()
        wait_us = self.due - self._clock.now_us()
        if self._edge.alarms.live:
            wait_us = min(wait_us, self._edge.next_alarm_us())
        return max(0, -(-wait_us // 1000))

    def run(self, sources: int) -> None:
        """Runs one round: receive, step, persist, send, tend. Reads only from ready sources."""
        began, now = time.perf_counter(), self._clock.now_us()
        if sources & WRITTEN:
            self.committer.written()
        if self._edge.alarms.live:
            self._edge.ring()
        received = self._edge.receive() if sources & CLIENTS else ()
        lined = self._scheduler.lines.waiting > 0
        if not lined and len(received) + len(self._edge.calls) > 1:
            lined = self._scheduler.contends(now, received, self._edge.calls)
        short = now < self.due and not (lined or sources & (PEERS | INBOX) or self._deferred)
        if short and self._short_round(received, now):
            if self.answered:
                took = self._scheduler.round_s = time.perf_counter() - began
                self.round_times.recent.append(took)
            return
        ready = self._step(sources, received, now)
        self.committer.commit(ready, single=self._node_core.single)
        self._again |= self._scheduler.running and self._scheduler.finish(began, now)
        self._tend(now)
        if ready.writes or sources:
            took = self._scheduler.round_s = time.perf_counter() - began
            self.round_times.recent.append(took)
        for look in self._inbox.take_looks() if sources & INBOX else ():
            look()
        if self._edge.marked or self._edge.resumed or self._edge.calls:
            self._edge.flush()

    def _step(self, sources: int, received: Sequence[Received], now: int) -> Ready:
        """Gives the input of the round to the node core; returns everything the core produced."""
        node_core = self._node_core
        node_core.begin(now)
        node_core.set_full(self._disk_reserve.check(now))
        if self._edge.undelivered:
            undelivered, self._edge.undelivered = self._edge.undelivered, []
            node_core.give_back(undelivered)
        if sources & PEERS:
            for sender, messages in self._peers.receive():
                for message in messages:
                    node_core.receive(sender, message)
        queued = self._edge.take_calls() if self._edge.calls else []
        if sources & INBOX:
            queued += self._inbox.take(ROUND_MESSAGES_MAX)
        self._scheduler.handle(now, received, queued)
        if sources & INBOX:
            while not self.views.empty():
                node_core.core.learn(self.views.get())
        for peer in [peer for peer in self._deferred if self._response_budget.hears(peer)]:
            node_core.engine.serve_peer(peer)
        node_core.introduce()
        return node_core.end()

    def _short_round(self, received: Sequence[Received], now: int) -> bool:
        """Runs a round in which nothing is due and only clients have sent something, if the engine
        alone can answer. Without requests (a write ended, or a client sent a ping, a part of a
        request, or connected) nothing is to be done."""
        node_core, edge, reserve = self._node_core, self._edge, self._disk_reserve
        if not received and not edge.calls:
            return not edge.resumed
        if now >= self._tend_at or edge.undelivered:
            return False
        requests = self._calls.short_round(received, edge.calls)
        if requests is None:
            return False
        if not self._single_push(requests, now):
            ready = node_core.run_short(now, requests)
            if ready is None:
                return False
            if edge.calls:
                edge.take_calls()
            self.committer.commit(ready, single=True)
        if now >= reserve.check_at or reserve.written_bytes > reserve.unseen_bytes_max:
            node_core.set_full(reserve.check(now))
        return True

    def _single_push(self, requests: Sequence[AdmittedRequest], now: int) -> bool:
        """Runs a round that consists of one push: the write and the answer first, all bookkeeping
        afterwards. False: nothing has happened."""
        if len(requests) != 1 or self._background_writer.busy:
            return False
        ((caller, request, payload, _),) = requests
        if type(request) is not wire.Push:
            return False
        single_push = self._node_core.start_single_push(now, request, payload)
        if single_push is None:
            return False
        if self._edge.calls:
            self._edge.take_calls()
        self.committer.commit_inline(
            Ready(single_push.changes, [], [Answered(caller, single_push.answer)])
        )
        self._node_core.enter(single_push)
        return True

    def _send(self, sends: Sequence[tuple[str, AnyMessage]], answers: Sequence[Answered]) -> None:
        """Sends what the committer has persisted."""
        if sends:
            by_peer: defaultdict[str, list[AnyMessage]] = defaultdict(list)
            for to, message in sends:
                by_peer[to].append(message)
            for each in by_peer.items():
                self._peers.send(*each)
        self.answered = len(answers)
        soon = len(answers) > 1
        for answered in answers:
            if not self._calls.answer(answered, soon=soon):
                self._again = True
        if soon or self._edge.marked or self._edge.resumed:
            self._edge.flush()
        if self._deferred and any(map(self._response_budget.hears, self._deferred)):
            self._again = True

    def _tend(self, now: int) -> None:
        """Does the work of the driver that belongs to no request."""
        node_core = self._node_core
        if node_core.view.version != self._known_version:
            check_not_lost(self._node_core.core)
            self._known_version = node_core.view.version
            # The peer edge needs the members' addresses, and the keys to admit.
            members = node_core.view.members.items()
            self._peers.know({node: (each.peer, each.key) for node, each in members})
        if now >= self._tend_at:
            self._tend_at = now + _POLL_US
            self.round_times.count()
            self.committer.fsync_times.count()
            self._edge.tend()
            self._scheduler.tend(now)
            live, reserve = live_bytes(self._node_core, self._store), self._disk_reserve
            self._compaction.check(live, reserve.free_bytes, full=reserve.full)
