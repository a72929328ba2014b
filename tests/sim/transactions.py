"""Consume, transform, produce: commits of clients, checked for all-or-nothing.

A worker pops messages of "intake" and commits: the ack, a push to "outlet", and appends to keys on
any partition. Commits without messages are drawn, too, and conditions. A client repeats a commit
under its name until it is answered, at any node.

C1 a commit that was answered OK has all its effects once, a refused one none, and one without an
answer all or none; C2 a message is consumed by at most one commit; C4 a delivery leaves a node only
when its entry is on enough disks (``check``); C8 at the end no outbox has a delivery.

Appends show effects that happen twice. The ledger checks pushed messages like all others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from weft.dht import placement
from weft.proto import wire
from weft.proto.settings import Settings

from . import settled
from .clients import INTAKE, Batch, Clients, Used
from .violation import Violation

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World

OUTLET: Final = "outlet"
_KEYS: Final = ("log a", "log b", "log c")
_PRODUCER: Final = 31
_AGAIN_US: Final = 450_000
#: Commits of a run.
_COMMITS_MAX: Final = 40


def queues(lease_ms: int) -> list[Used]:
    settings = Settings(lease_ms=lease_ms)
    return [Used(INTAKE, 21, settings), Used(OUTLET, 22, settings)]


@dataclass
class CommitCall:
    """One commit, until its answer."""

    request: wire.Commit
    #: The messages acknowledged, and the messages pushed.
    acked: list[bytes]
    outputs: list[Batch] = field(default_factory=list)
    keys: tuple[str, ...] = ()
    #: "done", "refused", or "" without an answer.
    end: str = ""


class Transactions:
    def __init__(self, world: World, clients: Clients, seed: int) -> None:
        self._world = world
        self._clients = clients
        self._rng = random.Random(f"transactions of {seed}")
        self._outlet = next((each for each in clients.queues if each.name == OUTLET), None)
        self.calls: list[CommitCall] = []
        self._consumed: dict[bytes, int] = {}
        self.running = True

    def schedule(self, span: int) -> None:
        for _ in range(3):
            self._world.after(self._rng.randrange(span // 4), self._work)

    def _work(self) -> None:
        world, rng = self._world, self._rng
        if not self.running or len(self.calls) >= _COMMITS_MAX:
            return
        world.after(rng.randrange(100_000, 500_000), self._work)
        machine = world.member()
        if machine is None or not all(each.made for each in self._clients.queues):
            return
        if rng.random() < 0.25:
            number = rng.randrange(world.options.partitions)
            self._commit(number, [], [])
            return
        request = wire.Pop(INTAKE, rng.randrange(1, 5))
        world.ask(machine, request, (), self._popped, plain=rng.random() < 0.5)

    def _popped(self, _: Machine, answer: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
        if not isinstance(answer, wire.Popped):
            return
        world = self._world
        for lent, frame in zip(answer.lent, frames, strict=True):
            bodies = wire.decode_payload(frame).bodies
            late = self._rng.random() < 0.15
            hold_us = 2 * world.options.lease_ms * 1000 if late else 50_000
            receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce, [(lent.first, lent.count)])
            work = partial(self._commit, lent.partition, [receipt], bodies)
            world.after(self._rng.randrange(hold_us), work)

    def _commit(self, home: int, receipts: list[wire.Receipt], bodies: list[bytes]) -> None:
        rng, number = self._rng, len(self.calls) + 1
        assert self._outlet is not None
        keys = tuple(rng.sample(_KEYS, rng.choice([1, 2])))
        value = b"%d," % number
        writes: list[wire.AnyWrite] = [wire.AppendKey(key, value, 0, 0) for key in keys]
        if rng.random() < 0.3:
            writes.append(wire.Put(self._claim(home), value, 0, 0, 0, rng.choice([0, 0, -1])))
        outputs = [
            Batch(self._outlet, 1000 + 10 * number + index, [b"out.%d.%d" % (number, index)])
            for index in range(rng.choice([0, 1, 1, 2]))
        ]
        pushes: list[wire.CommitPush] = []
        for batch in outputs:
            batch.dedup_key = f"out {batch.number}" if rng.random() < 0.3 else None
            batch.sent_at = self._world.now
            self._world.checker.ledger.batches[self._outlet.producer, batch.number] = batch
            push = wire.Push(
                OUTLET, self._outlet.producer, batch.number, 1, dedup_key=batch.dedup_key
            )
            pushes.append(wire.CommitPush(push, wire.encode(wire.Payload(batch.bodies))))
        acks = [wire.CommitAck(INTAKE, receipts)] if receipts else []
        request = wire.Commit(home, _PRODUCER, number, acks, pushes, writes)
        call = CommitCall(request, bodies, outputs, keys)
        self.calls.append(call)
        self._world.checker.ledger.acking(bodies)
        self._ask(call)

    def _claim(self, home: int) -> str:
        """A key of the home."""
        start = self._rng.randrange(20)
        names = (f"claim {number}" for number in range(start, start + 1000))
        partitions = self._world.options.partitions
        return next(name for name in names if placement.of_text(name, partitions) == home)

    def _ask(self, call: CommitCall) -> None:
        world = self._world
        if call.end:
            return
        world.after(_AGAIN_US, partial(self._ask, call))
        machine = world.member()
        if machine is None:
            return
        plain = self._rng.random() < 0.5
        if not plain:
            place = machine.node_core.view.places[call.request.partition]
            machine = world.machines[place.primary]
        world.ask(machine, call.request, (), partial(self._answered, call), plain=plain)

    def _answered(
        self, call: CommitCall, _: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]
    ) -> None:
        if isinstance(answer, wire.Failure) and answer.retriable:
            return
        end = "done" if isinstance(answer, wire.Committed) else "refused"
        if call.end:
            self._that(call.end == end, f"C1: commit {call.request.number} is {call.end}, {answer}")
            return
        if isinstance(answer, wire.Failure):
            known = answer.code in ("LEASE_LOST", "VERSION_MISMATCH")
            self._that(known, f"commit {call.request.number} got {answer}")
        call.end = end
        if end == "refused":
            return
        for batch in call.outputs:
            batch.done = True
        for body in call.acked:
            first = self._consumed.setdefault(body, call.request.number)
            self._that(
                first == call.request.number,
                f"C2: {body!r} is consumed by the commits {first} and {call.request.number}",
            )
        self._world.checker.ledger.acked.update(call.acked)

    # --- the end of a run -----------------------------------------------------------------

    def settled(self) -> str:
        """Every commit is answered, and every effect is delivered (C8)."""
        late = [call.request.number for call in self.calls if not call.end]
        if late:
            return f"the commits {late[:5]} of {len(late)} are not answered"
        for machine in self._world.machines.values():
            if machine.up and (owing := machine.node_core.engine.commits.owing):
                return f"{machine.name} has deliveries of {owing}"
        return ""

    def check(self) -> None:
        """C1, from the final values of the keys and from the messages that were delivered."""
        if not self.calls:
            return
        values = {key: Counter(settled.value_of(self._world, key).split(b",")) for key in _KEYS}
        delivered = self._world.checker.ledger.delivered
        for call in self.calls:
            number, wanted = b"%d" % call.request.number, int(call.end == "done")
            for key in _KEYS:
                count = values[key][number]
                self._that(
                    count == wanted * (key in call.keys),
                    f"C1: commit {call.request.number} is {call.end}, and {key} has it {count} "
                    "times",
                )
            for batch in call.outputs:
                self._that(
                    bool(wanted) or not delivered.intersection(batch.bodies),
                    f"C1: commit {call.request.number} is refused, and {batch.bodies} came",
                )

    def _that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)
