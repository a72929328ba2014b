"""Partition ownership: which partitions this node leads, and the path of their changes to the log.

The engine holds the state of a partition in memory exactly while this node *owns* the partition.

| state   | meaning                                                 | next                        |
|---------|---------------------------------------------------------|-----------------------------|
| none    | another node leads the partition                        | waiting, when `serving`     |
| waiting | this node leads; older entries are not applied yet      | owned, when all are applied |
| owned   | the engine has the partition, under one ownership       | lost, when the generation   |
|         | generation of the replica                               | of the replica has changed  |
| lost    | another node may have changed the partition: the engine | none                        |
|         | must drop its memory before anything else happens       |                             |

A partition stays owned between two epochs that this node leads in a row. Changes of that time are
*deferred*: they have no log yet, and become the first entry of the next epoch.

Invariant: the engine never reads or changes a partition that is not owned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Final

from weft.dht.core import Core
from weft.dht.log import Changes
from weft.persistence.layout import OF_CATALOGUE
from weft.persistence.store import Change
from weft.server.engine.engine import Engine

#: The lsn of deferred changes, which are in no log yet: greater than any lsn in a log.
_LATER: Final = 1 << 62


class PartitionOwnership:
    def __init__(self, core: Core, engine: Engine) -> None:
        self._core = core
        self._engine = engine
        #: Owned partitions, each with its ownership generation at adoption.
        self._owned: dict[int, int] = {}
        self._waiting: set[int] = set()
        self._alone = True
        self._view_version = 0
        #: True if this node is the only member of the cluster, owns all partitions and has applied
        #: all log entries: the node's own write commits a change.
        self.single = False
        #: Changes between two epochs led by this node, by partition.
        self._deferred: dict[int, dict[bytes, bytes | None]] = {}

    @property
    def led(self) -> Set[int]:
        """The owned partitions."""
        return self._owned.keys()

    @property
    def holds(self) -> int:
        """The number of partitions with a copy on this node, led partitions included."""
        return sum(place.holds(self._core.node) for place in self._core.view.places)

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def can_lead(self) -> bool:
        """True if a waiting partition may be adopted soon: the next round must run now."""
        return any(self._core.serving(number) for number in self._waiting)

    @property
    def has_deferred(self) -> bool:
        return bool(self._deferred)

    # --- changes of ownership, once per round ---

    def update(self) -> set[int]:
        """Takes the changes of this round's views; returns the lost partitions, to be abandoned."""
        core = self._core
        if self._view_version != core.view.version:
            self._view_version = core.view.version
            self._divide_limits()
        alone = len(core.view.members) < 2
        if self._alone and not alone:
            self._engine.drain()  # a pop parked here would miss messages on other nodes
        self._alone = alone
        # The log, if any, must be applied first: its entries would overwrite direct writes.
        ready = alone and core.all_settled and not self._deferred
        self.single = ready and len(self._owned) > core.catalogue
        self._engine.commits.set_alone(self.single)
        if not core.changed_partitions:
            return set()
        changed, core.changed_partitions = core.changed_partitions, set()
        self._waiting |= {p for p in changed if core.replicas[p].serving}
        return {p for p in changed if p in self._owned and self._is_lost(p)}

    def _divide_limits(self) -> None:
        """Tells the engine how many partitions each member leads, this node's place included."""
        view, node = self._core.view, self._core.node
        primaries = Counter(place.primary for place in view.places[: self._core.catalogue])
        members = sorted(view.members)
        if node in members:
            leads = [primaries[member] for member in members]
            self._engine.shares.divide(leads, members.index(node))

    def _is_lost(self, number: int) -> bool:
        return self._core.replicas[number].ownership_generation != self._owned[number]

    def abandon(self, lost: set[int]) -> None:
        for number in lost:
            del self._owned[number]
            self._deferred.pop(number, None)
            self._core.pending.drop(number)
        self._engine.abandon(lost)

    def adopt(self) -> bool:
        """Adopts the waiting partitions whose whole state is in the store; True if any."""
        core = self._core
        self._waiting -= self._owned.keys()
        if not self._waiting:
            return False
        new = {p for p in self._waiting if core.serving(p) and core.settled(p)}
        self._waiting = {p for p in self._waiting - new if core.serving(p)}
        if not new:
            return False
        if core.catalogue in new:
            self._engine.load_queues()
        self._engine.adopt(new, len(core.view.lost))
        self._owned.update({number: core.replicas[number].ownership_generation for number in new})
        return True

    # --- changes of a round ---

    def propose(self, changes: list[Change]) -> None:
        """Proposes the engine's changes of the round: one log entry per partition."""
        core, owned, of_catalogue = self._core, self._owned, OF_CATALOGUE
        by_partition: dict[int, list[Change]] = {p: [] for p in self._engine.take_barriers()}
        for key, value in changes:
            number = core.catalogue if key[:1] in of_catalogue else key[1] << 8 | key[2]
            found = by_partition.get(number)
            if found is None:
                by_partition[number] = [(key, value)]
            else:
                found.append((key, value))
        for number in [p for p in self._deferred if core.serving(p)]:
            deferred = list(self._deferred.pop(number).items())
            by_partition[number] = deferred + by_partition.get(number, [])
        for number, own in by_partition.items():
            if number not in owned:
                continue  # changed while this node led; another node leads now
            if core.serving(number):
                core.propose(number, own)
            else:
                self._defer(number, own)

    def _defer(self, number: int, changes: list[Change]) -> None:
        self._deferred.setdefault(number, {}).update(changes)
        puts = [(key, value) for key, value in changes if value is not None]
        deletes = [key for key, value in changes if value is None]
        self._core.pending.add(number, _LATER, Changes(puts, deletes, []))
