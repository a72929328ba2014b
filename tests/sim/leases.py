"""21: a planned move of a partition loses no lease.

A lease is valid for its duration from the moment at which the answer leaves the granting node.
During that time, if nothing but planned moves (stops, joins, leaves, rebalancing) happened to the
partition:

- none of the lease's messages is lent again, unless the consumer or a node has returned it;
- an ack, nack or extend of the lease is not answered "lost";
- a message's delivery count is at most one more than the number of times it was lent.

A purge or a delete ends the leases of its queue, so emptied queues are not checked.

C7: of a queue with `keep_leases` the first holds across crashes, freezes and cuts, too. Not the
second: an ack that is repeated after its node has executed it and failed is answered "lost".

After a crash, a freeze, a cut or a suspicion all of the above may happen: such an event is a
*disturbance*, and leases granted before a disturbance are not checked any more. A primary that was
replaced without its consent may still answer pops that its followers confirmed before, until it
learns the new view: such a lease counts as granted before the disturbance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.dht.view import View
from weft.proto import wire

from .violation import Violation

if TYPE_CHECKING:
    from .clients import Batch, Used
    from .machine import Machine
    from .world import World

#: A message: partition, the batch's number there, index in the batch.
Message = tuple[int, int, int]
#: Length of a round: the answer leaves at the end of the round that grants the lease.
_SLACK_US = 2_000


@dataclass
class Grant:
    nonce: int
    at: int
    until: int
    lender: str
    queue: Used
    #: Messages of the lease that are neither returned nor subject to an ack or nack.
    out: set[Message] = field(default_factory=set)


class Leases:
    def __init__(self, world: World) -> None:
        self._world = world
        self._grants: dict[int, Grant] = {}  # by nonce
        self._newest: dict[Message, Grant] = {}
        self._lends: dict[Message, int] = {}
        #: Time of the last unplanned event: for all partitions, and by partition.
        self._disturbed_at = -1
        self._disturbed: dict[int, int] = {}
        #: Version of the view that replaced a suspected primary, by partition and primary.
        self._replaced_in: dict[tuple[int, str], int] = {}
        #: Number of moves survived by a lease.
        self.survived_count = 0
        self._moved_at: dict[int, int] = {}

    # --- disturbances ---------------------------------------------------------------------

    def disturb(self) -> None:
        """Record an unplanned event."""
        self._disturbed_at = self._world.now

    def stopped(self, machine: Machine) -> None:
        """A machine exits after SIGTERM.

        The partitions that it still leads were not handed over.
        """
        for number, place in enumerate(self._world.newest_view.places):
            if place.primary == machine.name:
                self._disturbed[number] = self._world.now

    def viewed(self, before: View, view: View) -> None:
        """A suspected primary is replaced without its consent."""
        suspected = {
            name
            for each in self._world.machines.values()
            for name in each.node_core.core.failure_detector.suspected
        }
        for number, (old, new) in enumerate(zip(before.places, view.places, strict=True)):
            if old.primary != new.primary:
                self._moved_at[number] = self._world.now
                if old.primary not in new.sync and old.primary in suspected:
                    self._disturbed[number] = self._world.now
                    self._replaced_in[number, old.primary] = view.version

    def _holds_still(self, grant: Grant, number: int) -> bool:
        """True if nothing has ended the lease; no failure ends a lease that is kept (C7)."""
        return grant.queue.settings.keep_leases or self._is_calm(number, grant.at)

    def _is_calm(self, number: int, since: int) -> bool:
        """True if nothing unplanned happened to the partition since then."""
        world = self._world
        breaks = bool(world.network._cut) or any(
            world.now < each.frozen_until or each.tears or each.fails or each.damaged
            for each in world.machines.values()
        )
        last = max(self._disturbed_at, self._disturbed.get(number, -1))
        return not breaks and last < since

    # --- events of leases -----------------------------------------------------------------

    def started(self, machine: Machine) -> None:
        """Observe the messages that a new process settles or returns."""
        node_core = machine.node_core
        give_back: Callable[[list[wire.Lent]], None] = node_core.engine.give_back
        return_lent: Callable[[wire.Nack], None] = node_core.return_lent
        handle: Callable[..., None] = node_core.handle

        def handled(
            request: wire.AnyRequest, payload: Sequence[bytes], to: object, *, plain: bool
        ) -> None:
            self._asked(request)
            handle(request, payload, to, plain=plain)

        def given_back(lent: list[wire.Lent]) -> None:
            for one in lent:
                self._free(one.nonce, range(one.first, one.first + one.count))
            give_back(lent)

        def returned(nack: wire.Nack) -> None:
            self._settling(nack.receipts)
            return_lent(nack)

        setattr(node_core.engine, "give_back", given_back)  # noqa: B010
        setattr(node_core, "return_lent", returned)  # noqa: B010
        setattr(node_core, "handle", handled)  # noqa: B010

    def _settling(self, receipts: Iterable[wire.Receipt]) -> None:
        """An ack or nack of these receipts is sent: from now on it may be executed."""
        for receipt in receipts:
            for first, count in receipt.ranges or [(0, 1 << 13)]:
                self._free(receipt.nonce, range(first, first + count))

    def _asked(self, request: wire.AnyRequest) -> None:
        """A client's request arrives."""
        if isinstance(request, wire.Ack | wire.Nack | wire.Move):
            self._settling(request.receipts)
        elif isinstance(request, wire.Extend):  # an extend may also shorten a lease
            for receipt in request.receipts:
                grant = self._grants.get(receipt.nonce)
                if grant is not None:
                    grant.until = min(grant.until, self._world.now + request.lease_ms * 1000)

    def _free(self, nonce: int, indexes: range) -> None:
        grant = self._grants.get(nonce)
        if grant is not None:
            grant.out = {message for message in grant.out if message[2] not in indexes}

    def lent(self, machine: Machine, lent: wire.Lent, messages: set[Message], batch: Batch) -> None:
        """An answer leaves the node that grants a lease on messages of `batch`."""
        if batch.queue.made_again:
            return
        now, number = self._world.now, lent.partition
        replaced_in = self._replaced_in.get((number, machine.name), 0)
        granted_before = machine.node_core.view.version < replaced_in
        for message in messages:
            before = self._newest.get(message)
            if before is not None and message in before.out and now < before.until - _SLACK_US:
                self._that(
                    not self._holds_still(before, number)
                    or (granted_before and not before.queue.settings.keep_leases),
                    f"{machine.name} lends {lent} while it is out, lent by {before.lender} "
                    f"{now - before.at} us ago for {before.until - before.at} us",
                )
            count = self._lends.get(message, 0)
            dead = bool(lent.reason)  # the delivery count of a dead letter starts at zero
            if lent.deliveries > count + 1 and not dead:
                self._that(
                    not self._is_calm(number, batch.sent_at),
                    f"{machine.name} lends {lent}, which was lent {count} times",
                )
            self._lends[message] = count + 1
        if self._world.newest_view.places[number].primary != machine.name:
            return  # a replaced primary with an old view: the new primary does not know the lease
        until = now + lent.lease_ms * 1000
        grant = Grant(lent.nonce, now, until, machine.name, batch.queue, set(messages))
        self._grants[lent.nonce] = grant
        self._newest.update(dict.fromkeys(messages, grant))

    def settled(self, machine: Machine, receipts: list[wire.Receipt], lost: list[int]) -> None:
        """An ack, nack or extend is answered."""
        now = self._world.now
        for position, receipt in enumerate(receipts):
            grant = self._grants.get(receipt.nonce)
            if grant is None or grant.queue.made_again or now >= grant.until - _SLACK_US:
                continue
            calm = self._is_calm(receipt.partition, grant.at)
            self._that(
                position not in lost or not calm,
                f"{machine.name} says that {receipt} is lost, lent by {grant.lender} "
                f"{now - grant.at} us ago for {grant.until - grant.at} us",
            )
            if calm and self._moved_at.get(receipt.partition, -1) >= grant.at:
                self.survived_count += 1

    def _that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(f"21: {what}")
