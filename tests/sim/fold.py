"""14 and 15: a replica's state is the fold of its log, and the same on every disk.

The first node that applies an entry says what the entry is; from then on everyone must apply just
that. Of each state a sum is kept for each entry (the exclusive or of a hash of every row), so that
any disk can be compared at any moment with what it should be, however far behind it is.

Payloads are left out: they stand on the disk before the entry that brings them is applied. At the
end they are looked at by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import xxhash

from weft.dht.log import Changes, encode
from weft.dht.role import Role
from weft.persistence import layout
from weft.persistence.store import Change

from .machine import Machine
from .violation import Violation

if TYPE_CHECKING:
    from weft.dht.replica import Replica

_STATE = b"acdefhkpqtuv"


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
    def __init__(self, catalogue: int) -> None:
        self._catalogue = catalogue
        self._entries: dict[tuple[int, int], bytes] = {}
        self._state = [Rows() for _ in range(catalogue + 1)]
        self._end = [0] * (catalogue + 1)
        self._sums: list[dict[int, int]] = [{0: 0} for _ in range(catalogue + 1)]
        self._disks: dict[str, list[Rows]] = {}
        #: Partitions that a machine leads alone, where nothing is logged.
        self._alone: dict[str, set[int]] = {}
        #: A state that came in pieces has rows of later entries, too: it is whole, and the fold of
        #: its log, when those have been applied again.
        self._whole_at: dict[tuple[str, int], int] = {}
        self.compared_count = 0

    def started(self, machine: Machine) -> None:
        """A new process: the disk is read, and from now on what is applied is heard of."""
        disk = self._disks[machine.name] = [Rows() for _ in self._state]
        self._alone[machine.name] = set()
        for kind in _STATE:
            for key, value in machine.store.scan(*layout.kind_range(bytes([kind]))):
                number = layout.partition_of(key, self._catalogue)
                disk[number].change(key, machine.record(key, value))
        core = machine.loom.core
        core_applied: Callable[[int, int, Changes], None] = core.applied

        def applied(partition: int, lsn: int, changes: Changes) -> None:
            self._applied(machine, partition, lsn, changes)
            core_applied(partition, lsn, changes)

        core_replaced: Callable[[int], None] = core.replaced

        def replaced(partition: int) -> None:
            self._whole_at[machine.name, partition] = self._end[partition]
            core_replaced(partition)

        setattr(core, "applied", applied)  # noqa: B010
        setattr(core, "replaced", replaced)  # noqa: B010

    def _applied(self, machine: Machine, partition: int, lsn: int, changes: Changes) -> None:
        data = encode(changes)
        before = self._entries.setdefault((partition, lsn), data)
        if before != data:
            raise Violation(
                f"14: {machine.name} applies another entry {lsn} of {partition} than others did"
            )
        if lsn <= self._end[partition]:
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
            if key[0] in _STATE:
                state.change(key, None)
        self._end[partition] = lsn
        self._sums[partition][lsn] = state.sum

    def wrote(self, machine: Machine, changes: list[Change]) -> None:
        disk, alone = self._disks[machine.name], self._alone[machine.name]
        touched: set[int] = set()
        for key, value in changes:
            if key[0] in _STATE:
                number = layout.partition_of(key, self._catalogue)
                disk[number].change(key, value)
                touched.add(number)
                if number in alone:
                    self._state[number].change(key, value)
        replicas = machine.loom.core.replicas
        for number in self._leads_alone(machine) - alone:
            # What a power loss has left on the only disk is what there is.
            self._state[number] = disk[number].copy()
            alone.add(number)
        for number in alone:
            end = replicas[number].log.end
            self._end[number] = end
            self._sums[number][end] = self._state[number].sum
        for number in touched:
            self.compare(machine, replicas[number])

    def looked(self, machine: Machine, alone: set[int]) -> None:
        """What a machine leads alone, after a round."""
        self._alone[machine.name] = alone

    @staticmethod
    def _leads_alone(machine: Machine) -> set[int]:
        replicas = machine.loom.core.replicas.items()
        return {number for number, each in replicas if each.role is Role.ACTIVE and each.alone}

    def compare(self, machine: Machine, replica: Replica) -> None:
        number = replica.number
        if replica._installing or replica.applied < self._whole_at.get((machine.name, number), 0):
            return
        self.compared_count += 1
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
        """The payloads of a replica that has applied all it has: those of its heads, no other."""
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
