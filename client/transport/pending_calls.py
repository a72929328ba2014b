"""State machine of the calls in flight on one connection: sends, replies, timeouts. Pure.

This module uses no socket, clock or thread; both links drive the same state machine. Rules:

- A call has a number (`rid`), which its reply echoes. A call ends once: with an answer, or with an
  error when its deadline passes.
- After a reconnect, every call is resent at once under its own number, because the frames may be
  lost with the old connection. A node deduplicates batches (by producer and batch number) and
  receipts of settled messages, so a resend is safe for all but a few requests. Those few
  (`SINGLE_COPY`) are never resent; such calls fail with ConnectionLost, and the error says so.
- A call that stays unanswered for `attempt_s` beyond its own wait is resent too.
- With `fail_fast` no call waits for a reconnect: when the connection is lost or refused, every call
  fails at once, so that the caller can try another node. The error says whether the request was
  sent.
- A resend may produce two answers, and a caller may be gone before the answer arrives. An unclaimed
  answer is dropped, and its messages are returned (`asides`); otherwise the messages would stay
  leased until the lease expires.
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from weft.errors import (
    ConnectionLost,
    DeadlineExceeded,
    InvalidArgument,
    Overloaded,
    ProtocolError,
    WeftError,
)
from weft.proto import wire
from weft.proto.idempotence import SINGLE_COPY
from weft.proto.verbs import MESSAGE_WAITS, WAITING

#: Limit of calls in flight on one connection; a caller that reaches it does not wait for answers.
CALLS_MAX: Final = 65_536
#: Number of abandoned pops to remember, so that a late answer can be returned.
ABANDONED_MAX: Final = 4_096


class NotSent(ConnectionLost):
    """The node never received the request: even one of SINGLE_COPY may go to another node."""


#: Decodes any frame that begins with the number of a call.
_loose = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class PendingCall:
    """One request, from its first send to its end."""

    __slots__ = (
        "answer", "attempt_at", "deadline", "error", "frame", "frames", "on_end", "payload",
        "request", "rid", "sends", "waiting_until",
    )  # fmt: skip

    def __init__(
        self,
        rid: int,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        deadline: float,
        token: str,
    ) -> None:
        self.rid = rid
        self.request = request
        self.frame = _encode(rid, request, token)
        self.payload = payload
        self.deadline = deadline
        self.waiting_until = 0.0
        self.attempt_at = deadline
        self.sends = 0
        self.answer: wire.AnyAnswer | None = None
        self.frames: Sequence[wire.Frame] = ()
        self.error: WeftError | None = None
        self.on_end: Callable[[PendingCall], None] | None = None

    @property
    def ended(self) -> bool:
        return self.answer is not None or self.error is not None

    def result(self) -> tuple[wire.AnyAnswer, Sequence[wire.Frame]]:
        if self.error is not None:
            raise self.error
        assert self.answer is not None, "the call is still under way"
        return self.answer, self.frames


class PendingCalls:
    def __init__(self, attempt_s: float, token: str = "") -> None:
        self._attempt_s = attempt_s
        self._token = token
        self._rids = itertools.count(1)
        self._calls: dict[int, PendingCall] = {}
        self._unsent: deque[PendingCall] = deque()
        self._abandoned: OrderedDict[int, str] = OrderedDict()
        #: Messages to send for abandoned calls: stop a waiting pop, and return the messages of a
        #: late answer.
        self.asides: deque[wire.StopWaiting | wire.Nack] = deque()
        #: Numbers of abandoned calls and asides that the node has not answered.
        self._unanswered: set[int] = set()
        self.up = True  # before the first break, the socket itself reports whether it can send
        #: True: calls fail with the connection, because other nodes can serve them.
        self.fail_fast = False
        #: Number of lost connections.
        self.breaks = 0

    # --- the caller's side ---

    def start(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float, now: float
    ) -> PendingCall:
        if len(self._calls) >= CALLS_MAX:
            raise Overloaded(f"{CALLS_MAX} calls are under way on this connection: await some")
        rid = next(self._rids)
        call = PendingCall(rid, request, payload, deadline, self._token)
        if type(request) in WAITING:
            now += request.wait_ms / 1000  # type: ignore[attr-defined]
        call.waiting_until = now
        call.attempt_at = now + self._attempt_s
        self._calls[rid] = call
        self._unsent.append(call)
        return call

    def abandon(self, call: PendingCall) -> None:
        """The caller has gone: return the messages of an answer that the caller did not take."""
        if self._calls.pop(call.rid, None) is not None:
            self._remember(call)
            if call.sends and type(call.request) in MESSAGE_WAITS:
                self._stop_waiting(call.rid, call.request)
        elif isinstance(call.answer, wire.Popped) and isinstance(call.request, wire.Pop):
            self._return(call.request.queue, call.answer.lent)

    def overdue(self, call: PendingCall, now: float) -> None:
        """Ends a call after its deadline; resends a call after the timeout of an attempt."""
        if call.ended:
            return
        if now >= call.deadline:
            self._end(call, error=self._late(call))
        elif now >= call.attempt_at:
            call.attempt_at = now + max(0.0, call.waiting_until - now) + self._attempt_s
            if call.sends and type(call.request) not in SINGLE_COPY:
                self._unsent.append(call)

    def all_overdue(self, now: float) -> float | None:
        """As `overdue` for all calls; returns the time at which the next call is due."""
        for call in list(self._calls.values()):
            if min(call.deadline, call.attempt_at) <= now:
                self.overdue(call, now)
        return min(map(self.next_due, self._calls.values()), default=None)

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    def next_due(self, call: PendingCall) -> float:
        return min(call.deadline, call.attempt_at)

    @property
    def quiet(self) -> bool:
        """True if no abandoned call can still hold a lease over this connection."""
        return not self._unanswered and not self.asides

    def fail_all(self, error: WeftError) -> None:
        for call in list(self._calls.values()):
            self._end(call, error=error)

    # --- the connection's side ---

    def lost(self) -> None:
        """The connection broke: send nothing until there is a new connection."""
        self.up = False
        self.breaks += 1
        self._unanswered.clear()  # the node cannot answer over the lost connection

    def refused(self) -> None:
        """A connection attempt failed; the connection retries by itself."""
        if self.fail_fast:
            self.up = False

    def drop_unsent(self) -> None:
        """Ends calls that the socket has not accepted for too long.

        The connection may be up but full, so calls that were sent continue.
        """
        for call in [call for call in self._calls.values() if not call.sends]:
            self._end(call, error=_broken(call))

    def break_off(self) -> None:
        """Ends every call because the connection has ended: callers can try another node."""
        for call in list(self._calls.values()):
            self._end(call, error=_broken(call))

    def restored(self) -> None:
        """The connection is up. After a break, every call is resent in its original order."""
        if self.up:
            return
        self.up = True
        for call in [c for c in self._calls.values() if c.sends and type(c.request) in SINGLE_COPY]:
            self._end(call, error=_broken(call))
        self._unsent = deque(self._calls.values())

    @property
    def has_unsent(self) -> bool:
        return self.up and bool(self._unsent or self.asides)

    def send_first(self, call: PendingCall, take: Callable[[Sequence[bytes]], bool]) -> bool:
        """Sends a call that was just started, before the link checks whether the connection broke.

        Refuses if other calls are queued before this call, or if the call must not be sent twice: a
        break before the call that is noticed after the send causes a resend.
        """
        if not self.up or len(self._unsent) > 1 or self.asides:
            return False
        if type(call.request) in SINGLE_COPY or not take([call.frame, *call.payload]):
            return False
        call.sends = 1
        self._unsent.clear()
        return True

    def send(self, take: Callable[[Sequence[bytes]], bool], now: float) -> None:
        """Sends pending calls and asides while `take` accepts them."""
        if not self.up and self.fail_fast:
            self.break_off()  # with fail_fast no call outlives or precedes its connection
        while self.up and self._unsent:
            call = self._unsent[0]
            if not call.ended and call.rid in self._calls:
                if not take(self._frames(call, now)):
                    return
                call.sends += 1
            self._unsent.popleft()
        while self.up and self.asides:
            rid = next(self._rids)
            if not take([_encode(rid, self.asides[0], self._token)]):
                return
            self._unanswered.add(rid)
            self.asides.popleft()

    def received(self, frames: Sequence[wire.Frame]) -> None:
        """Processes a message from the node. Raises ProtocolError for an unknown message."""
        try:
            reply = wire.decode_reply(frames[0])
        except wire.MALFORMED as error:
            self._misread(frames[0], str(error))
            return
        call = self._calls.get(reply.rid)
        if call is not None:
            if len(frames) > 1:
                call.frames = frames[1:]
            if call.sends > 1 or call.on_end is not None:
                self._end(call, answer=reply.answer)
            else:  # the usual case, kept short
                call.answer = reply.answer
                del self._calls[reply.rid]
            return
        self._unanswered.discard(reply.rid)
        if isinstance(reply.answer, wire.Popped):
            self._return(self._abandoned.get(reply.rid), reply.answer.lent)
        elif isinstance(reply.answer, wire.Failure) and reply.rid == 0:
            self._unreadable(reply.answer.message)

    # --- inside ---

    def _unreadable(self, message: str) -> None:
        """The node could not read a frame, and names no call. A node of an older version quotes
        the verb that it does not know: its calls end, and nothing was executed."""
        unknown = [
            call
            for call in self._calls.values()
            if f"Invalid value '{_verb(call.request)}'" in message
        ]
        for call in unknown:
            self._end(
                call,
                error=ProtocolError(
                    f"the node does not know the request {_verb(call.request)}, and nothing was "
                    "done: its version of weft is older than this client's. Upgrade the node"
                ),
            )
        if not unknown:
            raise ProtocolError(f"the node could not read a frame: {message}")

    def _frames(self, call: PendingCall, now: float) -> list[bytes]:
        request = call.request
        if call.sends and type(request) in WAITING and request.wait_ms:  # type: ignore[attr-defined]
            # A resend asks the node to wait only for the rest of the time.
            left_ms = max(0, int((call.waiting_until - now) * 1000))
            waiting = msgspec.structs.replace(request, wait_ms=left_ms)
            call.frame = _encode(call.rid, waiting, self._token)
        return [call.frame, *call.payload]

    def _end(
        self,
        call: PendingCall,
        answer: wire.AnyAnswer | None = None,
        error: WeftError | None = None,
    ) -> None:
        call.answer, call.error = answer, error
        del self._calls[call.rid]
        if error is not None or call.sends > 1:
            self._remember(call)
        if call.on_end is not None:
            call.on_end(call)

    def _remember(self, call: PendingCall) -> None:
        if call.sends and isinstance(call.request, wire.Pop):
            self._abandoned[call.rid] = call.request.queue
            if len(self._abandoned) > ABANDONED_MAX:
                self._abandoned.popitem(last=False)

    def _stop_waiting(self, rid: int, request: wire.AnyRequest) -> None:
        if isinstance(request, wire.Pop):  # an answer follows in any case, and may lease messages
            self._unanswered.add(rid)
        if request.wait_ms:  # type: ignore[attr-defined]
            self.asides.append(wire.StopWaiting(rid))

    def _misread(self, frame: wire.Frame, why: str) -> None:
        """Fails the call that the frame names, if any: now rather than at its deadline."""
        error = ProtocolError(
            f"the node sent a frame that this client cannot read ({why}): are both of one version?"
        )
        try:
            rid = _loose(frame)[0]
        except (*wire.MALFORMED, IndexError):
            raise error from None
        call = self._calls.get(rid) if isinstance(rid, int) else None
        if call is None:
            raise error
        self._end(call, error=error)

    def _return(self, queue: str | None, lent: list[wire.Lent]) -> None:
        if queue is not None and lent:
            receipts = [wire.Receipt(one.partition, one.lsn, one.nonce) for one in lent]
            self.asides.append(wire.Nack(queue, receipts, counted=False))

    def _late(self, call: PendingCall) -> WeftError:
        verb = _verb(call.request)
        if not call.sends:
            return NotSent(
                f"no connection to the node within the time of {verb}; nothing was sent. "
                "Is the node running?"
            )
        if isinstance(call.request, wire.Push | wire.Multicast | wire.PushTopic):
            return DeadlineExceeded(
                "the push had no answer in time: it may or may not have been stored"
            )
        return DeadlineExceeded(f"{verb} had no answer in time; it may or may not have been done")


def _broken(call: PendingCall) -> ConnectionLost:
    verb = _verb(call.request)
    if not call.sends:
        return NotSent(f"no connection to the node for {verb}; nothing was sent")
    return ConnectionLost(
        f"the connection broke during {verb}, which may or may not have been done: look, then "
        "decide whether to call again"
    )


def _encode(rid: int, request: wire.AnyRequest, token: str) -> bytes:
    """Encodes the first frame of a call.

    The frame is decoded again as a check: a node cannot tell which call an unreadable frame belongs
    to, so a wrong type would otherwise show as a call that is never answered.
    """
    try:
        frame = wire.encode(wire.Call(wire.WIRE_VERSION, rid, request, token))
        if type(request) is not wire.Push or request.delay_ms or request.priority:
            wire.decode_call(frame)  # a plain push was checked before
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"{_verb(request)}: {_by_name(request, str(error))}") from None
    return frame


def _by_name(request: wire.AnyRequest, error: str) -> str:
    """Returns the decoder's message with the field's name instead of its array index."""
    place = re.search(r"`\$\[2\]\[(\d+)\]", error)
    if place is None:
        return error
    name = request.__struct_fields__[int(place[1]) - 1]
    return f"{name}: {error.partition(' - at')[0]}"


def _verb(request: wire.AnyRequest) -> str:
    return str(type(request).__struct_config__.tag)
