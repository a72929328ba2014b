"""A replica of one partition: follower or primary, fenced by epochs.

Invariant: no acknowledged entry is ever lost. Each of these rules is needed:

- A replica answers FENCED to a SEAL, FETCH, APPEND or INSTALL with an epoch below its promise.
  Otherwise the replica promises the epoch, in the same synced write as the message's changes.
  Learning a view raises the promise too. A promise never decreases, not even across crashes.
- A fresh process leads nothing. A new primary first SEALs the whole sync set, which fences every
  older primary (older primaries need acknowledgements from the same members). The new primary
  adopts the log with the greatest (last epoch, end), levels all members, and only then is ACTIVE.
  No replica truncates to a "known commit point". A primary that goes on from epoch to epoch keeps
  its own log, which has every committed entry; a joining learner may bring an uncommitted one.
- An entry is committed when durable on *every* member of the sync set and every *pending* node,
  if the set has at least ``min_sync`` members. Only then is the entry applied to the state, by the
  primary and, once told of the commit, by the followers.
- To grow the set, the primary first makes a learner pending: commits need the learner from then on.
  Once the learner is level, the primary proposes the new view. The learner stays pending until a
  newer epoch is learned or the proposal is decided: until then, the outcome is unknown.
- A primary drops applied entries that no follower lacks. A learner that lacks dropped entries
  receives the whole state (``install``).

Timers only decide when to resend.

| module | part |
|---|---|
| ``role`` | the states, and the table of transitions that the parts execute |
| ``replica_state`` | the fields with their invariants: promise, log, commit index, role |
| ``follower`` | obeys a primary: SEAL, FETCH, APPEND, INSTALL |
| ``log_sync`` | a primary's entries and snapshots on their way to the followers |
| ``primary`` | takes over, appends, commits, grows the sync set |

This module joins the parts, and takes over the replica set of a newer view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.persistence.overlay import Overlay

from .follower import Follower
from .log_sync import LogSync
from .messages import (
    AppendEntries,
    EntriesAppended,
    FencedReply,
    Fetch,
    Fetched,
    Install,
    Installed,
    Need,
    PartitionMessage,
    Seal,
    SealReply,
)
from .primary import Primary
from .replica_host import ReplicaHost
from .replica_state import ReplicaState
from .role import Role
from .view import ReplicaSet

#: A primary's requests, and the answers to them. Every message of a partition is in one table.
_REQUESTS: Final[dict[type, Callable[..., None]]] = {
    Seal: Follower.seal,
    Fetch: Follower.fetch,
    AppendEntries: Follower.append,
    Install: Follower.install,
}
_ANSWERS: Final[dict[type, Callable[..., None]]] = {
    SealReply: Primary.sealed,
    Fetched: Primary.fetched,
    EntriesAppended: Primary.appended,
    Need: Primary.need,
    Installed: Primary.installed,
    FencedReply: Primary.fenced,
}


class Replica(ReplicaState):
    def __init__(
        self, number: int, node: str, overlay: Overlay, catalogue: int, host: ReplicaHost
    ) -> None:
        super().__init__(number, node, overlay, catalogue, host)
        self.follower = Follower(self)
        self.log_sync = LogSync(self)
        self.primary = Primary(self, self.log_sync)

    def learn(self, place: ReplicaSet, min_sync: int, version: int = 0) -> None:
        """Takes over the partition's replica set from a newer view, of version `version`."""
        self.min_sync = min_sync
        if place.epoch == self.place.epoch:
            self._learn_learners(place, version)
        if place.epoch <= self.place.epoch:
            return
        alone = self.alone and self.place.epoch > 0
        leads = place.primary == self.node
        # A greater promise shows that another node leads in a later epoch.
        continues = leads and 0 < self.reign == place.epoch - 1 and self.promised <= place.epoch
        self.reign = place.epoch if continues else 0
        self.place = place
        self.step_down()
        self.ownership_generation += not leads
        if alone and not self.alone and leads:
            self.begin_log()
        if place.holds(self.node):
            self.promise(place.epoch)
        if leads and self.installing:
            self.wipe()  # only ``data_loss_recovery`` names such a node, for lack of a copy
        if leads:
            self.primary.lead(continues=continues)

    def _learn_learners(self, place: ReplicaSet, version: int) -> None:
        """Takes over a set of the same epoch: only the learners can have changed."""
        alone = self.alone
        self.place = place
        if alone and not self.alone:
            self.begin_log()
        if self.role is not Role.IDLE:
            self.log_sync.change_learners(version)

    def receive(self, sender: str, message: PartitionMessage) -> None:
        """Gives a request to the follower's side, and an answer to the primary's side."""
        request = _REQUESTS.get(type(message))
        if request is not None:
            request(self.follower, sender, message)
        else:
            _ANSWERS[type(message)](self.primary, sender, message)

    def resend(self) -> None:
        """Resends all unanswered requests: messages get lost."""
        if self.role is Role.IDLE:
            self.follower.resend()
        else:
            self.primary.resend()

    def lag(self) -> dict[str, int]:
        """Entries that each follower is behind, except for entries that may be in flight."""
        return self.primary.lag()
