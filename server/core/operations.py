"""The operations of a node that are under way: sends questions and takes answers, step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from weft.dht.messages import PeerReply, PeerRequest
from weft.errors import StorageError, WeftError
from weft.proto import wire
from weft.proto.verbs import MESSAGE_WAITS
from weft.server.engine.timers import Timers

from .operation import (
    PATIENCE_US,
    SILENT,
    Inner,
    Operation,
    Pause,
    PeerCaller,
    Question,
    Running,
    Said,
)

#: Operations at one time: each takes memory and a client's connection.
OPERATIONS_MAX: Final = 100_000
#: No answer arrives after this time: by then, messages leased by the answer have come back.
LATE_US: Final = 120_000_000
#: Answers to forwarded requests are relayed for this long; see `PeerRequest.reply_to`.
_RELAY_US: Final = 10_000_000
#: Bits for the question numbers of one process.
_BOOT_SHIFT: Final = 40
_LATE: Final = wire.Failure(
    "DEADLINE_EXCEEDED", "other nodes did not answer in time: it may or may not have been done",
    True,
)  # fmt: skip


class OperationHost(Protocol):
    """The services of a node for its operations."""

    @property
    def node(self) -> str: ...
    def alive(self, node: str) -> bool: ...
    def direct(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None: ...
    def send(self, to: str, message: PeerRequest | PeerReply) -> None: ...
    def reply(self, to: object, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> None: ...
    def give_back(self, lent: list[wire.Lent]) -> None: ...
    def return_lent(self, nack: wire.Nack) -> None: ...


class Operations:
    def __init__(self, host: OperationHost) -> None:
        self._host = host
        self._running: dict[int, Running] = {}
        self._by_caller: dict[object, int] = {}
        self._numbers = 0
        #: By number, oldest first: the caller, the question, and the time.
        self._asked: dict[int, tuple[Inner, Question, int]] = {}
        #: Requests forwarded for other nodes, by number: the target node, the caller, and the time.
        self._forwarded: dict[int, tuple[str, PeerCaller, int]] = {}
        self._rids = 0
        self._timers = Timers()
        #: For the next round: questions to this node itself, and operations to continue.
        self._own: deque[tuple[Question, Inner]] = deque()
        self._ready: deque[int] = deque()
        self._now = 0

    def recover(self, boot: int) -> None:
        """Starts with numbers that no earlier process of this node has used: answers to that
        process may still arrive."""
        self._rids = boot << _BOOT_SHIFT

    def begin(self, now: int) -> None:
        self._now = now

    @property
    def under_way(self) -> bool:
        return bool(self._running)

    @property
    def busy(self) -> bool:
        return bool(self._own or self._ready)

    def next_due(self) -> int | None:
        return self._timers.next()

    def start(self, operation: Operation, to: object, until: int) -> None:
        if len(self._running) >= OPERATIONS_MAX:
            operation.close()
            failure = wire.Failure("OVERLOADED", f"{OPERATIONS_MAX} operations are under way", True)
            self._host.reply(to, failure, ())
            return
        self._numbers += 1
        self._running[self._numbers] = Running(operation, to, until)
        if to is not None:
            self._by_caller[to] = self._numbers
        self._step(self._numbers, None)

    def work(self) -> None:
        """Runs everything that is due in this round."""
        for number in self._timers.fire(self._now, len(self._running) + 1):
            running = self._running[number]
            if self._now >= running.until:
                self._give_back_unread(running)
                self._end(number, (_LATE, ()))
            else:
                self._step(number, running.said())
        while self._ready:
            number = self._ready.popleft()
            if number in self._running:
                self._step(number, self._running[number].said())
        for _ in range(len(self._own)):
            question, inner = self._own.popleft()
            self._host.direct(question.request, question.payload, inner)

    def answered(self, inner: Inner, said: Said) -> None:
        """Takes an answer of this node itself."""
        running = self._running.get(inner.operation)
        if running is None or inner.step != running.step:
            if isinstance(said[0], wire.Popped):
                self._host.give_back(said[0].lent)
        elif running.answer(inner.position, inner.step, said):
            self._ready.append(inner.operation)

    def replied(self, sender: str, message: PeerReply) -> None:
        """Takes an answer of another node; messages leased to an ended operation are given back."""
        asked = self._asked.get(message.rid)
        if asked is None or (asked[1].node != sender and not _may_be_forwarded(asked[1].request)):
            self._relay(sender, message)
            return
        inner, question, _ = self._asked.pop(message.rid)
        said = message.answer, message.payload
        running = self._running.get(inner.operation)
        if running is None or inner.step != running.step or running.has(inner.position):
            request = question.request
            if isinstance(message.answer, wire.Popped) and type(request) in MESSAGE_WAITS:
                lent = message.answer.lent
                receipts = [wire.Receipt(one.partition, one.lsn, one.nonce) for one in lent]
                if receipts:
                    queue: str = request.queue  # type: ignore[attr-defined]
                    self._host.return_lent(wire.Nack(queue, receipts, counted=False))
            return
        if question.answered_by is not None:
            question.answered_by.append(sender)
        if running.answer(inner.position, inner.step, said):
            self._step(inner.operation, running.said())

    def forward(self, to: str, request: wire.AnyRequest, caller: PeerCaller) -> None:
        """Forwards a request of another node to a third node, which answers the caller directly."""
        self._rids += 1
        old = self._now - _RELAY_US
        while self._forwarded and next(iter(self._forwarded.values()))[2] < old:
            del self._forwarded[next(iter(self._forwarded))]
        self._forwarded[self._rids] = to, caller, self._now
        self._host.send(to, PeerRequest(self._rids, request, [], (caller.node, caller.rid)))

    def _relay(self, sender: str, message: PeerReply) -> None:
        """Relays an answer to a forwarded request, from a node that does not know `reply_to`."""
        forwarded = self._forwarded.get(message.rid)
        if forwarded is not None and forwarded[0] == sender:
            _, caller, _ = self._forwarded.pop(message.rid)
            self._host.send(caller.node, PeerReply(caller.rid, message.answer, message.payload))

    def view_changed(self) -> None:
        """Stops waiting for nodes that are gone, so that operations can ask other nodes."""
        alive = self._host.alive
        for inner, asked, _ in list(self._asked.values()):
            if alive(asked.node):
                continue
            # The entry stays: messages leased by a late answer are given back.
            running = self._running.get(inner.operation)
            if running is not None and running.answer(inner.position, inner.step, (SILENT, ())):
                self._ready.append(inner.operation)

    def cancel(self, to: object) -> None:
        number = self._by_caller.get(to)
        if number is not None:
            self._give_back_unread(self._drop(number))

    def end_all(self, failure: wire.Failure) -> None:
        for number in list(self._running):
            self._give_back_unread(self._running[number])
            self._end(number, (failure, ()))

    def _give_back_unread(self, running: Running) -> None:
        """Returns the messages of answers that an operation has not seen when it ends. Such answers
        come from this node: an answer of another node goes to the operation on arrival."""
        for said in running.answers:
            if said is not None and isinstance(said[0], wire.Popped):
                self._host.give_back(said[0].lent)

    # --- internals ------------------------------------------------------------------------

    def _step(self, number: int, said: list[Said] | None) -> None:
        running = self._running[number]
        try:
            step = running.operation.send(said)  # type: ignore[arg-type]
        except StopIteration as done:
            self._end(number, done.value)
            return
        except StorageError:
            raise  # a node with a failed disk sends nothing more, and ends
        except WeftError as error:
            self._end(number, (wire.Failure(error.code, error.message, error.retriable), ()))
            return
        if isinstance(step, Pause):
            running.ask(0, self._now + step.us)
        else:
            wait_us = max((_wait_us(question.request) for question in step), default=0)
            running.ask(len(step), self._now + wait_us + PATIENCE_US)
            for position, question in enumerate(step):
                self._ask(question, Inner(number, position, running.step, question.fresh))
            if not step:
                self._ready.append(number)
        self._timers.set(number, min(running.due, running.until))

    def _ask(self, question: Question, inner: Inner) -> None:
        if question.node == self._host.node:
            self._own.append((question, inner))
            return
        self._rids += 1
        self._asked[self._rids] = inner, question, self._now
        while len(self._asked) > OPERATIONS_MAX or self._oldest_at() < self._now - LATE_US:
            del self._asked[next(iter(self._asked))]  # given up long ago
        self._host.send(
            question.node, PeerRequest(self._rids, question.request, list(question.payload))
        )

    def _oldest_at(self) -> int:
        return next(iter(self._asked.values()))[2]

    def _end(self, number: int, said: Said) -> None:
        running = self._drop(number)
        self._host.reply(running.to, *said)

    def _drop(self, number: int) -> Running:
        running = self._running.pop(number)
        running.operation.close()
        self._timers.clear(number)
        if running.to is not None and self._by_caller.get(running.to) == number:
            del self._by_caller[running.to]
        return running


def _may_be_forwarded(request: wire.AnyRequest) -> bool:
    return isinstance(request, wire.Where) and request.pop is not None


def _wait_us(request: wire.AnyRequest) -> int:
    if type(request) not in MESSAGE_WAITS:
        return 0
    wait_ms: int = request.wait_ms  # type: ignore[attr-defined]
    return wait_ms * 1000
