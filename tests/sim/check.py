"""The invariants of the protocol, looked at after every event that can have touched them.

They are numbered as the protocol numbers them. A checker never asks a node what it believes where
it can look at the node's disk instead. What clients see is in ``ledger``, what the logs add up to
in ``fold``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.dht.core import SIZE
from weft.dht.log import decode
from weft.dht.messages import Reply
from weft.dht.meta import Meta, decode_meta
from weft.dht.planner import copies
from weft.dht.replica import Replica
from weft.dht.role import Role
from weft.dht.view import View
from weft.persistence import layout
from weft.persistence.store import Change
from weft.proto import wire
from weft.server.engine import head

from .fold import Fold
from .ledger import Ledger
from .machine import SUM_BYTES, Machine
from .violation import Violation

if TYPE_CHECKING:
    from .world import World


def _name(partition: int, record: bytes) -> tuple[int, int, int]:
    """Of a batch, by its head."""
    found = head.decode(record[SUM_BYTES:])
    return partition, found.producer, found.batch


class Checker:
    def __init__(self, world: World) -> None:
        self._world = world
        self.fold = Fold(world.options.partitions)
        self.ledger = Ledger(world)
        self.views: dict[int, View] = {}
        self.active: dict[tuple[int, int], str] = {}  # (partition, epoch) -> node
        self.entries: dict[tuple[int, int, int], bytes] = {}  # (partition, lsn, epoch) -> data
        #: partition -> (epoch, lsn): everything up to there was acknowledged.
        self.acknowledged: dict[int, tuple[int, int]] = {}
        #: (partition, producer, batch) -> the entries that bring it.
        self._brought: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        #: The same for those that a node wrote when it was alone, without an entry.
        self._written: set[tuple[int, int, int]] = set()
        #: machine -> partition -> what it has promised; the epoch in which it was last active.
        self._promised: dict[str, dict[int, int]] = {}
        self._seen_active: dict[str, dict[int, int]] = {}
        self._known: dict[str, int] = {}
        self._ballots: dict[str, tuple[int, int, str]] = {}

    # --- machines -------------------------------------------------------------------------

    def started(self, machine: Machine) -> None:
        """A process begins, on whatever its disk has."""
        self._promised.setdefault(machine.name, {})
        self._seen_active.setdefault(machine.name, {})
        self.fold.started(machine)
        self.ledger.line.started(machine)
        for key, value in machine.store.scan(*layout.kind_range(layout.LOG)):
            self._entry(key, machine.record(key, value))

    def recovered(self, machine: Machine) -> None:
        """7, across crashes: what was promised durably is what a fresh process starts from."""
        for number, promised in self._promised[machine.name].items():
            replica = machine.loom.core.replicas.get(number)
            kept = replica.promised if replica is not None else 0
            self.that(kept >= promised, f"7: {machine.name} forgot a promise of {number}")
        self._vote(machine)
        for number in self.fold.recovered(machine):
            for key, value in machine.store.scan(*layout.partition_range(layout.HEAD, number)):
                self._written.add(_name(number, machine.record(key, value)))

    def wrote(self, machine: Machine, changes: list[Change]) -> None:
        for key, value in changes:
            if value is not None and key[:1] == layout.LOG:
                self._entry(key, value)
        alone = self.fold.wrote(machine, changes)
        for key, value in changes if alone else ():
            if value is not None and key[:1] == layout.HEAD:
                number, _ = layout.unpack_batch(key)
                if number in alone:
                    self._written.add(_name(number, value))

    def _entry(self, key: bytes, value: bytes) -> None:
        partition, data = int.from_bytes(key[1:3], "big"), value[SUM_BYTES:]
        lsn, epoch = layout.unpack_log(key), int.from_bytes(data[:8], "big")
        before = self.entries.get((partition, lsn, epoch))
        self.that(before is None or before == data, f"6: two entries {(partition, lsn, epoch)}")
        if before is None:
            self.entries[partition, lsn, epoch] = data
            for place, record in decode(data[8:]).puts:
                if place[:1] == layout.HEAD:
                    name = _name(partition, record)
                    self._brought.setdefault(name, []).append((lsn, epoch))

    def looked(self, machine: Machine, touched: set[int]) -> None:
        """After a round of one machine, in which it may have changed its mind about some places."""
        core = machine.loom.core
        self._view(machine)
        self._vote(machine)
        promised, seen = self._promised[machine.name], self._seen_active[machine.name]
        for number in touched:
            replica = core.replicas[number]
            # What was written is what was promised: it is said only after the write.
            if replica.promised != (before := promised.get(number, 0)):
                self.that(replica.promised > before, f"7: {machine.name} broke a promise")
                promised[number] = replica.promised
            if replica.role is Role.ACTIVE and seen.get(number) != replica.place.epoch:
                seen[number] = replica.place.epoch
                self._is_active(machine, replica)
        if self._world.options.limited:
            self.ledger.looked(machine)

    # --- what machines say ----------------------------------------------------------------

    def replied(self, machine: Machine, message: Reply) -> None:
        """An answer leaves a machine for another one, which asked for a client."""
        if isinstance(message.answer, wire.Pushed):
            self._acknowledges(machine, message.answer)
        elif isinstance(message.answer, wire.Popped):
            self.ledger.lent(machine, message.answer, message.payload)

    def said(
        self,
        machine: Machine,
        request: wire.AnyRequest,
        answer: wire.AnyAnswer,
        payload: Sequence[bytes],
    ) -> None:
        """An answer leaves a machine for a client."""
        if isinstance(answer, wire.Pushed):
            self._acknowledges(machine, answer)
        elif isinstance(answer, wire.Popped):
            self.ledger.lent(machine, answer, payload)
        elif isinstance(request, wire.Ack) and isinstance(answer, wire.Settled):
            self.ledger.settled(request, answer)

    def _acknowledges(self, machine: Machine, answer: wire.Pushed) -> None:
        """2: what is acknowledged is on enough disks, that of whoever says so among them."""
        partition = answer.partition
        if machine.loom.view.places[partition].primary != machine.name:
            return  # it hands on what the primary has said
        name = (partition, answer.producer, answer.batch)
        brought = self._brought.get(name)
        if brought is None:
            return  # it was written alone, without an entry, or purged in the round that brought it
        machines = [each for each in self._world.machines.values() if not each.gone]
        names, epoch, lsn = max(
            (
                ([m.name for m in machines if self._holds(m, partition, lsn, epoch)], epoch, lsn)
                for lsn, epoch in brought
            ),
            # The same push may be an entry of a primary that was replaced, too.
            key=lambda each: (machine.name in each[0], len(each[0])),
        )
        if machine.name not in names and name in self._written:
            return  # the entries are those of a primary that was replaced
        self.that(
            machine.name in names and len(names) >= machine.loom.view.min_sync,
            f"2: batch {answer.batch} of {answer.producer} was acknowledged by {machine.name}; "
            f"its entry {lsn} of partition {partition} is durable only on {names}",
        )
        if (epoch, lsn) > self.acknowledged.get(partition, (0, 0)):
            self.acknowledged[partition] = (epoch, lsn)

    # --- inside ---------------------------------------------------------------------------

    def _view(self, machine: Machine) -> None:
        view = machine.loom.core.view
        if view.version == self._known.get(machine.name, 0):
            return
        self._known[machine.name] = view.version
        known = self.views.get(view.version)
        if known is not None:
            self.that(known == view, f"8: two views {view.version}")
            return
        self.views[view.version] = view
        before, after = self.views.get(view.version - 1), self.views.get(view.version + 1)
        if before is not None:
            self._follows(before, view)
            if after is None:  # it was chosen just now
                for number, (old, new) in enumerate(zip(before.places, view.places, strict=True)):
                    self._grew(number, set(new.sync) - set(old.sync))
        if after is not None:
            self._follows(view, after)

    def _follows(self, before: View, view: View) -> None:
        """9, 20, and that nobody lowers `min_sync` below what the members of now ask for."""
        for old, new in zip(before.places, view.places, strict=True):
            self.that(new.epoch >= old.epoch, "9: an epoch went back")
            if old.sync != new.sync:
                self.that(new.epoch > old.epoch, "9: a sync set changed within an epoch")
                self.that(new.primary in old.sync, "9: the primary comes from outside")
        gone = set(before.removed) & set(view.members)
        self.that(not gone, f"20: {gone} came back")
        least = min(before.min_sync, copies(view, SIZE))
        self.that(view.min_sync >= least, f"2: {view.min_sync} copies are asked for, not {least}")

    def _grew(self, number: int, new: set[str]) -> None:
        """2: whoever comes into a sync set has all that was acknowledged before."""
        epoch, lsn = self.acknowledged.get(number, (0, 0))
        for name in new:
            self.that(
                self._holds(self._world.machines[name], number, lsn, epoch),
                f"2: {name} joined the sync set of {number} without entry {lsn} of {epoch}",
            )

    def _vote(self, machine: Machine) -> None:
        promised = machine.loom.core.voter.vote.promised
        before = self._ballots.get(machine.name)
        if promised != before:
            kept = before is None or promised > before
            self.that(kept, f"7: the voter {machine.name} broke a promise")
            self._ballots[machine.name] = promised

    def _is_active(self, machine: Machine, replica: Replica) -> None:
        number, epoch = replica.number, replica.place.epoch
        owner = self.active.setdefault((number, epoch), machine.name)
        self.that(owner == machine.name, f"3: {owner} and {machine.name} lead {number} in {epoch}")
        removed = machine.name in self._world.newest_view.removed
        self.that(not removed or epoch < self._epoch(number), f"20: {machine.name} leads {number}")
        made, lsn = self.acknowledged.get(number, (0, 0))
        log = replica.log
        if made < epoch:  # 4: an older primary may end only later, without having said more
            has = log.base > lsn or log.has(lsn, made) or lsn == 0
            self.that(
                has, f"1: {machine.name} leads {number} in {epoch} without entry {lsn} of {made}"
            )
        # What it inherited: it may have made entries of its own since.
        inherited = [each for each in log.lineage if each[0] < epoch]
        if not inherited:
            return
        end = log.end if len(inherited) == len(log.lineage) else log.lineage[-1][1] - 1
        for member in replica.place.sync:
            self.that(
                self._holds(self._world.machines[member], number, end, inherited[-1][0]),
                f"10: {machine.name} leads {number} in {epoch}, and {member} is not level",
            )

    def _epoch(self, number: int) -> int:
        return self._world.newest_view.places[number].epoch

    def _holds(self, machine: Machine, partition: int, lsn: int, epoch: int) -> bool:
        """Whether a machine's disk has an entry, in its log or in its state."""
        disk = machine.store._durable
        place, own = layout.log(partition, lsn), layout.replica(partition)
        record = disk.get(place)
        if record is not None:
            record = machine.record(place, record)
            return int.from_bytes(record[SUM_BYTES : SUM_BYTES + 8], "big") == epoch
        data = disk.get(own)
        meta = decode_meta(machine.record(own, data)[SUM_BYTES:]) if data is not None else Meta()
        if meta.installing:
            return False
        if meta.base > lsn:
            return self.fold.epoch_of(partition, lsn) in (epoch, None)
        return (meta.base, meta.base_epoch) == (lsn, epoch) or lsn == 0

    def that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)
