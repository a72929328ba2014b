"""The invariants of the protocol, checked after every event that can affect them.

The numbers are those of the protocol. A checker reads a node's disk rather than the node's memory
wherever possible. ``ledger`` checks the clients' observations, ``log_fold`` the states that the
logs add up to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.dht.core import SIZE
from weft.dht.log import decode
from weft.dht.messages import AnyMessage, PeerReply, PeerRequest
from weft.dht.planner import copies
from weft.dht.replica import Replica
from weft.dht.replica_record import ReplicaRecord, decode_replica_record
from weft.dht.role import Role
from weft.dht.view import View
from weft.persistence import channel_layout, layout
from weft.persistence.store import Change
from weft.proto import wire
from weft.server.engine import head

from .ledger import Ledger, pushed_of
from .log_fold import Fold
from .machine import SUM_BYTES, Machine
from .sequences import SequenceOrder
from .violation import Violation

if TYPE_CHECKING:
    from .world import World


def _name(partition: int, record: bytes) -> tuple[int, int, int]:
    """The identity of a batch, from its head: (partition, producer, batch number)."""
    found = head.decode(record[SUM_BYTES:])
    return partition, found.producer, found.batch


def _is_undecided(record: bytes) -> bool:
    """True for a proposal: the entry with the decision is what an answer rests on."""
    found = head.decode(record[SUM_BYTES:]).proposal
    return found is not None and not found.decided


class Checker:
    def __init__(self, world: World) -> None:
        self._world = world
        self.sequences = SequenceOrder(world.options.partitions)
        self.fold = Fold(world.options.partitions, self.sequences.applied)
        self.ledger = Ledger(world)
        self.views: dict[int, View] = {}
        self.active: dict[tuple[int, int], str] = {}  # (partition, epoch) -> node
        self.entries: dict[tuple[int, int, int], bytes] = {}  # (partition, lsn, epoch) -> data
        #: partition -> (epoch, lsn): every entry up to there was acknowledged.
        self.acknowledged: dict[int, tuple[int, int]] = {}
        #: (partition, producer, batch) -> the log entries that contain the batch.
        self._brought: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        #: The key of a delivery -> the log entries that decide it.
        self._decided: dict[bytes, list[tuple[int, int]]] = {}
        #: Batches that a node wrote without a log entry, while the node was the only replica.
        self._written: set[tuple[int, int, int]] = set()
        #: machine -> partition -> the promised epoch; and the epoch in which the replica was last
        #: active.
        self._promised: dict[str, dict[int, int]] = {}
        self._seen_active: dict[str, dict[int, int]] = {}
        self._known: dict[str, int] = {}
        self._ballots: dict[str, tuple[int, int, str]] = {}

    # --- machines -------------------------------------------------------------------------

    def started(self, machine: Machine) -> None:
        """A process starts on the current content of its disk."""
        self._promised.setdefault(machine.name, {})
        self._seen_active.setdefault(machine.name, {})
        self.fold.started(machine)
        self.ledger.line.started(machine)
        self.ledger.leases.started(machine)
        for key, value in machine.store.scan(*layout.kind_range(layout.LOG)):
            self._entry(key, machine.record(key, value))

    def recovered(self, machine: Machine) -> None:
        """7, across crashes: a fresh process starts from the durable promises."""
        for number, promised in self._promised[machine.name].items():
            replica = machine.node_core.core.replicas.get(number)
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
                if place[:1] == layout.HEAD and not _is_undecided(record):
                    name = _name(partition, record)
                    self._brought.setdefault(name, []).append((lsn, epoch))
                elif place[:1] == layout.OUTBOX:
                    self._decided.setdefault(place, []).append((lsn, epoch))

    def looked(self, machine: Machine, touched: set[int]) -> None:
        """Check a machine after a round; `touched`: partitions whose replica may have changed."""
        core = machine.node_core.core
        self._view(machine)
        self._vote(machine)
        promised, seen = self._promised[machine.name], self._seen_active[machine.name]
        for number in touched:
            replica = core.replicas[number]
            # A promise is sent only after its write, so the promise in memory is the written
            # promise.
            if replica.promised != (before := promised.get(number, 0)):
                self.that(replica.promised > before, f"7: {machine.name} broke a promise")
                promised[number] = replica.promised
            if replica.role is Role.ACTIVE and seen.get(number) != replica.place.epoch:
                seen[number] = replica.place.epoch
                self._is_active(machine, replica)
        if self._world.options.limited:
            self.ledger.looked(machine)

    def delivers(self, machine: Machine, request: wire.Deliver) -> None:
        """C4: the entry that decides a delivery is on enough disks when the delivery leaves."""
        machines = self._world.machines.values()
        for destination, page in zip(request.partitions, request.entries, strict=True):
            for number, _ in page:
                decided = self._decided.get(
                    channel_layout.delivery(request.source, destination, number)
                )
                if decided is None:
                    continue  # written without an entry by a sole replica
                copies = max(
                    sum(self._holds(each, request.source, lsn, epoch) for each in machines)
                    for lsn, epoch in decided
                )
                self.that(
                    copies >= machine.node_core.view.min_sync,
                    f"C4: {machine.name} sends delivery {number} of {request.source}, which is on "
                    f"{copies} disks",
                )

    # --- answers of machines --------------------------------------------------------------

    def sent(self, machine: Machine, message: AnyMessage) -> None:
        """A message leaves a machine for another node."""
        if isinstance(message, PeerReply):
            self.replied(machine, message)
        elif isinstance(message, PeerRequest) and isinstance(message.request, wire.Deliver):
            self.delivers(machine, message.request)

    def replied(self, machine: Machine, message: PeerReply) -> None:
        """An answer leaves a machine for another node, which forwarded a client's request."""
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
        elif isinstance(answer, wire.Multicasted):
            for pushed in pushed_of(answer):
                self._acknowledges(machine, pushed)
        elif isinstance(answer, wire.Popped):
            self.ledger.lent(machine, answer, payload)
        elif isinstance(request, wire.Ack | wire.Nack | wire.Move | wire.Extend) and isinstance(
            answer, wire.Settled
        ):
            if isinstance(request, wire.Ack):
                self.ledger.settled(request, answer)
            self.ledger.leases.settled(machine, request.receipts, answer.lost)
        elif isinstance(request, wire.Commit) and isinstance(answer, wire.Committed):
            for each in request.acks:
                self.ledger.settled(each, wire.Settled(0, 0, []))
        elif isinstance(request, wire.Cancel) and answer == wire.Done(1):
            self.ledger.confirmed_cancel(request)

    def _acknowledges(self, machine: Machine, answer: wire.Pushed) -> None:
        """2: an acknowledged batch is on enough disks, including the acknowledging node's."""
        partition = answer.partition
        if machine.node_core.view.places[partition].primary != machine.name:
            return  # a forwarded answer of the primary
        name = (partition, answer.producer, answer.batch)
        brought = self._brought.get(name)
        if brought is None:
            return  # written without an entry by a sole replica, or purged in the round of the push
        # A repeated push is answered for the first one: a copy on a disk lost since then counts.
        machines = [m for m in self._world.machines.values() if answer.duplicate or not m.gone]
        names, epoch, lsn = max(
            (
                ([m.name for m in machines if self._holds(m, partition, lsn, epoch)], epoch, lsn)
                for lsn, epoch in brought
            ),
            # A replaced primary may have made an entry of the same push, too.
            key=lambda each: (machine.name in each[0], len(each[0])),
        )
        if machine.name not in names and name in self._written:
            return  # the entries belong to a replaced primary
        self.that(
            machine.name in names and len(names) >= machine.node_core.view.min_sync,
            f"2: batch {answer.batch} of {answer.producer} was acknowledged by {machine.name}; "
            f"its entry {lsn} of partition {partition} is durable only on {names}",
        )
        if (epoch, lsn) > self.acknowledged.get(partition, (0, 0)):
            self.acknowledged[partition] = (epoch, lsn)

    # --- inside ---------------------------------------------------------------------------

    def _view(self, machine: Machine) -> None:
        view = machine.node_core.core.view
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
            self.ledger.leases.viewed(before, view)
            self._follows(before, view)
            if after is None:  # the view was chosen just now
                for number, (old, new) in enumerate(zip(before.places, view.places, strict=True)):
                    self._grew(number, set(new.sync) - set(old.sync))
        else:  # the previous view is unknown, and so is the reason for a new primary
            self.ledger.leases.disturb()
        if after is not None:
            self._follows(view, after)

    def _follows(self, before: View, view: View) -> None:
        """9, 20, and `min_sync` never falls below the number that the current members require."""
        for old, new in zip(before.places, view.places, strict=True):
            self.that(new.epoch >= old.epoch, "9: an epoch went back")
            if old.sync != new.sync:
                self.that(new.epoch > old.epoch, "9: a sync set changed within an epoch")
                # An operator may found a partition anew if its whole sync set is lost.
                lost = set(old.sync) <= set(view.lost) - set(before.lost)
                self.that(new.primary in old.sync or lost, "9: the primary comes from outside")
        gone = set(before.removed) & set(view.members)
        self.that(not gone, f"20: {gone} came back")
        self.that(set(before.lost) <= set(view.lost), "20: a lost node was forgotten")
        least = min(before.min_sync, copies(view, SIZE))
        self.that(view.min_sync >= least, f"2: {view.min_sync} copies are asked for, not {least}")

    def _grew(self, number: int, new: set[str]) -> None:
        """2: a node that joins a sync set has every entry acknowledged before."""
        epoch, lsn = self.acknowledged.get(number, (0, 0))
        for name in new:
            self.that(
                self._holds(self._world.machines[name], number, lsn, epoch),
                f"2: {name} joined the sync set of {number} without entry {lsn} of {epoch}",
            )

    def _vote(self, machine: Machine) -> None:
        promised = machine.node_core.core.voter.vote.promised
        before = self._ballots.get(machine.name)
        if promised != before:
            kept = before is None or promised > before
            self.that(kept, f"7: the voter {machine.name} broke a promise")
            self._ballots[machine.name] = promised

    def _is_active(self, machine: Machine, replica: Replica) -> None:
        number, epoch = replica.number, replica.place.epoch
        owner = self.active.setdefault((number, epoch), machine.name)
        self.that(owner == machine.name, f"3: {owner} and {machine.name} lead {number} in {epoch}")
        newest = self._world.newest_view
        removed = machine.name in (*newest.removed, *newest.lost)
        self.that(not removed or epoch < self._epoch(number), f"20: {machine.name} leads {number}")
        made, lsn = self.acknowledged.get(number, (0, 0))
        log = replica.log
        if made < epoch:  # 4: an older epoch may become active late, without acknowledging more
            has = log.base > lsn or log.has(lsn, made) or lsn == 0
            self.that(
                has, f"1: {machine.name} leads {number} in {epoch} without entry {lsn} of {made}"
            )
        # Inherited entries only: the primary may have made entries of its own since.
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
        """True if the machine's disk has the entry, in the log or applied to the state."""
        disk = machine.store._durable
        place, own = layout.log(partition, lsn), layout.replica(partition)
        record = disk.get(place)
        if record is not None:
            record = machine.record(place, record)
            return int.from_bytes(record[SUM_BYTES : SUM_BYTES + 8], "big") == epoch
        data = disk.get(own)
        meta = (
            decode_replica_record(machine.record(own, data)[SUM_BYTES:])
            if data is not None
            else ReplicaRecord()
        )
        if meta.installing:
            return False
        if meta.base > lsn:
            return self.fold.epoch_of(partition, lsn) in (epoch, None)
        return (meta.base, meta.base_epoch) == (lsn, epoch) or lsn == 0

    def that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)
