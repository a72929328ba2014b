"""Calls under way on one connection: what to send, what came back, what is overdue. Pure.

Neither socket nor clock nor thread is known here; both links drive this one state machine. The
rules:

- A call has a number (`rid`), which its reply echoes. It ends once: with an answer, or with an
  error when its deadline passes.
- When the connection comes back, every call is sent again at once, under its own number: the
  frames may have died with the old connection. A node takes a batch twice as one (by producer and
  batch number) and a settled receipt twice as one, so this is safe for all but a few requests.
  Those few (`ONCE`) are never sent twice; they fail with ConnectionLost, which says so.
- A call that stays unanswered for `attempt_s` beyond its own wait is sent again, too.
- With `fail_fast` nothing waits for the connection to come back: when it is lost or refused every
  call ends at once, so that it can be made to another node. The error says whether it was sent.
- Sending again may fetch two answers, and a caller may have gone before his answer came. An answer
  nobody takes is dropped, but messages lent by it are given back (`give_back`), or they would be
  pinned for a whole lease.
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
from weft.proto import streams, wire

#: Done twice, these do a second thing, or give an answer that hides what the first one did.
ONCE: Final = (
    wire.Append, wire.CompareAndSwap, wire.Remove,
    wire.DeleteQueue, wire.PurgeQueue, wire.Redrive,
)  # fmt: skip
#: Calls under way on one connection: a caller that starts more without waiting has lost count.
CALLS_MAX: Final = 65_536
#: Pops without a taker that are remembered, so that a late answer can be given back.
ABANDONED_MAX: Final = 4_096


#: Requests that a node may answer late because they ask it to wait, or to work at other nodes.
WAITING: Final = (
    wire.Pop, wire.Where, streams.Reserve, streams.AckThrough, streams.ReleaseAll,
    streams.DeleteSubscription, streams.Publish, streams.Abort,
)  # fmt: skip


class NotSent(ConnectionLost):
    """The node never got the request, so that even one of ONCE may be made elsewhere."""


#: Any frame that begins with a call's number.
_loose = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class Call:
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
        self.on_end: Callable[[Call], None] | None = None

    @property
    def ended(self) -> bool:
        return self.answer is not None or self.error is not None

    def result(self) -> tuple[wire.AnyAnswer, Sequence[wire.Frame]]:
        if self.error is not None:
            raise self.error
        assert self.answer is not None, "the call is still under way"
        return self.answer, self.frames


class Exchange:
    def __init__(self, attempt_s: float, token: str = "") -> None:
        self._attempt_s = attempt_s
        self._token = token
        self._rids = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._unsent: deque[Call] = deque()
        self._abandoned: OrderedDict[int, str] = OrderedDict()
        #: What is to be said about answers that nobody took.
        self.give_back: deque[wire.Nack] = deque()
        self.up = True  # until a break is seen, the socket itself says whether it can send
        #: Whether calls end with the connection, because there are other nodes to go to.
        self.fail_fast = False
        #: Grows with every connection that was lost.
        self.breaks = 0

    # --- the caller's side ---

    def start(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float, now: float
    ) -> Call:
        if len(self._calls) >= CALLS_MAX:
            raise Overloaded(f"{CALLS_MAX} calls are under way on this connection: await some")
        rid = next(self._rids)
        call = Call(rid, request, payload, deadline, self._token)
        if isinstance(request, WAITING):
            now += request.wait_ms / 1000
        call.waiting_until = now
        call.attempt_at = now + self._attempt_s
        self._calls[rid] = call
        self._unsent.append(call)
        return call

    def abandon(self, call: Call) -> None:
        """The caller has gone; an answer that he did not take any more is given back."""
        if self._calls.pop(call.rid, None) is not None:
            self._remember(call)
        elif isinstance(call.answer, wire.Popped) and isinstance(call.request, wire.Pop):
            self._return(call.request.queue, call.answer.lent)

    def overdue(self, call: Call, now: float) -> None:
        """Ends a call whose deadline has passed, or sends it again when it is only late."""
        if call.ended:
            return
        if now >= call.deadline:
            self._end(call, error=self._late(call))
        elif now >= call.attempt_at:
            call.attempt_at = now + max(0.0, call.waiting_until - now) + self._attempt_s
            if call.sends and not isinstance(call.request, ONCE):
                self._unsent.append(call)

    def next_due(self, call: Call) -> float:
        return min(call.deadline, call.attempt_at)

    def fail_all(self, error: WeftError) -> None:
        for call in list(self._calls.values()):
            self._end(call, error=error)

    # --- the connection's side ---

    def lost(self) -> None:
        """The connection broke: nothing is sent until there is a new one."""
        self.up = False
        self.breaks += 1

    def refused(self) -> None:
        """A connection could not be made; another try follows by itself."""
        if self.fail_fast:
            self.up = False

    def drop_unsent(self) -> None:
        """Ends what the socket did not take for too long. The connection may be there, and full,
        so what was sent goes on."""
        for call in [call for call in self._calls.values() if not call.sends]:
            self._end(call, error=_broken(call))

    def break_off(self) -> None:
        """Ends every call as the connection did: whoever made it can go elsewhere."""
        for call in list(self._calls.values()):
            self._end(call, error=_broken(call))

    def restored(self) -> None:
        """There is a connection. After a break, every call goes out again, in its order."""
        if self.up:
            return
        self.up = True
        for call in [c for c in self._calls.values() if c.sends and isinstance(c.request, ONCE)]:
            self._end(call, error=_broken(call))
        self._unsent = deque(self._calls.values())

    @property
    def has_unsent(self) -> bool:
        return self.up and bool(self._unsent or self.give_back)

    def send_first(self, call: Call, take: Callable[[Sequence[bytes]], bool]) -> bool:
        """Sends a call that was just started, before anybody looks whether the connection broke.

        Not when others stand before it, and not when it must not be sent twice: a break from
        before the call, seen after it, sends it again.
        """
        if not self.up or len(self._unsent) > 1 or self.give_back:
            return False
        if isinstance(call.request, ONCE) or not take([call.frame, *call.payload]):
            return False
        call.sends = 1
        self._unsent.clear()
        return True

    def send(self, take: Callable[[Sequence[bytes]], bool], now: float) -> None:
        """Sends what there is to send, for as long as `take` takes it."""
        if not self.up and self.fail_fast:
            self.break_off()  # calls do not outlive their connection, nor begin without one
        while self.up and self._unsent:
            call = self._unsent[0]
            if not call.ended and call.rid in self._calls:
                if not take(self._frames(call, now)):
                    return
                call.sends += 1
            self._unsent.popleft()
        while self.up and self.give_back:
            if not take([_encode(next(self._rids), self.give_back[0], self._token)]):
                return
            self.give_back.popleft()

    def received(self, frames: Sequence[wire.Frame]) -> None:
        """A message from the node. Raises ProtocolError when it is not one of ours."""
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
            else:  # the usual case, at once
                call.answer = reply.answer
                del self._calls[reply.rid]
        elif isinstance(reply.answer, wire.Popped):
            self._return(self._abandoned.get(reply.rid), reply.answer.lent)
        elif isinstance(reply.answer, wire.Failure) and reply.rid == 0:
            raise ProtocolError(f"the node could not read a frame: {reply.answer.message}")

    # --- inside ---

    def _frames(self, call: Call, now: float) -> list[bytes]:
        request = call.request
        if call.sends and isinstance(request, WAITING) and request.wait_ms:
            # What was waited for already is not waited for again.
            left_ms = max(0, int((call.waiting_until - now) * 1000))
            waiting = msgspec.structs.replace(request, wait_ms=left_ms)
            call.frame = _encode(call.rid, waiting, self._token)
        return [call.frame, *call.payload]

    def _end(
        self, call: Call, answer: wire.AnyAnswer | None = None, error: WeftError | None = None
    ) -> None:
        call.answer, call.error = answer, error
        del self._calls[call.rid]
        if error is not None or call.sends > 1:
            self._remember(call)
        if call.on_end is not None:
            call.on_end(call)

    def _remember(self, call: Call) -> None:
        if call.sends and isinstance(call.request, wire.Pop):
            self._abandoned[call.rid] = call.request.queue
            if len(self._abandoned) > ABANDONED_MAX:
                self._abandoned.popitem(last=False)

    def _misread(self, frame: wire.Frame, why: str) -> None:
        """Fails the call that the frame names, if it names one: better now than at its deadline."""
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
            self.give_back.append(wire.Nack(queue, receipts, counted=False))

    def _late(self, call: Call) -> WeftError:
        verb = _verb(call.request)
        if not call.sends:
            return NotSent(
                f"no connection to the node within the time of {verb}; nothing was sent. "
                "Is the node running?"
            )
        if isinstance(call.request, wire.Push):
            return DeadlineExceeded(
                "the push had no answer in time: it may or may not have been stored"
            )
        return DeadlineExceeded(f"{verb} had no answer in time; it may or may not have been done")


def _broken(call: Call) -> ConnectionLost:
    verb = _verb(call.request)
    if not call.sends:
        return NotSent(f"no connection to the node for {verb}; nothing was sent")
    return ConnectionLost(
        f"the connection broke during {verb}, which may or may not have been done: look, then "
        "decide whether to call again"
    )


def _encode(rid: int, request: wire.AnyRequest, token: str) -> bytes:
    """The first frame. It is read back, because a node cannot say whose frame it could not read:
    a wrong type that got so far would show as a call that is never answered.
    """
    try:
        frame = wire.encode(wire.Call(wire.WIRE_VERSION, rid, request, token))
        if type(request) is not wire.Push or request.delay_ms or request.priority:
            wire.decode_call(frame)  # the rest of a push was looked at before
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"{_verb(request)}: {_by_name(request, str(error))}") from None
    return frame


def _by_name(request: wire.AnyRequest, error: str) -> str:
    """The decoder's complaint, with the field's name for its place in the array."""
    place = re.search(r"`\$\[2\]\[(\d+)\]", error)
    if place is None:
        return error
    name = request.__struct_fields__[int(place[1]) - 1]
    return f"{name}: {error.partition(' - at')[0]}"


def _verb(request: wire.AnyRequest) -> str:
    return str(type(request).__struct_config__.tag)
