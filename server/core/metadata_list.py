"""A node's part in the metadata lists: the node owns some, and sends announcements to other owners.

See ``owned_lists`` for the lists themselves. This module connects the lists to the rest of the
node: to the queues of the engine, and to the view, which names the owner of each list.

A node announces a queue that becomes ready at once, because consumers may wait. The report of a
queue that becomes empty only spares others a query in vain, and the consumer that took the last
message, or came too late, is about to query the owner. If the consumer *passes on* the report, the
node gives the consumer the number of the node's last announcement, and sends nothing. From then on
the queue counts as not announced, so the next message is announced again. If the consumer never
queries the owner, the node announces the empty queue with the next ping, which is sent anyway. An
owner does not accept such reports (`Nodes.heeds`) while other consumers wait at the list: they
would be woken for messages that are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat

import msgspec

from weft.dht import placement
from weft.dht.core import Core
from weft.dht.messages import ReadyAnnouncement
from weft.proto import wire
from weft.server.engine.engine import Engine

from .operation import PeerCaller
from .owned_lists import AGAIN_US, EMPTY, OwnedLists, Waiting
from .partition_ownership import PartitionOwnership


class MetadataLists:
    def __init__(
        self,
        core: Core,
        engine: Engine,
        ownership: PartitionOwnership,
        send: Callable[[str, ReadyAnnouncement], None],
        forward: Callable[[str, wire.AnyRequest, PeerCaller], None],
    ) -> None:
        self._core = core
        self._engine = engine
        self._ownership = ownership
        #: Sends an announcement to the owner of a list.
        self._send = send
        #: Forwards a request to another node, which answers the caller.
        self._forward_to = forward
        self._lists = OwnedLists()
        self._announced: dict[str, int] = {}
        #: Announced queues that a consumer reports as empty: the owner may not know yet.
        self._handed: set[str] = set()
        #: Queues with more messages left here than the owner knows.
        self._more: set[str] = set()
        self._number = 0
        self._at = 0
        self._version = 0

    def keeps(self, queue: str) -> bool:
        """True if this node owns the list of a queue."""
        return placement.of_text(queue, self._core.catalogue) in self._ownership.led

    # --- as the owner of a list -----------------------------------------------------------

    def where(self, request: wire.Where, to: object) -> None:
        self._lists.mark_empty(request.queue, request.fallen)
        nodes = self._nodes(request.queue)
        if nodes or not request.wait_ms:
            heeds = not self._lists.is_awaited(request.queue)
            self._answer(to, wire.Nodes([node for node, _ in nodes], heeds))
        else:
            until = self._core.now + request.wait_ms * 1000
            pop = request.pop if isinstance(to, PeerCaller) else None
            self._lists.wait(request.queue, to, until, pop)

    def receive(self, node: str, announcement: ReadyAnnouncement) -> None:
        now = self._core.now
        for queue in self._lists.record(
            node, announcement.boot, announcement.number, announcement.ready, now
        ):
            self._wake(queue)

    def _nodes(self, queue: str) -> list[tuple[str, int]]:
        """(node, messages), this node first: local messages cost no hop."""
        core = self._core
        nodes = self._lists.nodes(queue, core.now)
        if ready := self._ready(queue):
            nodes.insert(0, (core.node, ready))
        return [each for each in nodes if each[0] in core.view.members]

    def _wake(self, queue: str) -> None:
        if self._lists.is_awaited(queue):
            nodes = self._nodes(queue)
            woken = self._lists.wake(queue, sum(ready for _, ready in nodes))
            heeds = len(woken) == 1 and not self._lists.is_awaited(queue)
            answer = wire.Nodes([node for node, _ in nodes], heeds)
            holders = chain.from_iterable(repeat(node, ready) for node, ready in nodes)
            for waiting, holder in zip(woken, holders, strict=False):
                if not self._forward(queue, waiting, holder):
                    self._answer(waiting.to, answer)

    def _forward(self, queue: str, waiting: Waiting, holder: str) -> bool:
        """Forwards the pop of a waiting node straight to a node with messages. False if the waiting
        node should get the list instead: one of the two is this node, or both are the same.

        The messages leave the list at once, so that no other consumer is woken for them. A holder
        with more messages than announced announces again (`popped`).
        """
        to, pop = waiting.to, waiting.pop
        if pop is None or not isinstance(to, PeerCaller):
            return False
        if holder in (self._core.node, to.node):
            return False
        self._lists.subtract(queue, holder, pop.limit)
        self._forward_to(holder, msgspec.structs.replace(pop, passes_on=True), to)
        return True

    def timers(self) -> None:
        if not self._lists.awaited:
            return
        for to in self._lists.overdue(self._core.now):
            self._answer(to, EMPTY)

    def cancel(self, to: object) -> None:
        self._lists.cancel(to)

    def drain(self) -> None:
        for to in self._lists.forget(set()):
            self._answer(to, EMPTY)

    def moved(self, refusal: wire.Failure) -> None:
        """This node leads other partitions now: refuses callers at lists of other owners."""
        kept = {queue for queue in self._engine.queues if self.keeps(queue)}
        for to in self._lists.forget(kept):
            self._answer(to, refusal)
        self._at = 0

    def next_due(self) -> int | None:
        due = self._lists.next_due() if self._lists.awaited else None
        if len(self._core.view.members) < 2:
            return due
        at = max(self._at, self._core.ping_at) if self._at else 0
        return at if due is None else min(due, at)

    # --- as a holder of messages ----------------------------------------------------------

    def popped(self, request: wire.Pop, to: object, *, forwarded: bool) -> None:
        """Called after a pop. If no message is left, the owner should know now, from the consumer
        or from this node. If messages are left after a pop forwarded by the owner, the owner should
        know, too: the owner counted the announced messages as taken, and others may wait."""
        queue, ready = request.queue, self._engine.ready
        if forwarded and ready.count(queue):
            self._more.add(queue)
            ready.mark(queue)
            return
        if queue not in self._announced or ready.count(queue):
            return
        fell = self._core.boot, self._number
        if request.passes_on and ready.report_fall(to, fell):
            self._handed.add(queue)
        else:
            ready.mark(queue)

    def announce(self) -> None:
        """Announces queues that became ready or empty; once in a while, all queues."""
        core, ready_queues = self._core, self._engine.ready
        # Repeated announcements go with the pings: no message is sent for them alone.
        pinged = core.ping_at == core.now + core.pace.ping
        again = core.now >= self._at and (pinged or not self._at)
        all_again = again or self._version != core.view.version
        if not (ready_queues.changed or all_again or (pinged and self._handed)):
            return
        changed = ready_queues.take_changed()
        if len(core.view.members) < 2:
            return
        if all_again:
            self._at, self._version = core.now + AGAIN_US, core.view.version
            names = ready_queues.names() | self._announced.keys()
        else:
            names = {n for n in changed if self._is_changed(n) or self.keeps(n)}
            if pinged:
                names |= self._handed
        announcements: dict[str, dict[str, int]] = {}
        self._handed -= names
        self._more.clear()
        for name in sorted(names):  # in one order in every process: a simulated run is repeatable
            ready = self._ready(name)
            if ready:
                self._announced[name] = ready
            else:
                self._announced.pop(name, None)
            owner = core.view.places[placement.of_text(name, core.catalogue)].primary
            if owner == core.node:
                self._wake(name)
            else:
                announcements.setdefault(owner, {})[name] = ready
        for owner, ready_by_name in announcements.items():
            self._number += 1
            self._send(owner, ReadyAnnouncement(core.boot, self._number, ready_by_name))

    def _is_changed(self, name: str) -> bool:
        return (
            name in self._handed
            or name in self._more
            or bool(self._ready(name)) != (name in self._announced)
        )

    def _ready(self, name: str) -> int:
        return self._engine.ready.count(name)

    def _answer(self, to: object, answer: wire.AnyAnswer) -> None:
        self._engine.answer(to, answer)
