"""The reconciler: background work of a node for subscriptions and stages, without a request.

For ledgers and apps on partitions led by this node, the reconciler sends decisions to partitions
that have not carried them out yet. For holds on partitions of this node, the reconciler asks the
holds' home whether the holds have an owner, and ends holds without one. Both start only for work
left over for a while. In the usual course, calls do their own work, and nothing happens here.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

from weft.limits import STAGE_TTL_MS
from weft.proto import pipelines
from weft.server.engine.engine import Engine
from weft.server.engine.hold import Hold
from weft.server.engine.queue import created_of

from . import publish_operations, reserve_operations
from .cluster_host import ClusterHost
from .operation import Operation

#: The interval of scans. Work found by two scans in a row has no caller any more.
LOOK_US: Final = 1_000_000
#: The reconciler asks about a hold at age ASK_US, and again when the age has doubled or ASK_US_MAX
#: has passed.
ASK_US: Final = 2_000_000
ASK_US_MAX: Final = 60_000_000
#: Holds in one question, at most.
ASK_MAX: Final = 4096


class ReconcilerHost(ClusterHost, Protocol):
    @property
    def engine(self) -> Engine: ...
    def run_operation(self, operation: Operation) -> None: ...


class Reconciler:
    def __init__(self, keeper: ReconcilerHost) -> None:
        self._keeper = keeper
        self._look_at = 0
        self._seen: set[Hashable] = set()  # work left over at the last scan
        self._busy: set[Hashable] = set()  # subjects of operations under way

    @property
    def _idle(self) -> bool:
        state = self._keeper.engine.state
        return not (state.owing or state.publishing or state.holds.unsure or state.holds.stages)

    def next_due(self) -> int | None:
        return None if self._idle else self._look_at

    def work(self, now: int) -> None:
        if now < self._look_at or self._idle:
            return
        self._look_at = now + LOOK_US
        state = self._keeper.engine.state
        owed = {*(("owed", *key) for key in state.owing), *(
            ("published", *key) for key in state.publishing
        )}  # fmt: skip
        for kind, created, name in sorted(owed & self._seen):
            self._start((kind, created, name), self._owed(kind, created, name))
        self._seen = set(owed)
        self._ask_about_marks(now)
        self._ask_about_stages(now)

    def _start(self, about: Hashable, operation: Operation | None) -> None:
        if operation is not None and about not in self._busy:
            self._busy.add(about)
            self._keeper.run_operation(self._until_done(about, operation))

    def _until_done(self, about: Hashable, operation: Operation) -> Operation:
        try:
            return (yield from operation)
        finally:
            self._busy.discard(about)

    def _name(self, created: int) -> str | None:
        queue = self._keeper.engine.state.by_created.get(created)
        return queue.name if queue is not None else None

    def _owed(self, kind: str, created: int, name: str) -> Operation | None:
        state, queue = self._keeper.engine.state, self._name(created)
        if queue is None:
            return None
        if kind == "owed":
            owed = pipelines.Owed(state.ledgers[created, name].debts())
            return reserve_operations.redrive(self._keeper, queue, name, owed)
        pending = state.apps[created, name].record.pending
        assert pending is not None, "it is published already"
        decision = pipelines.Decision(pending.batch, pending.tokens, pending.messages)
        return publish_operations.redrive(self._keeper, queue, name, decision)

    def _due(self, hold: Hold, now: int) -> bool:
        age = now - hold.record.stamp
        wait = min(ASK_US_MAX, max(ASK_US, age // 2))
        return age >= ASK_US and now - hold.asked >= wait and not hold.ending

    def _ask_about_marks(self, now: int) -> None:
        by_owner: dict[tuple[int, str], list[Hold]] = {}
        for hold in self._keeper.engine.state.holds.unsure.values():
            if self._due(hold, now):
                owner = created_of(hold.record.queue), hold.record.owner
                by_owner.setdefault(owner, []).append(hold)
        for (created, name), found in by_owner.items():
            about = "marks", created, name
            queue = self._name(created)
            if queue is not None and about not in self._busy:
                self._start(about, self._judge(queue, name, found[:ASK_MAX], now))

    def _judge(self, queue: str, name: str, found: list[Hold], now: int) -> Operation:
        for hold in found:
            hold.asked = now
        marks = [(h.partition, h.id, h.record.number, h.record.token) for h in found]
        said, frames = yield from reserve_operations.judge(self._keeper, queue, name, marks)
        if isinstance(said, pipelines.Judged):
            for position in said.sealed:
                self._keeper.engine.state.holds.unsure.pop(found[position].key, None)
        return said, frames

    def _ask_about_stages(self, now: int) -> None:
        for (created, name), stages in self._keeper.engine.state.holds.stages.items():
            queue = self._name(created)
            found = [hold for hold in stages.values() if self._due(hold, now)][:ASK_MAX]
            if queue is None or not found or ("stages", created, name) in self._busy:
                continue
            for hold in found:
                hold.asked = now
            old = [hold for hold in found if now - hold.stamp > STAGE_TTL_MS * 1000]
            tokens = sorted({(h.record.number, h.record.token) for h in old or found})
            operation = publish_operations.sweep(
                self._keeper, queue, name, tokens, expire=bool(old)
            )
            self._start(("stages", created, name), operation)
