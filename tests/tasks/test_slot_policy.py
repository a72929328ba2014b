"""The slots of a provisioner: rules, bounds and cooldown, on modelled loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.tasks.provisioner.slot_policy import LoadSample, SlotController, SlotPolicy


def modelled(
    policy: SlotPolicy, arrivals: Callable[[int], int], task_s: float, intervals: int
) -> list[tuple[int, int, int, str]]:
    """A pool that follows the decisions at once: (backlog, slots, wanted, rule) per interval."""
    controller = SlotController(policy)
    backlog, ended, slots = 0.0, 0.0, policy.min_slots
    rows = []
    for number in range(intervals):
        leased = min(int(backlog), slots)
        sample = LoadSample(
            number * policy.interval_s, int(backlog) - leased, leased, int(ended), slots
        )
        decision = controller.decide(sample)
        rows.append((int(backlog), slots, decision.wanted, decision.rule))
        slots = decision.wanted
        backlog += arrivals(number)
        done = min(backlog, slots * policy.interval_s / task_s)
        backlog, ended = backlog - done, ended + done
    return rows


def test_a_constant_backlog_gets_slots_which_the_growth_rule_alone_never_gives() -> None:
    policy = SlotPolicy(1, 20, 10, growth=100, drain_s=100, cooldown_s=10).checked()
    # 1,000 tasks wait from the beginning; from then on, as many arrive as end.
    held: list[int] = []
    controller = SlotController(policy)
    ended = slots = 1
    for number in range(6):
        decision = controller.decide(LoadSample(number * 10.0, 1000, slots, ended, slots))
        held.append(decision.wanted)
        slots = decision.wanted
        ended += slots * 10  # one task per second and slot, and as many new ones
    assert held[0] == 1, "one sample has no rate"
    # Arrivals of a slot each, and 1,000 tasks in 100 s: ten slots more.
    assert held[1] >= 11
    assert held[-1] == 20, "the backlog stays, so the most slots are in use"


def test_slots_rise_and_fall_with_the_load() -> None:
    policy = SlotPolicy(0, 16, 5, growth=1000, drain_s=15, cooldown_s=5).checked()
    rows = modelled(policy, lambda n: 40 if 4 <= n < 20 else 0, 1.0, 34)
    # 8 tasks per second of 1 s each: 8 slots.
    assert [slots for _, slots, _, _ in rows[:4]] == [0, 0, 0, 0]
    assert 8 <= rows[8][1] <= 16
    assert 8 <= rows[19][1] <= 10
    assert rows[19][0] <= 60
    assert rows[-1][:3] == (0, 0, 0)


def test_the_growth_rule_adds_its_step_before_any_rate_is_known() -> None:
    controller = SlotController(SlotPolicy(1, 50, 10, growth=100, step=5, drain_s=30).checked())
    controller.decide(LoadSample(0, 0, 0, 0, 1))
    grown = controller.decide(LoadSample(10, 200, 0, 0, 1))  # the slot is still starting
    assert (grown.wanted, grown.rule) == (6, "growth")
    less = controller.decide(LoadSample(20, 250, 0, 0, 6))
    assert (less.wanted, less.rule) == (6, "enough")


def test_long_tasks_count_before_one_has_ended() -> None:
    """100 tasks of an hour: no task has ended, but a slot's rate has an upper bound."""
    controller = SlotController(SlotPolicy(0, 50, 10, drain_s=30, growth=1000).checked())
    assert controller.decide(LoadSample(0, 100, 0, 0, 0)).wanted == 1
    slots, ended = 1, 0
    for number in range(1, 8):
        slots = controller.decide(LoadSample(number * 10.0, 99, 1, ended, slots)).wanted
    assert slots == 50


def test_bounds() -> None:
    controller = SlotController(SlotPolicy(2, 4, 10, growth=1).checked())
    assert controller.decide(LoadSample(0, 0, 0, 0, 0)).wanted == 2
    assert controller.decide(LoadSample(10, 10_000, 2, 1, 2)).wanted == 4
    few = SlotController(SlotPolicy(0, 100, 10, growth=1, step=50).checked())
    few.decide(LoadSample(0, 0, 0, 0, 0))
    assert few.decide(LoadSample(10, 3, 0, 0, 0)).wanted == 3, "no more slots than tasks"
    above = SlotController(SlotPolicy(0, 4, 10, cooldown_s=0).checked())
    assert above.decide(LoadSample(0, 9, 9, 0, 9)).wanted == 4, "started by another"


def test_slots_stop_only_after_the_cooldown_and_never_under_running_tasks() -> None:
    controller = SlotController(SlotPolicy(0, 8, 10, cooldown_s=20).checked())
    wanted = [
        controller.decide(LoadSample(at, 0, leased, 100, 8)).wanted
        for at, leased in ((0, 0), (10, 0), (20, 5), (30, 0), (40, 3), (50, 0), (60, 0), (70, 0))
    ]
    assert wanted[:2] == [8, 8]
    assert wanted[2] == 5, "five tasks run"
    assert wanted[-1] == 0
    assert all(a >= 3 for a in wanted[:5])


def test_a_restarted_node_counts_from_zero() -> None:
    controller = SlotController(SlotPolicy(0, 8, 10).checked())
    controller.decide(LoadSample(0, 10, 1, 1_000_000, 1))
    decision = controller.decide(LoadSample(10, 10, 1, 3, 1))
    assert decision.arrivals == 0
    assert 0 < decision.wanted <= 8


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"min_slots": 3, "max_slots": 2}, "min must not be above max"),
        ({"min_slots": -1}, "min must be"),
        ({"max_slots": 0}, "max must be"),
        ({"interval_s": 0}, "interval must be"),
        ({"growth": 0}, "growth must be"),
        ({"step": 0}, "step must be"),
        ({"drain_s": 1}, "drain must be"),
        ({"cooldown_s": -1}, "cooldown must be"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(weft.InvalidArgument, match=says):
        SlotPolicy(**options).checked()
