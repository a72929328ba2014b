"""The invariants, looked at after every event that can have touched them.

They are numbered as the protocol numbers them. A checker never asks a node what it believes where
it can look at the node's disk instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.dht.log import Record
from weft.dht.replica import Replica, Role
from weft.dht.view import View
from weft.persistence import layout

if TYPE_CHECKING:
    from .world import Machine, World

_decode_record = msgspec.msgpack.Decoder(Record).decode


class Violation(AssertionError):
    """An invariant does not hold."""


class Checker:
    def __init__(self, world: World) -> None:
        self._world = world
        self.views: dict[int, View] = {}
        self.active: dict[tuple[int, int], str] = {}  # (partition, epoch) -> node
        self.acked: dict[
            int, dict[bytes, tuple[int, int]]
        ] = {}  # partition -> data -> (lsn, epoch)
        self.entries: dict[tuple[int, int, int], bytes] = {}  # (partition, lsn, epoch) -> data
        self._promised: dict[tuple[str, int], int] = {}
        self._known: dict[str, int] = {}
        self._ballots: dict[str, object] = {}
        self._seen_active: set[tuple[str, int, int]] = set()

    def wrote(self, machine: Machine, changes: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in changes:
            if key[:1] == layout.LOG and value is not None:
                partition = int.from_bytes(key[1:3], "big")
                record = _decode_record(value[8:])
                place = (partition, layout.unpack_log(key), record.epoch)
                before = self.entries.setdefault(place, record.data)
                self._that(before == record.data, f"6: two entries at {place}")
            if key[:1] == layout.PARTITION and value is not None:
                number = layout.unpack_partition(key)
                promised = msgspec.msgpack.decode(value[8:])
                before_promise = self._promised.get((machine.name, number), 0)
                self._that(promised >= before_promise, f"7: {machine.name} broke a promise")

    def recovered(self, machine: Machine) -> None:
        """7, across crashes: what was promised durably is what a fresh process starts from."""
        for (name, number), promised in self._promised.items():
            if name == machine.name:
                replica = machine.core.replicas.get(number)
                if replica is not None:
                    self._that(
                        replica.promised >= promised, f"7: {name} forgot a promise of {number}"
                    )
        self._vote(machine)

    def looked(self, machine: Machine) -> None:
        """After a round of one machine."""
        self._view(machine)
        self._vote(machine)
        for replica in machine.core.replicas.values():
            # What was written is what was promised: it is said only after the write.
            self._promised[machine.name, replica.number] = replica.promised
            if replica.role is Role.ACTIVE:
                self._is_active(machine, replica)

    def answered(self, machine: Machine, partition: int, data: bytes, lsn: int) -> None:
        """A client was told OK."""
        replica = machine.core.replicas[partition]
        epoch = replica.log.epoch_at(lsn) if lsn <= replica.log.end else -1
        holders = [
            name for name, each in self._world.machines.items()
            if self._on_disk(each, partition, lsn) == (epoch, data)
        ]  # fmt: skip
        self._that(
            len(holders) >= self._world.min_sync,
            f"2: {data!r} was acknowledged and is durable only on {holders}",
        )
        self.acked.setdefault(partition, {}).setdefault(data, (lsn, epoch))
        for each in self._world.machines.values():
            other = each.core.replicas.get(partition) if each.up else None
            if other is not None and other.role is Role.ACTIVE and other.place.epoch > epoch:
                self._that(
                    self._on_disk(each, partition, lsn) == (epoch, data),
                    f"4: {machine.name} acknowledged {data!r}, which {each.name} does not hold",
                )

    def _view(self, machine: Machine) -> None:
        view = machine.core.view
        if view.version == self._known.get(machine.name, 0):
            return
        self._known[machine.name] = view.version
        known = self.views.setdefault(view.version, view)
        self._that(known == view, f"8: two views {view.version}")
        before = self.views.get(view.version - 1)
        if before is not None:
            for old, new in zip(before.places, view.places, strict=True):
                if old.sync != new.sync:
                    self._that(new.epoch > old.epoch, "9: a sync set changed within an epoch")
                    self._that(new.primary in old.sync, "9: the primary comes from outside")

    def _vote(self, machine: Machine) -> None:
        promised = machine.core.voter.vote.promised
        before = self._ballots.get(machine.name)
        if before is not None:
            self._that(promised >= before, f"7: the voter {machine.name} broke a promise")  # type: ignore[operator]
        self._ballots[machine.name] = promised

    def _is_active(self, machine: Machine, replica: Replica) -> None:
        number, epoch = replica.number, replica.place.epoch
        if (machine.name, number, epoch) in self._seen_active:
            return
        self._seen_active.add((machine.name, number, epoch))
        owner = self.active.setdefault((number, epoch), machine.name)
        self._that(owner == machine.name, f"3: {owner} and {machine.name} lead {number} in {epoch}")
        for data, (lsn, made) in self.acked.get(number, {}).items():
            self._that(
                replica.log.has(lsn, made),
                f"1: {machine.name} leads {number} in {epoch} without {data!r}",
            )
        end, last = replica.log.end, replica.log.last[0]
        for member in replica.place.sync:
            found = self._on_disk(self._world.machines[member], number, end) if end else (0, b"")
            self._that(
                found is not None and found[0] == last,
                f"10: {machine.name} leads {number} in {epoch}, and {member} is not level",
            )

    def _on_disk(self, machine: Machine, partition: int, lsn: int) -> tuple[int, bytes] | None:
        record = machine.store.get(layout.log(partition, lsn))
        if record is None:
            return None
        entry = _decode_record(record[8:])
        return entry.epoch, entry.data

    def _that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)
