"""Catalogue sync: how a follower of the catalogue learns of queues, and requests that wait for it.

A follower learns catalogue entries as the entries are applied. When the catalogue is *replaced* (a
snapshot of the state arrived, or this node stopped leading the catalogue), known queues may be
missing for a moment, until the entries that create them are applied. To treat such queues as
deleted would discard their messages. So the node reloads the catalogue only when the catalogue is
known to be complete, and learns nothing from the catalogue until then.

A delete is answered when every member of a sync set has applied it (``catalogue_operations``), so a
node that was a member all the time has all deletes. A node that was no member for a while, because
the node was down, may have missed deletes answered meanwhile. When the node becomes a member again,
its queues are *doubtful*: the node serves requests for them only after a sync with the catalogue's
primary. Otherwise the node would acknowledge pushes to a deleted queue, and the messages would be
lost.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.dht.core import Core
from weft.dht.view import NOTHING, View
from weft.proto import wire
from weft.server.engine.engine import Engine

from .catalogue_operations import known_here
from .cluster_host import ClusterHost
from .operation import Operation, Pause
from .partition_ownership import PartitionOwnership
from .primary_operations import at_primary


def _stayed(node: str, before: View, after: View) -> bool:
    """True if the node was a member of one and the same sync set in all views from `before` to
    `after`: an epoch raised by one is a single change, and the node is in the result."""
    return any(
        node in old.sync and node in new.sync and new.epoch <= old.epoch + 1
        for old, new in zip(before.places, after.places, strict=False)
    )


class CatalogueSync:
    def __init__(
        self,
        core: Core,
        engine: Engine,
        ownership: PartitionOwnership,
        cluster: ClusterHost,
        run_operation: Callable[[Operation], None],
        refusal: Callable[[int], wire.Failure],
    ) -> None:
        self._core = core
        self._engine = engine
        self._ownership = ownership
        self._cluster = cluster
        self._run_operation = run_operation
        #: The answer for a partition that another node leads.
        self._refusal = refusal
        self._waiting: list[tuple[int, object]] = []
        self._deleting_orphans = False  # a catalogue sync for orphans is under way
        self._reload = False  # the catalogue was replaced
        self._reloading = False  # a reload is under way
        #: True if the known queues may differ from the catalogue: as primary of the catalogue, this
        #: node made changes that were never committed, or this node was no member during other
        #: changes.
        self.doubtful = False
        self._view = NOTHING

    @property
    def leads(self) -> bool:
        return self._core.catalogue in self._ownership.led

    @property
    def awaited(self) -> bool:
        return bool(self._waiting)

    @property
    def due(self) -> bool:
        return self._reload and not self._reloading

    @property
    def _behind(self) -> bool:
        """True if the catalogue was replaced and the engine's queues are not reloaded yet."""
        core = self._core
        another = self._reload or self._reloading or core.catalogue in core.states_replaced
        return another and not self.leads

    def distrust(self) -> None:
        """Makes the queues doubtful: this node lost the catalogue, or was no member."""
        self._reload = self.doubtful = True

    def view_changed(self) -> None:
        """Called in each round that has learned a view, before the round adopts partitions."""
        before, self._view = self._view, self._core.view
        node = self._core.node
        member = any(node in place.sync for place in self._view.places)
        # The only member of a cluster has missed nothing.
        if member and len(self._view.members) > 1 and not _stayed(node, before, self._view):
            self.distrust()

    def _known(self) -> int:
        replica = self._core.replicas.get(self._core.catalogue)
        return replica.applied if replica is not None else 0

    def _all(self) -> int:
        """The lsn that a node must have applied to know the whole catalogue of now.

        While the catalogue has no followers, the primary writes records without log entries. Such
        records count as the entry after the last one, where the first follower's log begins
        (``Replica._begin_log``). So a node without a copy of the catalogue does not take its own
        empty log for the whole catalogue.
        """
        replica = self._core.replicas[self._core.catalogue]
        return replica.log.end + replica.alone

    def reload(self) -> None:
        """Starts a reload of the queues, if the catalogue was replaced."""
        core = self._core
        if core.states_replaced:
            self._reload = self._reload or core.catalogue in core.states_replaced
            core.states_replaced.clear()
        if not self.due:
            return
        if self.leads:  # the adoption has read the whole catalogue
            self._reload = self.doubtful = False
            return
        self._reloading = True
        self._run_operation(self._load())

    def _load(self) -> Operation:
        """Reloads the queues once everything that the catalogue has now is in the store."""
        self._reload, loaded = False, False
        try:
            number = self._core.catalogue
            said, frames = yield from at_primary(self._cluster, number, wire.CatchUp())
            rounds = 0  # entries applied in one round can be read in the next
            # A node that becomes the primary meanwhile reads the whole catalogue at adoption.
            while isinstance(said, wire.Done) and rounds < 2 and not (self._reload or self.leads):
                yield Pause()
                rounds = rounds + 1 if self._known() >= said.count else 0
            if rounds == 2 and not self._reload and not self.leads:
                self._engine.load_queues()
                self.doubtful, loaded = False, True
            return said, frames
        finally:
            self._reloading = False
            self._reload = self._reload or not loaded

    def learn(self) -> None:
        """Learns the queues applied in this round; the primary knows them already."""
        core, engine = self._core, self._engine
        unknown = bool(engine.unknown_queues)
        if not (core.queues_changed or self._waiting or unknown):
            return
        changed, core.queues_changed = core.queues_changed, []
        if not self.leads and not self._behind:
            for key, record in changed:
                engine.learn_queue(key, record)
        if self._waiting and not self._behind:
            known = self._known()
            for _, to in [each for each in self._waiting if each[0] <= known]:
                engine.answer(to, wire.Done(known))
            self._waiting = [each for each in self._waiting if each[0] > known]
        if unknown and not self._deleting_orphans and not self.leads:
            self._deleting_orphans = True
            self._run_operation(self._delete_orphans())

    def catch_up(self, request: wire.CatchUp, to: object) -> None:
        core, engine = self._core, self._engine
        number = core.catalogue
        if request.lsn < 0:
            if not self.leads or not core.serving(number):
                engine.answer(to, self._refusal(number))
            else:
                # Without a barrier, a primary replaced unknowingly would report its catalogue as
                # complete.
                engine.add_barrier(number)
                engine.answer(to, wire.Done(self._all()), (), {number})
        elif self.leads or (not self._behind and self._known() >= request.lsn):
            engine.answer(to, wire.Done(request.lsn))
        else:
            self._waiting.append((request.lsn, to))

    def _delete_orphans(self) -> Operation:
        """Deletes records of no known queue, once the catalogue is known to be complete."""
        try:
            engine = self._engine
            unknown = engine.unknown_queues
            said, frames = yield from known_here(self._cluster)
            if isinstance(said, wire.Done) and unknown >= engine.unknown_queues:
                engine.delete_orphans()
            return said, frames
        finally:
            self._deleting_orphans = False
