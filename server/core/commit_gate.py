"""The commit gate: an answer leaves this node only when sending is safe.

An answer is safe when every partition that it rests on is committed up to the end of the
partition's log at the time of the answer. An answer that leases messages, or must be `sure`, also
needs the other members of its partitions to confirm that this node still leads (``CommitWait``).

| state of an answer | next state |
|--------------------|------------|
| added              | waiting, if a commit or a confirmation is missing; else ready |
| waiting            | ready, when nothing is missing; failed, when this node lost a partition |
| ready              | taken by the node core, and sent after the round is on disk |
| failed             | the caller gets UNAVAILABLE; messages leased by a pop are given back |
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.dht.core import Core
from weft.proto import wire
from weft.server.engine.engine import Engine
from weft.server.engine.state import Answered

from .commit_wait import UNKNOWN, CommitWait
from .partition_ownership import PartitionOwnership


class CommitGate:
    def __init__(
        self, core: Core, engine: Engine, ownership: PartitionOwnership, patience: int
    ) -> None:
        self._core = core
        self._engine = engine
        self._ownership = ownership
        self._waiting = CommitWait(patience)
        #: Answers that may be sent once this round is on disk.
        self.ready: list[Answered] = []

    def add(self, answered: Answered, patience: int = 0) -> None:
        """Adds an answer of this round, or, with `patience` (microseconds), an answer that waited
        before and needs a new confirmation."""
        core, led, needs = self._core, self._ownership.led, dict[int, int]()
        lends, rests_on = isinstance(answered.answer, wire.Popped), answered.rests_on
        if isinstance(answered.answer, wire.Pushed) and core.catalogue in led:
            rests_on = {*rests_on, core.catalogue}  # the queue may be new and uncommitted
        for number in rests_on:
            replica = core.replicas.get(number)
            # Between two epochs led by this node, a waiting answer waits for the second epoch.
            if replica is None or number not in led or not (replica.serving or patience):
                self.fail(answered)
                return
            if replica.committed < replica.log.end:
                needs[number] = replica.log.end
            if (lends or answered.sure) and (replica.needed or not replica.serving):
                needs[~number] = core.confirm(number)
        if not needs:
            self.ready.append(answered)
            return
        self._waiting.add(answered, needs, core.now, patience)
        if isinstance(answered.answer, wire.Popped):
            self._engine.hold(answered.answer.lent)

    def fail(self, answered: Answered) -> None:
        """Fails an answer: another node may lead by now, so the caller has to retry."""
        if isinstance(answered.answer, wire.Popped):
            self._engine.give_back(answered.answer.lent)
        self.ready.append(Answered(answered.to, UNKNOWN))

    def remove(self, partitions: Iterable[int]) -> list[Answered]:
        """Removes the waiting answers that rest on partitions lost by this node."""
        return [answered for number in partitions for answered in self._waiting.lost(number)]

    def confirm_again(self) -> None:
        """Requests new confirmations for waiting answers with expired ones."""
        if self._core.now < self._waiting.ask_at:
            return
        for answered, patience in self._waiting.old(self._core.now):
            if isinstance(answered.answer, wire.Popped):
                self._engine.release(answered.answer.lent)
            self.add(answered, patience)

    def take(self) -> list[Answered]:
        """Takes the answers that may be sent now."""
        core, engine = self._core, self._engine
        for number in self._waiting.partitions if self._waiting else ():
            level = core.committed(number) if number >= 0 else core.confirmed(~number)
            for answered in self._waiting.committed(number, level):
                if isinstance(answered.answer, wire.Popped):
                    engine.release(answered.answer.lent)
                self.ready.append(answered)
        taken, self.ready = self.ready, []
        return taken
