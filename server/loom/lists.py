"""A node's part in the metadata lists: it keeps some, and tells the keepers of the others.

See ``stock`` for what a list is. Here it meets the rest of the node: the queues of the engine, and
the view, which says who keeps which list.

A rise is told at once, for somebody may wait. A fall only spares others a look in vain, and whoever
took the last message, or came too late for it, is about to ask the keeper where to look next: if he
*passes it on*, the node hands him the number of its last word and sends nothing. From then on it
counts as not announced, so that a rise is told again. Should he not come to the keeper, the fall is
said with the next ping, which goes out anyway. A keeper does not rely on that (`Nodes.heeds`) while
others wait there: they would be woken for what is gone.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

import msgspec

from weft import limits
from weft.dht import placement
from weft.dht.core import Core
from weft.dht.messages import Stock as Word
from weft.proto import wire
from weft.server.engine.engine import Engine

from .stock import AGAIN_US, EMPTY, Stock


class Home(Protocol):
    """The node around the lists."""

    @property
    def core(self) -> Core: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def led(self) -> Set[int]: ...
    def tell_node(self, node: str, word: Word) -> None: ...


class Lists:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._stock = Stock()
        self._announced: dict[str, int] = {}
        #: Those of them whose fall was handed to a caller: the keeper may know of it or not.
        self._handed: set[str] = set()
        self._number = 0
        self._at = 0
        self._version = 0

    def keeps(self, queue: str) -> bool:
        """Whether the list of a queue is this node's to keep."""
        return placement.of_text(queue, self._home.core.catalogue) in self._home.led

    # --- as a keeper ----------------------------------------------------------------------

    def where(self, request: wire.Where, to: object) -> None:
        self._stock.fallen(request.queue, request.fallen)
        nodes = self._nodes(request.queue)
        if nodes or not request.wait_ms:
            heeds = not self._stock.is_awaited(request.queue)
            self._answer(to, wire.Nodes([node for node, _ in nodes], heeds))
        else:
            until = self._home.core.now + request.wait_ms * 1000
            self._stock.wait(request.queue, to, until)

    def hear(self, node: str, word: Word) -> None:
        now = self._home.core.now
        for queue in self._stock.hear(node, word.boot, word.number, word.ready, now):
            self._wake(queue)

    def _nodes(self, queue: str) -> list[tuple[str, int]]:
        """(node, messages), this one first: what is here costs no hop."""
        core = self._home.core
        nodes = self._stock.nodes(queue, core.now)
        if ready := self._ready(queue):
            nodes.insert(0, (core.node, ready))
        return [each for each in nodes if each[0] in core.view.members]

    def _wake(self, queue: str) -> None:
        if self._stock.is_awaited(queue):
            nodes = self._nodes(queue)
            woken = self._stock.wake(queue, sum(ready for _, ready in nodes))
            heeds = len(woken) == 1 and not self._stock.is_awaited(queue)
            answer = wire.Nodes([node for node, _ in nodes], heeds)
            for to in woken:
                self._answer(to, answer)

    def timers(self) -> None:
        if not self._stock.awaited:
            return
        for to in self._stock.overdue(self._home.core.now):
            self._answer(to, EMPTY)

    def cancel(self, to: object) -> None:
        self._stock.cancel(to)

    def drain(self) -> None:
        for to in self._stock.forget(set()):
            self._answer(to, EMPTY)

    def moved(self, refusal: wire.Failure) -> None:
        """This node leads other partitions now: who waits at a list that it does not keep any
        more is sent on."""
        kept = {queue for queue in self._home.engine.state.queues if self.keeps(queue)}
        for to in self._stock.forget(kept):
            self._answer(to, refusal)
        self._at = 0

    def next_due(self) -> int | None:
        due = self._stock.next_due() if self._stock.awaited else None
        if len(self._home.core.view.members) < 2:
            return due
        at = max(self._at, self._home.core.ping_at) if self._at else 0
        return at if due is None else min(due, at)

    # --- as one that has messages ---------------------------------------------------------

    def popped(self, request: wire.Pop, to: object) -> None:
        """Somebody was here for messages. If none is left, the keeper should hear of that now: by
        him, or from this node."""
        queue, state = request.queue, self._home.engine.state
        if queue not in self._announced or self._ready(queue):
            return
        last = state.answers[-1] if state.answers else None
        if (
            request.passes_on
            and last is not None
            and last.to == to
            and isinstance(last.answer, wire.Popped)
        ):
            fell = self._home.core.boot, self._number
            answer = msgspec.structs.replace(last.answer, fell=fell)
            state.answers[-1] = last._replace(answer=answer)
            self._handed.add(queue)
        else:
            state.risen.add(queue)

    def announce(self) -> None:
        """Tells the keepers what has risen from nothing, or fallen; once in a while, everything."""
        core, state = self._home.core, self._home.engine.state
        # What is only said again goes with the pings: no message is sent for it alone.
        pinged = core.ping_at == core.now + core.pace.ping
        again = core.now >= self._at and (pinged or not self._at)
        all_again = again or self._version != core.view.version
        if not (state.risen or all_again or (pinged and self._handed)):
            return
        risen, state.risen = state.risen, set()
        if len(core.view.members) < 2:
            return
        if all_again:
            self._at, self._version = core.now + AGAIN_US, core.view.version
            names = {name for name, queue in state.queues.items() if queue.ready}
            names |= self._announced.keys()
        else:
            names = {n for n in risen if self._is_news(n) or self.keeps(n)}
            if pinged:
                names |= self._handed
        words: dict[str, dict[str, int]] = {}
        self._handed -= names
        for name in names:
            ready = self._ready(name)
            if ready:
                self._announced[name] = ready
            else:
                self._announced.pop(name, None)
            keeper = core.view.places[placement.of_text(name, core.catalogue)].primary
            if keeper == core.node:
                self._wake(name)
            else:
                words.setdefault(keeper, {})[name] = ready
        for keeper, ready_by_name in words.items():
            self._number += 1
            self._home.tell_node(keeper, Word(core.boot, self._number, ready_by_name))

    def _is_news(self, name: str) -> bool:
        return name in self._handed or bool(self._ready(name)) != (name in self._announced)

    def _ready(self, name: str) -> int:
        queue = self._home.engine.state.queues.get(name)
        return queue.ready if queue is not None and queue.has_some else 0

    def _answer(self, to: object, answer: wire.AnyAnswer) -> None:
        self._home.engine.state.answer(to, answer)


def unfit(request: wire.Where) -> str | None:
    """What is wrong with a client's question for a list."""
    if not 0 <= request.wait_ms <= limits.WAIT_MS_MAX:
        return f"wait_ms must be 0 to {limits.WAIT_MS_MAX}, not {request.wait_ms}"
    if len(request.fallen) > limits.FALLEN_MAX:
        return f"at most {limits.FALLEN_MAX} nodes can be named, not {len(request.fallen)}"
    return None
