"""The errands of a node that are under way: questions out, answers in, step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from weft.dht.messages import Ask, Reply
from weft.errors import StorageError, WeftError
from weft.proto import wire
from weft.server.engine.timers import Timers

from .errand import PATIENCE_US, SILENT, Errand, Inner, Pause, Question, Running, Said

#: Errands at one time: each holds a place in memory and a client's connection.
ERRANDS_MAX: Final = 100_000
#: An answer that is later than this does not come any more: what it might have lent has come back.
LATE_US: Final = 120_000_000
#: Questions that one process can ask.
_BOOT_SHIFT: Final = 40
_LATE: Final = wire.Failure(
    "DEADLINE_EXCEEDED", "other nodes did not answer in time: it may or may not have been done",
    True,
)  # fmt: skip


class Host(Protocol):
    """What errands need of their node."""

    @property
    def node(self) -> str: ...
    def alive(self, node: str) -> bool: ...
    def direct(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None: ...
    def send(self, to: str, message: Ask) -> None: ...
    def tell(self, to: object, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> None: ...
    def give_back(self, lent: list[wire.Lent]) -> None: ...


class Errands:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._running: dict[int, Running] = {}
        self._by_caller: dict[object, int] = {}
        self._numbers = 0
        #: By number, in the order of their time: who asked, what, and when.
        self._asked: dict[int, tuple[Inner, Question, int]] = {}
        self._rids = 0
        self._timers = Timers()
        #: Questions to this node itself, and errands to go on with, in the next round.
        self._own: deque[tuple[Question, Inner]] = deque()
        self._ready: deque[int] = deque()
        self._now = 0

    def recover(self, boot: int) -> None:
        """Numbers that no earlier process of this node has used: its answers may still come."""
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

    def start(self, errand: Errand, to: object, until: int) -> None:
        if len(self._running) >= ERRANDS_MAX:
            errand.close()
            failure = wire.Failure("OVERLOADED", f"{ERRANDS_MAX} errands are under way", True)
            self._host.tell(to, failure, ())
            return
        self._numbers += 1
        self._running[self._numbers] = Running(errand, to, until)
        if to is not None:
            self._by_caller[to] = self._numbers
        self._step(self._numbers, None)

    def work(self) -> None:
        """What is due in this round."""
        for number in self._timers.fire(self._now, len(self._running) + 1):
            running = self._running[number]
            if self._now >= running.until:
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
        """This node itself has answered."""
        running = self._running.get(inner.errand)
        if running is None or inner.step != running.step:
            if isinstance(said[0], wire.Popped):
                self._host.give_back(said[0].lent)
        elif running.answer(inner.position, inner.step, said):
            self._ready.append(inner.errand)

    def replied(self, sender: str, message: Reply) -> None:
        """Another node has answered; what it lent to somebody who is gone is given back."""
        asked = self._asked.get(message.rid)
        if asked is None or asked[1].node != sender:
            return
        inner, question, _ = self._asked.pop(message.rid)
        said = message.answer, message.payload
        running = self._running.get(inner.errand)
        if running is None or inner.step != running.step:
            if isinstance(message.answer, wire.Popped) and isinstance(question.request, wire.Pop):
                lent = message.answer.lent
                receipts = [wire.Receipt(one.partition, one.lsn, one.nonce) for one in lent]
                self.give_back(sender, question.request.queue, receipts)
        elif running.answer(inner.position, inner.step, said):
            self._step(inner.errand, running.said())

    def view_changed(self) -> None:
        """Who is gone is not waited for any longer: somebody else may be asked now."""
        alive = self._host.alive
        for rid in [rid for rid, (_, asked, _) in self._asked.items() if not alive(asked.node)]:
            inner, _, _ = self._asked.pop(rid)
            running = self._running.get(inner.errand)
            if running is not None and running.answer(inner.position, inner.step, (SILENT, ())):
                self._ready.append(inner.errand)

    def cancel(self, to: object) -> None:
        number = self._by_caller.get(to)
        if number is not None:
            self._drop(number)

    def end_all(self, failure: wire.Failure) -> None:
        for number in list(self._running):
            self._end(number, (failure, ()))

    # --- inside ---------------------------------------------------------------------------

    def _step(self, number: int, said: list[Said] | None) -> None:
        running = self._running[number]
        try:
            step = running.errand.send(said)  # type: ignore[arg-type]
        except StopIteration as done:
            self._end(number, done.value)
            return
        except StorageError:
            raise  # a node with a failed disk says nothing more, and ends
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
        while len(self._asked) > ERRANDS_MAX or self._oldest_at() < self._now - LATE_US:
            del self._asked[next(iter(self._asked))]  # it was given up long ago
        self._host.send(question.node, Ask(self._rids, question.request, list(question.payload)))

    def _oldest_at(self) -> int:
        return next(iter(self._asked.values()))[2]

    def _end(self, number: int, said: Said) -> None:
        running = self._drop(number)
        self._host.tell(running.to, *said)

    def _drop(self, number: int) -> Running:
        running = self._running.pop(number)
        running.errand.close()
        self._timers.clear(number)
        if running.to is not None and self._by_caller.get(running.to) == number:
            del self._by_caller[running.to]
        return running

    def give_back(self, node: str, queue: str, receipts: list[wire.Receipt]) -> None:
        """Messages that nobody has looked at, to the node that lent them; no answer is awaited."""
        self._rids += 1
        self._host.send(node, Ask(self._rids, wire.Nack(queue, receipts, counted=False), []))


def _wait_us(request: wire.AnyRequest) -> int:
    return request.wait_ms * 1000 if isinstance(request, wire.Pop | wire.Where) else 0
