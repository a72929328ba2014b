"""News of the catalogue: how a node that follows it hears of queues, and who waits for that.

Its entries are learned as they are applied. When the catalogue is *another one* (its state was sent
anew, or this node does not lead it any more) it may for a moment lack queues that were known: the
entries that make them follow. To take them for deleted would throw their messages away. So it is
read again only when it is known to be complete; until then nothing is learned from it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from weft.dht.core import Core
from weft.proto import wire
from weft.server.engine.engine import Engine

from . import whole
from .errand import Errand, Pause


class Reader(Protocol):
    """The node that reads the catalogue."""

    @property
    def core(self) -> Core: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def led(self) -> Set[int]: ...
    def run_errand(self, errand: Errand) -> None: ...
    def not_here(self, number: int) -> wire.Failure: ...


class News:
    def __init__(self, reader: Reader, cluster: whole.Cluster) -> None:
        self._reader = reader
        self._cluster = cluster
        self._waiting: list[tuple[int, object]] = []
        self._burying = False  # a look at the catalogue is under way, for strays
        self._reload = False  # the catalogue is another one
        self._reloading = False  # that is being seen to
        #: What this node made of the catalogue when it led it may never have come to be.
        self.doubtful = False

    @property
    def leads(self) -> bool:
        return self._reader.core.catalogue in self._reader.led

    @property
    def awaited(self) -> bool:
        return bool(self._waiting)

    @property
    def due(self) -> bool:
        return self._reload and not self._reloading

    @property
    def _behind(self) -> bool:
        """Whether the engine's queues are not those of the catalogue."""
        core = self._reader.core
        another = self._reload or self._reloading or core.catalogue in core.states_replaced
        return another and not self.leads

    def distrust(self) -> None:
        """This node does not lead the catalogue any more."""
        self._reload = self.doubtful = True

    def _known(self) -> int:
        replica = self._reader.core.replicas.get(self._reader.core.catalogue)
        return replica.applied if replica is not None else 0

    def _all(self) -> int:
        """What a node must have applied to know all that the catalogue has here now.

        While nobody follows it, records are written without an entry of the log, and count as the
        one after its last: with that the first follower's log begins (``Replica._begin_log``). So
        a node to which the catalogue has not come does not take its own empty log for all of it.
        """
        replica = self._reader.core.replicas[self._reader.core.catalogue]
        return replica.log.end + replica.alone

    def reload(self) -> None:
        """Sees to it that the catalogue is read again, if it is another one."""
        core = self._reader.core
        if core.states_replaced:
            self._reload = self._reload or core.catalogue in core.states_replaced
            core.states_replaced.clear()
        if not self.due:
            return
        if self.leads:  # what it adopted is all there is
            self._reload = self.doubtful = False
            return
        self._reloading = True
        self._reader.run_errand(self._load())

    def _load(self) -> Errand:
        """Reads the queues when all that the catalogue has now is in the store."""
        self._reload, loaded = False, False
        try:
            number = self._reader.core.catalogue
            said, frames = yield from whole.at_primary(self._cluster, number, wire.CatchUp())
            rounds = 0  # what was applied in one round can be read in the next
            while isinstance(said, wire.Done) and rounds < 2 and not self._reload:
                yield Pause()
                rounds = rounds + 1 if self._known() >= said.count else 0
            if rounds == 2 and not self._reload and not self.leads:
                self._reader.engine.load_queues()
                self.doubtful, loaded = False, True
            return said, frames
        finally:
            self._reloading = False
            self._reload = self._reload or not loaded

    def learn(self) -> None:
        """What was applied in this round; its primary knew it before."""
        core, engine = self._reader.core, self._reader.engine
        unknown = engine.state.strays or engine.state.ownerless
        if not (core.queues_changed or self._waiting or unknown):
            return
        changed, core.queues_changed = core.queues_changed, []
        if not self.leads and not self._behind:
            for key, record in changed:
                engine.learn_queue(key, record)
        if self._waiting and not self._behind:
            known = self._known()
            for _, to in [each for each in self._waiting if each[0] <= known]:
                engine.state.answer(to, wire.Done(known))
            self._waiting = [each for each in self._waiting if each[0] > known]
        if unknown and not self._burying and not self.leads:
            self._burying = True
            self._reader.run_errand(self._bury())

    def catch_up(self, request: wire.CatchUp, to: object) -> None:
        core, state = self._reader.core, self._reader.engine.state
        number = core.catalogue
        if request.lsn < 0:
            if not self.leads or not core.serving(number):
                state.answer(to, self._reader.not_here(number))
            else:
                # Who was replaced and does not know it must not say that this is all there is.
                state.barriers.add(number)
                state.answer(to, wire.Done(self._all()), (), {number})
        elif self.leads or (not self._behind and self._known() >= request.lsn):
            state.answer(to, wire.Done(request.lsn))
        else:
            self._waiting.append((request.lsn, to))

    def _bury(self) -> Errand:
        """Once the catalogue is known to be complete, what belongs to no queue is garbage."""
        try:
            state = self._reader.engine.state
            unknown = {*state.strays, *state.ownerless}
            said, frames = yield from whole.known_here(self._cluster)
            if isinstance(said, wire.Done) and unknown >= {*state.strays, *state.ownerless}:
                self._reader.engine.bury_strays()
            return said, frames
        finally:
            self._burying = False
