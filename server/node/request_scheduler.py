"""The request scheduler: decides which received requests run in this round of a node.

As long as each round takes all requests that have arrived, no queue waits for another, and requests
run in order of arrival, uncharged. If the input of a round is more than a round should do, and
belongs to several queues, all requests go through the lines of `server/core/request_lines.py`, from
then on until the lines are empty. A round then receives twice as much as it must run: only a queue
with requests in its line can use its share.

Messages of other nodes never come here: replication, views and metadata are not held, and a request
forwarded by another node has waited in the lines of that node.

A held request is answered in each of these ways, and exactly once: its handler runs; the request is
OVERLOADED after `HELD_US_MAX`; its caller stops waiting or goes away; the node stops. A connection
with many held requests is not read until half of them are gone: what the client sends meanwhile
waits in the socket, including requests for other queues.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from weft.limits import MIB
from weft.proto import wire
from weft.server.core.held_request import HELD, HeldRequest
from weft.server.core.request_lines import (
    PERIOD_US,
    ROUND_BYTES_MIN,
    ROUND_REQUESTS_MIN,
    RequestLines,
)
from weft.server.edges.edge import (
    ROUND_BYTES_MAX,
    ROUND_MESSAGES_MAX,
    EdgeCaller,
    Received,
    ticket_peer,
)
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.server.security.caller import Caller

from .call_inbox import QueuedCall
from .client_calls import ClientCalls

if TYPE_CHECKING:
    from .round import Committer

#: While requests are held, a write in the background gathers at most this much: a request of a
#: quiet queue waits for the write in flight and its own.
SHARED_BYTES: Final = 2 * MIB
#: While queues compete, and for some time afterwards, a round receives at most this much: a request
#: of a quiet queue waits for one receipt, too. It is twice what a round must run.
RECEIVED_BYTES_MAX: Final = 2 * ROUND_BYTES_MIN
_COMPETED_US: Final = 1_000_000
_OVERLOADED: Final = wire.Failure(
    "OVERLOADED",
    "the node is busy with other queues, and this queue has used up its share of the node's time: "
    "retry later, or raise the queue's share (weft queue update NAME --share 0.3)",
    True,
)
_WITHDRAWN: Final = wire.Failure("CANCELLED", "the caller did not wait for the answer", False)


class RequestScheduler:
    def __init__(
        self,
        calls: ClientCalls,
        edge: ZmtpEdge,
        committer: Committer,
        period_us: int = PERIOD_US,
    ) -> None:
        self._engine = calls.engine
        self._calls = calls
        self._edge = edge
        self._committer = committer
        self.lines = RequestLines(self._engine.shares.of, self._engine.shares.lent_bytes, period_us)
        #: A round above this duration may have held up other queues.
        self._long_s = period_us / 1e6
        #: Connections that are not read at the moment.
        self._paused: set[int] = set()
        #: Duration of the last round, in seconds.
        self.round_s = 0.0
        #: True during a round of several queues.
        self.running = False
        #: The time since when no request has waited; 0 while requests wait, and at first.
        self._idle_since = 0
        self._handlers_us = 0.0
        #: The end of the last handler of this round, by the performance counter.
        self._handled_at = 0.0

    def contends(
        self, now: int, received: Sequence[Received], queued: Sequence[QueuedCall]
    ) -> bool:
        """True if the requests of this round must wait in lines."""
        if self.lines.waiting:
            return True
        count = len(received) + len(queued)
        if count < 2:
            return False
        competed = self._idle_since and now - self._idle_since < _COMPETED_US
        self._edge.messages_max = ROUND_MESSAGES_MAX
        self._edge.bytes_max = RECEIVED_BYTES_MAX if competed else ROUND_BYTES_MAX
        if (
            count < ROUND_REQUESTS_MIN
            and self.round_s < self._long_s
            and self._edge.taken_bytes < ROUND_BYTES_MIN
            and sum(sum(map(len, each.payload)) for each in queued) < ROUND_BYTES_MIN
        ):
            return False
        queue = None
        for request in [*[each.request for each in received], *[each.request for each in queued]]:
            if type(request) in HELD:
                name = request.queue  # type: ignore[union-attr]
                if queue is None:
                    queue = name
                elif name != queue:
                    return True
        return False

    # --- a round of several queues --------------------------------------------------------

    def handle(self, now: int, received: Sequence[Received], queued: Sequence[QueuedCall]) -> None:
        """Handles the requests of a round, or a part of them."""
        if self.contends(now, received, queued):
            self._run(now, received, queued)
            return
        for caller, request, payload, who in received:
            self._calls.handle(request, payload, caller, who, plain=False)
        for call in queued:
            self._calls.handle_queued(call)

    def _run(self, now: int, received: Sequence[Received], queued: Sequence[QueuedCall]) -> None:
        """Adds the requests of a round to the lines, and runs those whose turn it is."""
        lines = self.lines
        self.running = True
        self._edge.messages_max, self._edge.bytes_max = 2 * ROUND_MESSAGES_MAX, RECEIVED_BYTES_MAX
        if not lines.waiting and self._idle_since:
            lines.rest(now - self._idle_since)
        self._admit(now, received, queued)
        for late in lines.overdue(now):
            self._engine.answer(late.to, _OVERLOADED)
        stopping = self._calls.stopping
        lines.begin()
        self._handlers_us = 0.0
        mark = time.thread_time()
        while (item := lines.take(all_of_them=stopping)) is not None:
            self._calls.handle(
                item.request, item.payload, item.to, cast(Caller, item.who), plain=item.plain
            )
            if lines.drained and not stopping:
                self._refill(now, item.peer)  # its time is charged to the queue
            before, mark = mark, time.thread_time()
            spent_us = (mark - before) * 1e6
            self._handlers_us += spent_us
            lines.charge(spent_us)
        self._handled_at = time.perf_counter()
        gathered_max = SHARED_BYTES if lines.waiting else ROUND_BYTES_MAX
        self._committer.gathered_bytes_max = gathered_max

    def finish(self, began: float, now: int) -> bool:
        """Ends a round of several queues: charges the rest of its time, and reads on. `began`: the
        start of the round by the performance counter; `now`: the node's time. True if requests
        wait for the next round."""
        lines = self.lines
        self.running = False
        end = time.perf_counter()
        round_us, end_us = (end - began) * 1e6, (end - self._handled_at) * 1e6
        lines.finish(max(0.0, round_us - self._handlers_us), end_us)
        self._idle_since = 0 if lines.waiting else now
        for peer in lines.peers:
            if peer not in self._paused and lines.is_crowded(peer) and self._edge.pause(peer):
                self._paused.add(peer)
        for peer in [each for each in self._paused if lines.has_room(each)]:
            self._paused.discard(peer)
            self._edge.resume(peer)
        return lines.waiting > 0

    def tend(self, now: int) -> None:
        """About once a second: publishes what each queue has used of the node's time."""
        for charged in self.lines.charges(now):
            self._engine.shares.note(charged.queue, charged.used_us, charged.total_us)

    def _admit(self, now: int, received: Sequence[Received], queued: Sequence[QueuedCall]) -> None:
        """Adds requests to the lines; handles those that do not wait in lines."""
        for caller, request, payload, who in received:
            if type(request) in HELD:
                self._add(HeldRequest(caller, request, payload, who, False, caller.peer, now))
            elif not (type(request) is wire.StopWaiting and self._withdraw(caller, request)):
                self._calls.handle(request, payload, caller, who, plain=False)
        for call in queued:
            self._enter(call, now)

    def _refill(self, now: int, peer: int) -> None:
        """Fills an empty line again, from the connection of the line's last request."""
        room = self.lines.room(peer)
        received = self._edge.receive_from(peer, room) if room > 0 else []
        if received or self._edge.calls:
            self._admit(now, received, self._edge.take_calls())
            self.lines.begin()

    def _add(self, item: HeldRequest) -> None:
        if item.peer <= 0 and self.lines.is_crowded(item.peer):
            # Another thread of the node: no socket holds its requests back.
            self._engine.answer(item.to, _OVERLOADED)
        else:
            self.lines.add(item)

    def _enter(self, call: QueuedCall, now: int) -> None:
        ticket, request, payload, _, who = call
        if request is None:
            self._calls.handle_queued(call)
            if self.lines.cancel(ticket) is not None:
                self._engine.answer(ticket, _WITHDRAWN)
        elif type(request) in HELD:
            self._calls.register(call)
            self._add(HeldRequest(ticket, request, payload, who, True, ticket_peer(ticket), now))
        else:
            self._calls.handle_queued(call)

    def _withdraw(self, caller: EdgeCaller, request: wire.StopWaiting) -> bool:
        """Answers a pop that waits in a line and need not wait any more."""
        to = caller._replace(rid=request.call)
        if self.lines.cancel(to, wire.Pop) is None:
            return False
        self._engine.answer(to, wire.Popped([]))
        self._engine.answer(caller, wire.Done(0))
        return True
