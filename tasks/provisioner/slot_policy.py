"""How many slots an app needs: a pure function of samples, without clock and without hooks.

A *slot* runs one task at a time. Two rules ask for slots, and the larger one counts:

| rule | asks for | paper 4, chapter 3 |
|---|---|---|
| growth | a step more when the queues grew by a threshold within an interval | as in the paper |
| drain | the slots that serve the arrivals and empty the queues within `drain_s` | missing there |

The paper's rule alone ignores a constant backlog: a queue that holds a million tasks and neither
grows nor shrinks never gets a second slot.

**The rate of a slot** is measured: ended tasks divided by the time that slots were busy. While no
task has ended, one task per busy time is an upper bound of the rate, so long tasks count, too.

**Invariants.** The answer is within the bounds; never above the tasks that wait or run, except for
the minimum; fewer slots are asked for only after they were not needed for the whole cooldown, and
never fewer than the running tasks hold.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from typing import Final, NamedTuple

from weft.client import arguments
from weft.errors import InvalidArgument

SLOTS_MAX: Final = 100_000
INTERVAL_S: Final = 10.0
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.2, 3600.0
GROWTH: Final = 100
#: Samples whose mean is the rate of a slot: long enough for a mean, short enough to follow.
RATE_SAMPLES: Final = 6


class LoadSample(NamedTuple):
    """The queues and the slots of an app at one time."""

    at_s: float
    #: Tasks that wait, and tasks at workers.
    ready: int
    leased: int
    #: Tasks that have ended so far. Lower than before: a node has restarted.
    ended: int
    #: Slots that exist or are being started.
    slots: int


class SlotDecision(NamedTuple):
    wanted: int
    #: The rule that decided: bounds, idle, growth, drain, enough, cooldown.
    rule: str
    #: Tasks per second and busy slot; 0.0 if no slot was busy so far.
    slot_rate: float
    #: Tasks per second that arrived in the last interval.
    arrivals: float


class SlotPolicy(NamedTuple):
    """The options of `weft provision`."""

    min_slots: int = 0
    max_slots: int = 1
    interval_s: float = INTERVAL_S
    growth: int = GROWTH
    #: Slots that the growth rule adds.
    step: int = 1
    #: The time within which the queues should be empty.
    drain_s: float = 3 * INTERVAL_S
    cooldown_s: float = INTERVAL_S

    def checked(self) -> SlotPolicy:
        """Returns itself; raises InvalidArgument."""
        arguments.check_integer("min", self.min_slots, 0, SLOTS_MAX)
        arguments.check_integer("max", self.max_slots, 1, SLOTS_MAX)
        if self.min_slots > self.max_slots:
            raise InvalidArgument(
                f"min is {self.min_slots} and max is {self.max_slots}: min must not be above max"
            )
        arguments.check_number("interval", self.interval_s, INTERVAL_S_MIN, INTERVAL_S_MAX)
        arguments.check_integer("growth", self.growth, 1, 1 << 40)
        arguments.check_integer("step", self.step, 1, SLOTS_MAX)
        arguments.check_number("drain", self.drain_s, self.interval_s, arguments.WAIT_S_MAX)
        arguments.check_number("cooldown", self.cooldown_s, 0, arguments.WAIT_S_MAX)
        return self


class SlotController:
    """The samples of the past, and the decision for the newest one."""

    def __init__(self, policy: SlotPolicy) -> None:
        self._policy = policy
        self._samples: deque[LoadSample] = deque(maxlen=RATE_SAMPLES)
        #: Times and answers since the first one below the present slots.
        self._lower: list[tuple[float, int]] = []

    def decide(self, now: LoadSample) -> SlotDecision:
        policy = self._policy
        before = self._samples[-1] if self._samples else None
        self._samples.append(now)
        rate, measured = self._slot_rate()
        arrivals = _arrivals(before, now)
        wanted, rule = self._needed(before, now, rate, arrivals)
        most = max(policy.min_slots, min(policy.max_slots, now.ready + now.leased))
        if wanted > most or wanted < policy.min_slots:
            wanted = max(policy.min_slots, min(wanted, most))
            rule = "bounds"
        if wanted < now.slots:
            wanted, rule = self._cooled(now, wanted, rule)
        else:
            self._lower.clear()
        return SlotDecision(wanted, rule, rate if measured else 0.0, arrivals)

    def _needed(
        self, before: LoadSample | None, now: LoadSample, rate: float, arrivals: float
    ) -> tuple[int, str]:
        """The slots that the rules ask for, before the bounds."""
        policy = self._policy
        if now.ready == 0 and now.leased == 0:
            return 0, "idle"
        if rate == 0.0:  # no slot has been busy: begin with a step
            drain = max(now.slots, policy.step)
        else:
            drain = math.ceil((arrivals + now.ready / policy.drain_s) / rate - 1e-9)
        grown = 0 if before is None else now.ready - before.ready
        if grown >= policy.growth and now.slots + policy.step > drain:
            return now.slots + policy.step, "growth"
        return (drain, "drain") if drain > now.slots else (drain, "enough")

    def _cooled(self, now: LoadSample, wanted: int, rule: str) -> tuple[int, str]:
        """Fewer slots only if none of the answers of the cooldown was higher."""
        policy = self._policy
        self._lower.append((now.at_s, wanted))
        held = min(now.slots, now.leased, policy.max_slots)
        # Samples come an interval apart, more or less: half of one is no delay by another.
        if now.at_s - self._lower[0][0] < policy.cooldown_s - policy.interval_s / 2:
            return max(min(now.slots, policy.max_slots), held), "cooldown"
        recent = [(at, slots) for at, slots in self._lower if now.at_s - at <= policy.cooldown_s]
        # One older answer stays: the time without a higher need began there.
        self._lower = [*self._lower[: -len(recent)][-1:], *recent]
        return max(held, *(slots for _, slots in recent)), rule

    def _slot_rate(self) -> tuple[float, bool]:
        """Tasks per second of a busy slot; False if no slot was busy."""
        busy_s, ended = 0.0, 0
        for before, after in pairwise(self._samples):
            working = min(after.slots, after.leased)
            # Short tasks end between two looks: the slots were busy if tasks waited.
            if after.ready and after.ended > before.ended:
                working = max(working, min(before.slots, after.slots))
            busy_s += working * (after.at_s - before.at_s)
            ended += max(0, after.ended - before.ended)
        if busy_s <= 0.0:
            return 0.0, False
        return max(1, ended) / busy_s, True


def _arrivals(before: LoadSample | None, now: LoadSample) -> float:
    if before is None or now.at_s <= before.at_s:
        return 0.0
    ended = max(0, now.ended - before.ended)
    came = ended + now.ready + now.leased - before.ready - before.leased
    return max(0.0, came / (now.at_s - before.at_s))
