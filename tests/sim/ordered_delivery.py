"""13: an ordered queue lends one lot at a time, whichever node leads it; a grouped queue lends one
lot of each group at a time.

A lot is lent from the moment at which the node takes it until its consumer acks or returns it, or
until its lease expires, whichever node carries the lease on. (An answer may be delayed, in transit
or in a frozen node: then the consumer has less time than it believes.) Only received lots count: a
lost answer reached no consumer. And a lot contains no message behind one that was lent before and
that no client has tried to ack or to cancel; and no message is received for the first time after
one behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.proto import wire

from .violation import Violation

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World


@dataclass
class Lot:
    lender: str
    lent_at: int
    lease_us: int
    first: tuple[int, int]  # the lsn of the first batch, and the index in the batch
    #: When the consumer sent an ack or a nack for the last lease of the lot.
    ended_at: int | None = None
    open: int = 0  # leases of the lot that the consumer has not ended


class Line:
    def __init__(self, world: World, observer: Line | None = None) -> None:
        """`observer`: the line that observes the nodes; others share its observations."""
        self._world = world
        #: nonce -> start of the commit wait
        self._commit_wait: dict[int, int] = {} if observer is None else observer._commit_wait
        #: nonce -> time of the last leadership check, and for how long the node trusts its result.
        self.asked: dict[int, tuple[int, int]] = {}
        self._left: dict[int, Lot] = {}  # by nonce
        self._received: list[Lot] = []
        #: Messages that were lent and that no consumer has tried to ack: place -> body.
        self._out: dict[tuple[int, int], bytes] = {}
        #: A lot is taken when its request arrives, and observed when that round ends, or the next.
        self._rounds_us = 200 + max(world.options.gather_us, world.options.calm_gather_us)

    def started(self, machine: Machine) -> None:
        """Observe when the new process holds an answer back."""
        engine, patience = machine.node_core.engine, machine.node_core.core.pace.suspect
        hold: Callable[[list[wire.Lent]], None] = engine.hold

        def held(lent: list[wire.Lent]) -> None:
            now = self._world.now
            for one in lent:
                self._commit_wait.setdefault(one.nonce, now)
                _, before = self.asked.get(one.nonce, (0, patience // 2))
                self.asked[one.nonce] = now, 2 * before
            hold(lent)

        setattr(engine, "hold", held)  # noqa: B010

    def leaves(self, machine: Machine, lent: list[wire.Lent]) -> None:
        """An answer leaves the lending node; a lot seen before is only forwarded."""
        if not lent or lent[0].nonce in self._left:
            return
        lent_at = self._commit_wait.get(lent[0].nonce, self._world.now)
        place = (lent[0].lsn, lent[0].first)
        lot = Lot(machine.name, lent_at, lent[0].lease_ms * 1000, place)
        self._left.update({one.nonce: lot for one in lent})

    def received(self, lent: list[wire.Lent], frames: list[list[bytes]]) -> None:
        """A consumer has received the lot."""
        if not lent:
            return
        lot = self._left[lent[0].nonce]
        lot.open = len(lent)
        for other in self._received:
            self._apart(*sorted((lot, other), key=lambda each: each.lent_at))
        self._received.append(lot)
        gone = self._world.checker.ledger.may_be_gone
        last = max(self._out, default=(0, 0))
        for one, bodies in zip(lent, frames, strict=True):
            for index, body in enumerate(bodies, one.first):
                place = one.lsn, index
                if place not in self._out and place < last and not gone(body):
                    raise Violation(f"13: {one} is received for the first time after {last}")
                self._out[place] = body
        before = [p for p, body in self._out.items() if p < lot.first and not gone(body)]
        if before:
            raise Violation(f"13: {lent[0]} is lent before {before[0]}, which nobody has acked")

    def ended(self, nonce: int) -> None:
        """The consumer sends an ack or a nack."""
        lot = self._left.get(nonce)
        if lot is not None:
            lot.open -= 1
            if lot.open <= 0:
                lot.ended_at = self._world.now

    def _apart(self, first: Lot, second: Lot) -> None:
        over = first.lent_at - self._rounds_us + first.lease_us <= second.lent_at
        ended = first.ended_at is not None and first.ended_at <= second.lent_at
        if not (over or ended):
            raise Violation(
                f"13: {second.lender} lends {second.first} while {first.first}, lent by "
                f"{first.lender} {second.lent_at - first.lent_at} us before, is out"
            )


class GroupLines:
    """The groups of a grouped queue: a line for each."""

    def __init__(self, world: World, observer: Line) -> None:
        self._world, self._observer = world, observer
        self._lines: dict[str, Line] = {}

    def leaves(self, machine: Machine, lent: list[wire.Lent]) -> None:
        for group in {one.group: None for one in lent}:
            self._line(group).leaves(machine, [one for one in lent if one.group == group])

    def received(self, lent: list[wire.Lent], frames: list[list[bytes]]) -> None:
        for group in {one.group: None for one in lent}:
            mine = [position for position, one in enumerate(lent) if one.group == group]
            self._line(group).received([lent[n] for n in mine], [frames[n] for n in mine])

    def ended(self, lent: wire.Lent) -> None:
        self._line(lent.group).ended(lent.nonce)

    def _line(self, group: str | None) -> Line:
        assert group is not None, "a grouped queue lends a message without a group"
        return self._lines.setdefault(group, Line(self._world, self._observer))
