"""The reconciler: background work of a node without a request, for subscriptions, stages, commits,
multicasts and idle queues.

For ledgers and apps on partitions led by this node, the reconciler sends decisions to partitions
that have not carried them out yet. For holds on partitions of this node, the reconciler asks the
holds' home whether the holds have an owner, and ends holds without one. Both start only for work
left over for a while. In the usual course, calls do their own work, and nothing happens here.

Effects of commits on other partitions are delivered from here, at once (``outbox_delivery``).
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from typing import Final, Protocol

from weft.limits import STAGE_TTL_MS
from weft.proto import pipelines
from weft.server.engine.engine import Engine
from weft.server.engine.hold import Hold
from weft.server.engine.proposal import Pending
from weft.server.engine.queue import created_of
from weft.server.engine.unfinished_work import Kind

from . import multicast_operations, publish_operations, reserve_operations
from .cluster_host import ClusterHost
from .operation import Operation
from .outbox_delivery import OutboxDelivery
from .queue_expiry import QueueExpiry

#: The interval of scans. Work found by two scans in a row has no caller any more.
POLL_US: Final = 1_000_000
#: The reconciler asks about a hold at age ASK_US, and again when the age has doubled or ASK_US_MAX
#: has passed.
ASK_US: Final = 2_000_000
ASK_US_MAX: Final = 60_000_000
#: Holds in one question, at most.
ASK_MAX: Final = 4096


class ReconcilerHost(ClusterHost, Protocol):
    @property
    def engine(self) -> Engine: ...
    @property
    def led(self) -> Set[int]: ...
    def run_operation(self, operation: Operation) -> None: ...


class Reconciler:
    def __init__(self, keeper: ReconcilerHost) -> None:
        self._keeper = keeper
        self._unfinished = keeper.engine.unfinished
        self._outbox_delivery = OutboxDelivery(keeper)
        self._queue_expiry = QueueExpiry(keeper)
        self._work_at = 0
        self._seen: set[tuple[Kind, int, str]] = set()  # work left over at the last scan
        self._busy: set[Hashable] = set()  # subjects of operations under way

    def next_due(self) -> int | None:
        if self._outbox_delivery.due:
            return self._keeper.now
        due = self._queue_expiry.next_due()
        if self._unfinished.is_empty:
            return due
        return self._work_at if due is None else min(due, self._work_at)

    def work(self, now: int) -> None:
        self._outbox_delivery.work()
        self._queue_expiry.work(now)
        if now < self._work_at or self._unfinished.is_empty:
            return
        self._work_at = now + POLL_US
        decisions = self._unfinished.decisions()
        for kind, created, name in sorted(decisions & self._seen):
            self._start((kind, created, name), self._carry_out(kind, created, name))
        self._seen = set(decisions)
        self._ask_about_marks(now)
        self._ask_about_stages(now)
        self._ask_about_multicasts(now)

    def _start(self, about: Hashable, operation: Operation | None) -> None:
        if operation is not None and about not in self._busy:
            self._busy.add(about)
            self._keeper.run_operation(self._until_done(about, operation))

    def _until_done(self, about: Hashable, operation: Operation) -> Operation:
        try:
            return (yield from operation)
        finally:
            self._busy.discard(about)

    def _carry_out(self, kind: str, created: int, name: str) -> Operation | None:
        unfinished, queue = self._unfinished, self._unfinished.queue_name(created)
        if queue is None:
            return None
        if kind == "owed":
            debts = unfinished.debts(created, name)
            return reserve_operations.redrive(self._keeper, queue, name, debts)
        decision = unfinished.decision(created, name)
        return publish_operations.redrive(self._keeper, queue, name, decision)

    def _due(self, hold: Hold, now: int) -> bool:
        age = now - hold.record.stamp
        wait = min(ASK_US_MAX, max(ASK_US, age // 2))
        return age >= ASK_US and now - hold.asked >= wait and not hold.ending

    def _ask_about_marks(self, now: int) -> None:
        by_owner: dict[tuple[int, str], list[Hold]] = {}
        for hold in self._unfinished.unsure_holds():
            if self._due(hold, now):
                owner = created_of(hold.record.queue), hold.record.owner
                by_owner.setdefault(owner, []).append(hold)
        for (created, name), found in by_owner.items():
            about = "marks", created, name
            queue = self._unfinished.queue_name(created)
            if queue is not None and about not in self._busy:
                self._start(about, self._judge(queue, name, found[:ASK_MAX], now))

    def _judge(self, queue: str, name: str, found: list[Hold], now: int) -> Operation:
        for hold in found:
            hold.asked = now
        marks = [(h.partition, h.id, h.record.number, h.record.token) for h in found]
        said, frames = yield from reserve_operations.judge(self._keeper, queue, name, marks)
        if isinstance(said, pipelines.Judged):
            for position in said.sealed:
                self._unfinished.confirm_hold(found[position])
        return said, frames

    def _ask_about_stages(self, now: int) -> None:
        for (created, name), stages in self._unfinished.stages().items():
            queue = self._unfinished.queue_name(created)
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

    def _ask_about_multicasts(self, now: int) -> None:
        """Proposals of attempts that may have ended: their coordinator knows."""
        groups: dict[tuple[int, int], list[Pending]] = {}
        for each in self._unfinished.undecided_multicasts():
            if now - each.asked >= min(ASK_US_MAX, max(ASK_US, (now - each.since) // 2)):
                place = each.partition, each.proposal.coordinator
                groups.setdefault(place, []).append(each)
        for place, found in groups.items():
            about = ("multicasts", *place)
            if about not in self._busy:
                for each in found:
                    each.asked = now
                self._start(about, multicast_operations.settle(self._keeper, found[:ASK_MAX]))
