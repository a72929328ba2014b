"""The failure detector: which nodes are alive, and which view to propose without a dead node.

A silent peer is only a *suspicion*: this node proposes a view without the peer, and the register
decides. A wrong suspicion costs a change of the view and the leases of the peer, and never a
message.

| question | True if | used for |
|---|---|---|
| reachable | a message arrived within the suspicion timeout | messages: is it worth sending |
| alive | reachable, and no stop announced | membership of sync sets |
| met | alive, and has really sent a message | relying on the node as a substitute |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from . import view as views
from .planner import holders
from .role import Role
from .view import ReplicaSet, View, is_stopping

if TYPE_CHECKING:
    from .core import Core


#: A node without any message to this process yet is suspected after so many suspicion timeouts: a
#: process that has just started receives nothing until its peers have connected again.
FIRST_CONTACT: Final = 3


class FailureDetector:
    def __init__(self, core: Core) -> None:
        self._core = core
        #: Time of a node's last message; for a node without any, time of the first check. Every
        #: member has an entry from the first check on, so no member is suspected at once.
        self.last_seen: dict[str, int] = {}
        #: Times of first checks only: equal to `last_seen` as long as the node has sent nothing.
        self.awaited: dict[str, int] = {}
        #: Until when this node does not repeat its proposal of a view without the node.
        self.suspected: dict[str, int] = {}

    def reachable(self, node: str) -> bool:
        """True if a message from the node arrived within the suspicion timeout."""
        core = self._core
        return node == core.node or core.now - self.last_seen.get(node, 0) < core.pace.suspect

    def alive(self, node: str) -> bool:
        """True if the node is reachable and has not announced its stop."""
        core = self._core
        return node == core.node or (self.reachable(node) and not is_stopping(core.view, node))

    def met(self, node: str) -> bool:
        """True if the node is alive and has sent a message. A node not heard from yet gets some
        time before suspicion, but this node does not rely on such a node."""
        return self.alive(node) and self.last_seen.get(node) != self.awaited.get(node)

    def suspect(self) -> None:
        """Proposes a view without each dead or stopping member of this node's sync sets."""
        core = self._core
        for node in core.view.members:
            if node not in self.last_seen:
                self.last_seen[node] = self.awaited[node] = core.now
            if core.stopping or self.alive(node) or core.now < self.suspected.get(node, 0):
                continue
            if not self._awaits(node):
                self._propose_without(node)

    def _awaits(self, node: str) -> bool:
        """True if the node has not sent anything yet, and still has time for its first message."""
        core, since = self._core, self.last_seen[node]
        patience = FIRST_CONTACT * core.pace.suspect
        return since == self.awaited.get(node) and core.now - since < patience

    def _propose_without(self, node: str) -> None:
        core = self._core
        live = tuple(n for n in holders(core.view) if n != node and self.met(n))
        epochs = {
            number: place.epoch
            for number, place in enumerate(core.view.places)
            if self.drops(number, place, node, live)
        }
        if epochs:
            self.suspected[node] = core.now + core.pace.suspect
            change = views.suspect(core.node, node, epochs, live)
            core.propose_change(_unclean(change) if core.planted_bugs.unclean_election else change)

    def drops(self, number: int, place: ReplicaSet, missing: str, live: tuple[str, ...]) -> bool:
        """True if this node proposes a sync set without `missing`, a dead or stopping member.

        No set shrinks below `min_sync` while another way keeps as many copies: an active primary
        replaces the member (``planner.replenish``); a stopping member that still answers may lead,
        and then does the same; and without a live substitute, a smaller set gains nothing.
        """
        core = self._core
        if core.node not in place.sync or missing not in place.sync:
            return False
        if place.primary == missing and self.reachable(missing):
            return False  # a stopping primary hands over its leases, and then the lead
        if len(place.sync) > core.view.min_sync:
            return True
        if core.replicas[number].role is Role.ACTIVE or self.reachable(missing):
            return False
        return bool(views.substitutes(core.view, place, live))


def _unclean(change: views.Change) -> views.Change:
    """The planted bug: in each set with learners, the first learner becomes primary."""

    def unclean(view: View) -> View:
        changed = change(view)
        places = tuple(
            ReplicaSet(new.epoch, (new.learners[0], *new.sync), new.learners[1:])
            if new.epoch != old.epoch and new.learners
            else new
            for old, new in zip(view.places, changed.places, strict=True)
        )
        return view if changed is view else msgspec.structs.replace(changed, places=places)

    return unclean
