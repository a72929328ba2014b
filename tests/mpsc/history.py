"""Histories of a queue with one dequeuer, and two checkers for them.

``linearizable`` is exact: it searches for an order of the operations that respects their times and
in which a plain FIFO queue gives the same answers (Wing and Gong's search, with a memo). The single
dequeuer makes the search fast: its answers fix the order in which the dequeued items must have been
enqueued, so that a state is just the set of operations already placed.

``violation`` is the linear-time form for long histories without "full" answers: the four aspects of
the paper's theorem A.2.2.1. A test compares the two on random small histories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Enqueue:
    """``taken`` of the values were accepted; None: the enqueuer died in this call."""

    actor: int
    values: tuple[bytes, ...]
    began: float = 0.0
    ended: float = math.inf
    taken: int | None = None


@dataclass(slots=True)
class Dequeue:
    """A call's answer; no values means that the queue was empty."""

    actor: int
    values: tuple[bytes, ...] = ()
    began: float = 0.0
    ended: float = math.inf


@dataclass(frozen=True, slots=True)
class Rules:
    """The meaning of "full": the enqueuer's own items, or those of all, fill ``capacity``."""

    capacity: int
    per_enqueuer: bool = True
    #: More than ``capacity`` is never held; some queues buffer further items at the dequeuer.
    strict: bool = True


def linearizable(enqueues: Sequence[Enqueue], dequeues: Sequence[Dequeue], rules: Rules) -> bool:
    """True if some sequential order explains the history."""
    out = [value for call in dequeues for value in call.values]
    if len(set(out)) != len(out):
        return False
    return _Search(_lanes(enqueues), _answers(dequeues), out, rules).run()


@dataclass(frozen=True, slots=True)
class _Unit:
    """A moment of an enqueue call.

    A call that accepts fewer items than offered checks for room once, and then its accepted items
    take effect one by one, in order.
    """

    value: bytes
    call: Enqueue
    #: True: an accepted item; False: the check that found no room for more; None: unknown, it died.
    taken: bool | None


def _lanes(enqueues: Sequence[Enqueue]) -> list[list[_Unit]]:
    """The units of each enqueuer in program order."""
    lanes: dict[int, list[_Unit]] = {}
    for call in enqueues:
        lane = lanes.setdefault(call.actor, [])
        if call.taken is not None and call.taken < len(call.values):
            lane.append(_Unit(b"", call, False))
        accepted = call.values if call.taken is None else call.values[: call.taken]
        lane.extend(_Unit(value, call, None if call.taken is None else True) for value in accepted)
    return list(lanes.values())


def _answers(dequeues: Sequence[Dequeue]) -> list[tuple[bytes | None, Dequeue]]:
    """Every answer of the dequeuer as single items, None for "empty", each with its call."""
    return [(item, call) for call in dequeues for item in (call.values or (None,))]


@dataclass
class _Search:
    """A state is the progress of each lane and of the answers; ``order`` follows from it."""

    lanes: list[list[_Unit]]
    answers: list[tuple[bytes | None, Dequeue]]
    out: list[bytes]
    rules: Rules
    dead_ends: set[tuple[int, ...]] = field(default_factory=set)

    def run(self) -> bool:
        self.wanted = set(self.out)
        return self._place([0] * len(self.lanes), 0, [], 0)

    def _place(self, at: list[int], answered: int, order: list[_Unit], gone: int) -> bool:
        """Place the next operation of a state.

        ``at``: units placed of each lane; ``answered``: answers given; ``order``: the enqueued
        units so far; ``gone``: how many of them were dequeued.
        """
        if answered == len(self.answers) and self._complete(at):
            return True
        state = (*at, answered)
        if state in self.dead_ends:
            return False
        if self._try_answer(at, answered, order, gone):
            return True
        for index, lane in enumerate(self.lanes):
            if at[index] < len(lane) and self._try_unit(index, at, answered, order, gone):
                return True
        self.dead_ends.add(state)
        return False

    def _try_answer(self, at: list[int], answered: int, order: list[_Unit], gone: int) -> bool:
        if answered == len(self.answers):
            return False
        item, call = self.answers[answered]
        if not self._may_come(at, answered, call.began):
            return False
        if item is None:
            return len(order) == gone and self._place(at, answered + 1, order, gone)
        if gone == len(order) or order[gone].value != item:
            return False
        return self._place(at, answered + 1, order, gone + 1)

    def _try_unit(
        self, index: int, at: list[int], answered: int, order: list[_Unit], gone: int
    ) -> bool:
        unit = self.lanes[index][at[index]]
        if not self._may_come(at, answered, unit.call.began):
            return False
        held = len(order) - gone
        if self.rules.per_enqueuer:
            held = sum(other.call.actor == unit.call.actor for other in order[gone:])
        after = [*at[:index], at[index] + 1, *at[index + 1 :]]
        if unit.taken is False:
            full = held + (unit.call.taken or 0) >= self.rules.capacity
            return full and self._place(after, answered, order, gone)
        if self.rules.strict and held >= self.rules.capacity:
            return False
        # Items are placed in the order of their dequeue, those never dequeued after them.
        place = len(order)
        fits = (
            self.out[place] == unit.value
            if place < len(self.out)
            else unit.value not in self.wanted
        )
        return fits and self._place(after, answered, [*order, unit], gone)

    def _may_come(self, at: list[int], answered: int, began: float) -> bool:
        """True if no call that ended before this one began is still to be placed."""
        if answered < len(self.answers) and self.answers[answered][1].ended < began:
            return False
        return all(
            place == len(lane) or lane[place].call.ended >= began
            for place, lane in zip(at, self.lanes, strict=True)
        )

    def _complete(self, at: list[int]) -> bool:
        """Only calls of a dead enqueuer may have had no effect."""
        return all(
            unit.taken is None
            for place, lane in zip(at, self.lanes, strict=True)
            for unit in lane[place:]
        )


def violation(enqueues: Sequence[Enqueue], dequeues: Sequence[Dequeue]) -> str | None:
    """The first of the four violations found, or None. Every call has ended, and none was full."""
    by_value = {value: call for call in enqueues for value in call.values}
    out = [value for call in dequeues for value in call.values]
    if len(set(out)) != len(out):
        return "repeat: an item was dequeued twice"
    rest = set(by_value).difference(out)
    # The earliest end among the items from a place of the output on, and of those never dequeued.
    earliest = [min((by_value[value].ended for value in rest), default=math.inf)] * (len(out) + 1)
    for at in range(len(out) - 1, -1, -1):
        if out[at] not in by_value:
            return f"fresh: {out[at]!r} was never enqueued"
        earliest[at] = min(earliest[at + 1], by_value[out[at]].ended)
    at = 0
    for call in dequeues:
        if not call.values and earliest[at] < call.began:
            return f"witness: empty at {call.began} although an item was there"
        for value in call.values:
            at += 1
            if call.ended < by_value[value].began:
                return f"fresh: {value!r} was dequeued before it was enqueued"
            if earliest[at] < by_value[value].began:
                return f"order: {value!r} was dequeued before an item that preceded it"
    return _program_order(enqueues, out)


def _program_order(enqueues: Sequence[Enqueue], out: list[bytes]) -> str | None:
    """Items of one enqueuer leave in the order of their enqueue."""
    place = {value: at for at, value in enumerate(out)}
    latest: dict[int, float] = {}
    for call in enqueues:
        for value in call.values:
            at = place.get(value, math.inf)
            if at < latest.get(call.actor, -1):
                return f"order: enqueuer {call.actor}'s items changed places"
            latest[call.actor] = at
    return None
