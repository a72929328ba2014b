"""13: an ordered queue lends one lot at a time, whoever leads it.

A lot is lent from the moment at which the node takes it, until its consumer acks it or gives it
back, or until its time is over, whoever goes on with the lease. (An answer may be late, on its way
or in a node that was frozen: then its consumer knows less of its time than he has.) Only what a
consumer has received counts: an answer that was lost was lent to nobody. And a lot holds nothing
that stands behind a message which was lent before, and which nobody has tried to ack.
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
    first: tuple[int, int]  # the number of its batch, and the index in that
    #: When its consumer sent an ack or a nack for the last of it.
    ended_at: int | None = None
    open: int = 0  # leases in it that the consumer has not ended


class Line:
    def __init__(self, world: World) -> None:
        self._world = world
        self._held: dict[int, int] = {}  # nonce -> when its answer began to wait
        #: nonce -> when it was last asked who leads, and for how long the node trusts the answer.
        self.asked: dict[int, tuple[int, int]] = {}
        self._left: dict[int, Lot] = {}  # by nonce
        self._received: list[Lot] = []
        #: What was lent and not yet acked, as far as its consumers tried: place -> body.
        self._out: dict[tuple[int, int], bytes] = {}
        #: A lot is taken when its request comes, and heard of when that round ends, or the next.
        self._rounds_us = 200 + max(world.options.gather_us, world.options.calm_gather_us)

    def started(self, machine: Machine) -> None:
        """From now on it is heard of when an answer is held back."""
        engine, patience = machine.loom.engine, machine.loom.core.pace.suspect
        hold: Callable[[list[wire.Lent]], None] = engine.hold

        def held(lent: list[wire.Lent]) -> None:
            now = self._world.now
            for one in lent:
                self._held.setdefault(one.nonce, now)
                _, before = self.asked.get(one.nonce, (0, patience // 2))
                self.asked[one.nonce] = now, 2 * before
            hold(lent)

        setattr(engine, "hold", held)  # noqa: B010

    def leaves(self, machine: Machine, lent: list[wire.Lent]) -> None:
        """An answer leaves the node that lends; if it was seen before, for another one."""
        if not lent or lent[0].nonce in self._left:
            return
        lent_at = self._held.get(lent[0].nonce, self._world.now)
        place = (lent[0].lsn, lent[0].first)
        lot = Lot(machine.name, lent_at, lent[0].lease_ms * 1000, place)
        self._left.update({one.nonce: lot for one in lent})

    def received(self, lent: list[wire.Lent], frames: list[list[bytes]]) -> None:
        """A consumer has it."""
        if not lent:
            return
        lot = self._left[lent[0].nonce]
        lot.open = len(lent)
        for other in self._received:
            self._apart(*sorted((lot, other), key=lambda each: each.lent_at))
        self._received.append(lot)
        for one, bodies in zip(lent, frames, strict=True):
            for index, body in enumerate(bodies, one.first):
                self._out[one.lsn, index] = body
        given_up = self._world.checker.ledger.given_up
        before = [p for p, body in self._out.items() if p < lot.first and body not in given_up]
        if before:
            raise Violation(f"13: {lent[0]} is lent before {before[0]}, which nobody has acked")

    def ended(self, nonce: int) -> None:
        """Its consumer sends an ack or a nack."""
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
