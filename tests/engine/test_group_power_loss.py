"""Grouped queues under power loss: order within each group, and never two holders of a group.

The clients are those of `power_loss`, but each push has a group, and a group has one unanswered
push at a time. Planted bugs must be caught: a checker that never fails proves nothing.
"""

from __future__ import annotations

import os

import pytest

from tests import group_order
from tests.engine.power_loss import LEASE_MS, QUEUE, Schedule
from tests.engine.rig import Asked, Rig, Taken, payload_of
from tests.group_order import GroupOrder
from tests.total_queue import check
from weft.proto import wire
from weft.server.engine.groups import GroupQueue
from weft.server.engine.lease_records import LeaseRecords
from weft.server.engine.message_id_queue import WHOLE, IdEntry, MessageIdQueue

#: For a long run: WEFT_SEEDS=10000.
SEEDS = int(os.environ.get("WEFT_SEEDS", "200"))
PLANTED_SEEDS_MAX = 30
GROUPS = [f"g{number}" for number in range(6)]


class GroupSchedule(Schedule):
    grouped = True

    def __init__(self, rig: Rig, seed: int) -> None:
        super().__init__(rig, seed)
        self.order = GroupOrder()
        self.numbered = dict.fromkeys(GROUPS, 0)
        self.group_of: dict[tuple[int, int], str] = {}

    def _push(self) -> Asked:
        busy = {self.group_of[name] for name in self.unanswered}
        free = [group for group in GROUPS if group not in busy]
        if not free:
            return self._push_again(sorted(self.unanswered)[0])
        group, count = self.rng.choice(free), self.rng.choice([1, 1, 3, 10])
        self.numbers[1] += 1
        name = 1, self.numbers[1]
        first = self.numbered[group]
        self.numbered[group] += count
        self.group_of[name] = group
        self.unanswered[name] = [
            group_order.body(group, number).decode() for number in range(first, first + count)
        ]
        return self._push_again(name)

    def _push_again(self, name: tuple[int, int]) -> Asked:
        bodies = self.unanswered[name]
        self.history.attempted(*bodies)
        request = wire.PushGroup(QUEUE, *name, len(bodies), group=self.group_of[name])
        return Asked(request, [payload_of([body.encode() for body in bodies])], ("push", name))

    def _ack(self) -> Asked | None:
        asked = super()._ack()
        for each in asked.to[1] if asked is not None else ():  # type: ignore[index]
            self.order.try_ack(group_order.parse(each.body))
        return asked

    def _nack(self) -> Asked | None:
        before = dict(self.held)
        asked = super()._nack()
        for name in before.keys() - self.held.keys():
            self.order.settle(group_order.parse(name.encode()))
        return asked

    def _take(self, messages: list[Taken]) -> None:
        now = self.rig.now / 1e6
        numbered = [group_order.parse(each.body) for each in messages]
        self.order.deliver(now, now + LEASE_MS / 1000, numbered)
        super()._take(messages)

    def _acked(self, some: list[Taken], answer: wire.Settled) -> None:
        for each in some:
            self.order.try_ack(group_order.parse(each.body))  # of the last part of the schedule
        super()._acked(some, answer)


def judge(rig: Rig, seed: int) -> tuple[GroupSchedule, list[str]]:
    schedule = GroupSchedule(rig, seed)
    verdict = check(schedule.run())
    found = [what for what, examples in verdict.violations() if examples]
    return schedule, [*schedule.order.violations, *found]


@pytest.mark.parametrize("lot", range(4))
def test_no_schedule_breaks_the_order_of_a_group(lot: int) -> None:
    delivered = 0
    for seed in range(lot * SEEDS // 4, (lot + 1) * SEEDS // 4):
        rig = Rig(seed, checking=seed % 4 == 0)
        schedule, found = judge(rig, seed)
        assert not found, f"seed {seed}: {found[:3]}"
        assert rig.counts(QUEUE) == (0, 0, 0), f"seed {seed}"
        delivered += schedule.order.delivered
    assert delivered > 40 * SEEDS // 4, "the schedules have become too weak to mean anything"


# --- planted bugs -------------------------------------------------------------------------------


def caught(word: str) -> bool:
    for seed in range(PLANTED_SEEDS_MAX):
        try:
            _, found = judge(Rig(seed, checking=False), seed)
        except (AssertionError, KeyError) as error:
            found = [str(error)]  # the engine's own bookkeeping noticed the bug first
        if any(each.startswith(word) for each in found):
            return True
    return False


def test_no_bug_no_alarm() -> None:
    assert not any(caught(word) for word in ("shared", "overtaken", "redelivered"))


def test_a_new_message_that_opens_its_group_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    add = GroupQueue.add_fresh

    def open_group(self: GroupQueue, priority: int, batch_handle: int) -> None:
        add(self, priority, batch_handle)
        name, _ = self._describe(IdEntry(batch_handle, WHOLE))
        group = self._groups[name]
        while group.blocks:
            self._unblock(group)

    def settle(self: GroupQueue, name: str) -> bool:
        group = self._groups.get(name)
        return group is not None and group.blocks > 0 and self._unblock(group)

    monkeypatch.setattr(GroupQueue, "add_fresh", open_group)
    monkeypatch.setattr(GroupQueue, "settle", settle)
    assert caught("shared")


def test_a_lease_that_is_not_recorded_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseRecords, "note", lambda self, lease: None)
    assert caught("shared")


def test_a_lot_that_is_given_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lending does not block the group: the next pop continues it."""
    monkeypatch.setattr(GroupQueue, "lend", lambda self, name, batch_handle: None)
    monkeypatch.setattr(GroupQueue, "settle", lambda self, name: False)
    assert caught("shared")


def test_a_delay_that_does_not_block_its_group_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupQueue, "add_delayed", MessageIdQueue.add_delayed)
    monkeypatch.setattr(GroupQueue, "take_due", MessageIdQueue.take_due)
    assert caught("overtaken")
