"""14 and 15: a replica's state is the fold of its log, and the same on every disk.

The first node that applies an entry defines the entry; from then on every node must apply the same
changes. The definition counts when the write is on the node's disk: a sync set of one commits and
applies an entry in the round that creates it, and if the write fails and is absent after the
restart, the entry never existed, and a later entry may reuse the lsn. For each state and each lsn a
checksum is kept (the exclusive or of a hash of every row), so that any disk can be compared with
the expected state at any moment, however far behind the disk is.

Payloads are excluded, because a payload is on the disk before its entry is applied. The payloads
are compared separately at the end of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import xxhash

from weft.dht.log import Changes, encode
from weft.dht.replica_record import decode_replica_record
from weft.persistence import layout
from weft.persistence.store import Change

from .machine import SUM_BYTES, Machine
from .violation import Violation

if TYPE_CHECKING:
    from weft.dht.replica import Replica

_STATE = b"acdefghkopqrstuvwxy"
_REPLICA = layout.REPLICA[0]


def applied_on_disk(machine: Machine, partition: int) -> int:
    key = layout.replica(partition)
    record = machine.store.get(key)
    return (
        0
        if record is None
        else decode_replica_record(machine.record(key, record)[SUM_BYTES:]).applied
    )


def leads_alone(machine: Machine) -> set[int]:
    """The partitions of which the machine holds the only copy, and keeps no log."""
    return {n for n, replica in machine.node_core.core.replicas.items() if writes_alone(replica)}


def writes_alone(replica: Replica) -> bool:
    """True if no other node can become primary except through this replica, active or not."""
    return replica.alone and replica.place.epoch > 0 and replica.applied == replica.log.end


class Rows:
    """A state as hashes of its rows, with their sum."""

    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}
        self.sum = 0

    def change(self, key: bytes, value: bytes | None) -> None:
        self.sum ^= self._hashes.pop(key, 0)
        if value is not None:
            made = xxhash.xxh3_64_intdigest(key + value)
            self._hashes[key] = made
            self.sum ^= made

    def copy(self) -> Rows:
        same = Rows()
        same._hashes, same.sum = dict(self._hashes), self.sum
        return same


class Fold:
    def __init__(self, catalogue: int, observe: Callable[[int, Changes], None]) -> None:
        """`observe` gets the changes of each entry, once, in order."""
        self._catalogue = catalogue
        self.observe = observe
        #: (partition, lsn) -> the epoch of the entry and its encoded changes.
        self._entries: dict[tuple[int, int], tuple[int, bytes]] = {}
        #: machine -> (partition, lsn, epoch, changes): applied, and not known to be on the disk
        #: yet.
        self._unwritten: dict[str, list[tuple[int, int, int, Changes]]] = {}
        self._state = [Rows() for _ in range(catalogue + 1)]
        self._end = [0] * (catalogue + 1)
        self._sums: list[dict[int, int]] = [{0: 0} for _ in range(catalogue + 1)]
        self._disks: dict[str, list[Rows]] = {}
        #: Partitions that a machine leads alone, where nothing is logged.
        self._alone: dict[str, set[int]] = {}
        self._was_alone: dict[str, set[int]] = {}
        #: machine -> partition -> the applied lsn, as written.
        self._applied_to: dict[str, dict[int, int]] = {}
        #: (machine, partition) of states that were replaced by a snapshot in this round.
        self._replaced: set[tuple[str, int]] = set()
        #: A snapshot that arrived in pieces also has rows of later entries: the state equals the
        #: fold of the log again once those entries have been applied.
        self._whole_at: dict[tuple[str, int], int] = {}

    def started(self, machine: Machine) -> None:
        """A new process: read the disk, and observe the applied entries from now on."""
        disk = self._disks[machine.name] = [Rows() for _ in self._state]
        self._was_alone[machine.name] = self._alone.get(machine.name, set())
        self._alone[machine.name] = set()
        self._applied_to[machine.name] = {
            number: applied_on_disk(machine, number) for number in range(len(self._state))
        }
        for kind in _STATE:
            for key, value in machine.store.scan(*layout.kind_range(bytes([kind]))):
                number = layout.partition_of(key, self._catalogue)
                disk[number].change(key, machine.record(key, value))
        # The last write of the previous process may or may not be on the disk.
        for partition, lsn, epoch, changes in self._unwritten.pop(machine.name, []):
            if lsn <= applied_on_disk(machine, partition):
                self._applied(machine, partition, lsn, epoch, changes)
        self._unwritten[machine.name] = []
        core = machine.node_core.core
        core_applied: Callable[[int, int, Changes], None] = core.applied

        def applied(partition: int, lsn: int, changes: Changes) -> None:
            epoch = core.replicas[partition].log.epoch_at(lsn)
            self._unwritten[machine.name].append((partition, lsn, epoch, changes))
            core_applied(partition, lsn, changes)

        core_replaced: Callable[[int], None] = core.replaced

        def replaced(partition: int) -> None:
            self._whole_at[machine.name, partition] = self._end[partition]
            self._replaced.add((machine.name, partition))
            core_replaced(partition)

        setattr(core, "applied", applied)  # noqa: B010
        setattr(core, "replaced", replaced)  # noqa: B010

    def epoch_of(self, partition: int, lsn: int) -> int | None:
        """The epoch of an applied entry; an lsn is one entry for ever."""
        entry = self._entries.get((partition, lsn))
        return None if entry is None else entry[0]

    def _applied(
        self, machine: Machine, partition: int, lsn: int, epoch: int, changes: Changes
    ) -> None:
        entry = (epoch, encode(changes))
        before = self._entries.setdefault((partition, lsn), entry)
        if before != entry:
            raise Violation(
                f"14: {machine.name} applies another entry {lsn} of {partition} than others did"
            )
        if lsn <= self._end[partition] or partition in self._alone[machine.name]:
            return
        if lsn != self._end[partition] + 1:
            raise Violation(
                f"14: {machine.name} applies entry {lsn} of {partition}, and nobody applied the "
                f"one after {self._end[partition]}"
            )
        state = self._state[partition]
        for key, value in changes.puts:
            state.change(key, value)
        for key in changes.deletes:
            state.change(key, None)  # a payload's key is not one of the rows
        self._end[partition] = lsn
        self._sums[partition][lsn] = state.sum
        self.observe(partition, changes)

    def wrote(self, machine: Machine, changes: list[Change]) -> set[int]:
        """Record a write; return the partitions that may have been written without an entry."""
        disk, alone = self._disks[machine.name], self._alone[machine.name]
        unwritten, self._unwritten[machine.name] = self._unwritten[machine.name], []
        touched: set[int] = set()
        saved: list[int] = []
        for key, value in changes:
            if key[0] in _STATE:
                number = layout.partition_of(key, self._catalogue)
                disk[number].change(key, value)
                touched.add(number)
            elif key[0] == _REPLICA:
                saved.append(int.from_bytes(key[1:3], "big"))
        self._no_gap(machine, saved, unwritten)
        for partition, lsn, epoch, entry in unwritten:
            self._applied(machine, partition, lsn, epoch, entry)
        replicas = machine.node_core.core.replicas
        # The set of sole replicas changes with a view or with the applied lsn: both are written.
        now_alone = self._alone[machine.name] = leads_alone(machine)
        for number in alone | now_alone:
            self._take_as_it_is(machine, replicas[number])
        for number in touched:
            self.compare(machine, replicas[number])
        return alone | now_alone

    def _no_gap(
        self, machine: Machine, saved: list[int], unwritten: list[tuple[int, int, int, Changes]]
    ) -> None:
        """No entry is skipped between the log and the state.

        A replica that claims an applied lsn has applied each entry up to it. A write without an
        entry, by a sole replica, takes one lsn.
        """
        applied, replicas = self._applied_to[machine.name], machine.node_core.core.replicas
        new = Counter(partition for partition, _, _, _ in unwritten)
        for number in saved:
            replica, before = replicas[number], applied.get(number, 0)
            if replica.applied == before:
                continue
            applied[number] = replica.applied
            gap = replica.applied - before - new[number]
            began = number in self._alone[machine.name] and gap == 1
            replaced = (machine.name, number) in self._replaced
            if gap and replica.applied and not (began or replaced):
                raise Violation(
                    f"14: {machine.name} passes over {gap} entries of {number} after {before}"
                )
        if self._replaced:
            self._replaced = {each for each in self._replaced if each[0] != machine.name}

    def _take_as_it_is(self, machine: Machine, replica: Replica) -> None:
        """Take the state of the only disk as the right one."""
        number = replica.number
        self._state[number] = self._disks[machine.name][number].copy()
        self._end[number] = replica.applied
        self._sums[number][replica.applied] = self._state[number].sum

    def recovered(self, machine: Machine) -> set[int]:
        """Take the disk's state of sole replicas as right.

        The last write of a sole replica may or may not be on the disk.
        """
        self._alone[machine.name] = leads_alone(machine)
        unsure = self._alone[machine.name] | self._was_alone[machine.name]
        for number in unsure:
            self._take_as_it_is(machine, machine.node_core.core.replicas[number])
        return unsure

    def compare(self, machine: Machine, replica: Replica) -> None:
        number = replica.number
        if replica.installing or replica.applied < self._whole_at.get((machine.name, number), 0):
            return
        if replica.empty and not self._disks[machine.name][number].sum:
            return
        wanted = self._sums[number].get(replica.applied)
        if wanted is None:
            raise Violation(f"14: {machine.name} has applied {replica.applied} of {number} alone")
        if wanted != self._disks[machine.name][number].sum:
            raise Violation(
                f"14: the state of {number} on {machine.name} is not the fold of its log up to "
                f"{replica.applied}"
            )

    def payloads(self, machine: Machine, replica: Replica) -> dict[bytes, bytes]:
        """The payloads of a replica that has applied its whole log: exactly those of its heads."""
        number = replica.number
        bodies = {
            key: machine.record(key, value)
            for key, value in machine.store.scan(*layout.partition_range(layout.BODY, number))
        }
        heads = machine.store.scan(*layout.partition_range(layout.HEAD, number))
        wanted = {layout.body(*layout.unpack_batch(key)) for key, _ in heads}
        if bodies.keys() != wanted:
            lost, left = len(wanted - bodies.keys()), len(bodies.keys() - wanted)
            raise Violation(
                f"14: {machine.name} lacks {lost} payloads of {number}, {left} are left"
            )
        return bodies
