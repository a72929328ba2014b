"""The state of a replica, and the operations that keep its invariants. Pure.

``Follower``, ``LogSync`` and ``Primary`` act on this state; nothing else changes it. Between two
calls, ``log.base <= applied <= committed <= log.end`` holds.

A change of a persistent field goes to the overlay with the changes that depend on the field, so
that one synced write has both, and no message leaves before that write (``core``).
"""

from __future__ import annotations

from weft.persistence import layout
from weft.persistence.overlay import Overlay

from . import replica_limits
from .log import Log
from .planted_bugs import NO_PLANTED_BUGS
from .progress import Progress
from .replica_host import ReplicaHost
from .replica_record import ReplicaRecord, decode_replica_record, encode_replica_record
from .role import Role, RoleEvent, next_role
from .view import ReplicaSet


class ReplicaState:
    def __init__(
        self, number: int, node: str, overlay: Overlay, catalogue: int, host: ReplicaHost
    ) -> None:
        self.number = number
        self.node = node
        self.overlay = overlay
        #: The number of the catalogue's partition.
        self.catalogue = catalogue
        self.host = host
        self.planted_bugs = NO_PLANTED_BUGS

        # --- persistent: a crash loses nothing of it ---

        #: The greatest epoch that this replica has promised. Never decreases. The replica obeys no
        #: message of a lower epoch, so no primary of a lower epoch commits an entry any more.
        self.promised = 0
        #: The entries after `log.base`. An entry that this replica acknowledged is cut off only if
        #: a primary of a newer epoch proves that the entry was never committed.
        self.log = Log(number, overlay)
        #: The last lsn that is applied to the state. All entries up to here are committed, so every
        #: later primary has these entries, and `log.base` may advance up to here.
        self.applied = 0
        #: True while a snapshot is incomplete. Then the log is empty, the state is useless, and the
        #: replica acknowledges no entry. Survives a crash: half a snapshot is never taken for all.
        self.installing = False

        # --- volatile: what a replica knows of its partition ---

        #: The replica set of the newest view. Its epoch may be below `promised`: a newer primary
        #: may reach this replica before the newer view does.
        self.place = ReplicaSet(0, (node,))
        #: Copies that an acknowledgement needs, from the newest view.
        self.min_sync = 1
        #: Changes only by `change_role`. Not IDLE only if `place.primary` is this node.
        self.role = Role.IDLE
        #: Raised whenever another node may have changed the partition. While equal, the node's
        #: in-memory state of the partition is valid, even across epochs.
        self.ownership_generation = 0
        #: The commit index: entries up to here are durable on every needed node. May lag behind the
        #: commits that another node knows of. Falls back to `applied` at the end of a lead, because
        #: the next primary decides about the rest; else never decreases, except for `wipe`.
        #: A sync set that has shrunk below `min_sync` commits nothing, not even inherited entries.
        self.committed = 0

        # --- volatile: a follower ---

        #: (epoch, lsn): the log equals the log of the epoch's primary up to the lsn. A primary's
        #: commit index counts only up to here, because later entries may still be cut off.
        self.level = (0, 0)
        #: True after a restart or a network cut: entries may be committed without this replica's
        #: knowledge, so the replica asks the primary until the primary's next entries arrive.
        self.asks = False
        #: ((epoch, transfer), piece): the snapshot transfer in progress and the next piece to take.
        #: Pieces are taken in order and once; a lower (epoch, transfer) is an abandoned transfer.
        self.next_piece = ((0, 0), 0)

        #: The newest epoch of this replica's reign, or 0: it was ACTIVE in one epoch, and no other
        #: node was primary since. In a reign, the replica's log has every committed entry.
        self.reign = 0

        # --- volatile: a primary; empty while IDLE ---

        #: For each of `followers` what the primary knows of its log.
        self.progress: dict[str, Progress] = {}
        #: Learners about to join the sync set. A learner is added before the view with the larger
        #: set is proposed, and stays until a newer epoch is learned or the proposal is decided:
        #: until then the outcome is unknown, and no entry commits without the learner.
        self.pending: set[str] = set()

        self._recover()

    def _recover(self) -> None:
        data = self.overlay.read(layout.replica(self.number))
        record = decode_replica_record(data) if data is not None else ReplicaRecord()
        self.promised = record.promised
        self.installing = record.installing
        if not record.installing:
            self.log.recover(record.base, record.base_epoch)
            self.applied = self.committed = record.applied
        self.asks = self.log.end > self.applied

    # --- what follows from the state --------------------------------------------------------

    @property
    def empty(self) -> bool:
        return self.log.end == 0 and not self.installing

    @property
    def alone(self) -> bool:
        """True if no node follows: once the log is applied, proposals bypass the log."""
        return self.place.sync == (self.node,) and not self.place.learners

    @property
    def serving(self) -> bool:
        """True if the replica may take proposals: ACTIVE, with ``min_sync`` sync members."""
        return self.role is Role.ACTIVE and len(self.place.sync) >= self.min_sync

    @property
    def followers(self) -> list[str]:
        return [*self.place.sync[1:], *self.place.learners]

    @property
    def needed(self) -> list[str]:
        """Nodes that must acknowledge an entry or confirm a pop's answer (``leadership_check``)."""
        return [*self.place.sync[1:], *(n for n in self.pending if n not in self.place.sync)]

    @property
    def leads_alone(self) -> bool:
        """True for a primary without other copies: nothing to resend before the next view."""
        return self.role is Role.ACTIVE and not self.followers and not self.pending

    # --- role and promise -------------------------------------------------------------------

    def change_role(self, event: RoleEvent) -> None:
        self.role = next_role(self.role, event)

    def step_down(self) -> None:
        """Ends the lead, if this replica leads, and forgets all that only a primary knows."""
        if self.role is not Role.IDLE:  # a follower keeps its commit index
            self.change_role(RoleEvent.DEPOSED)
            self.committed = self.applied
        self.pending.clear()
        self.progress.clear()

    def promise(self, epoch: int) -> bool:
        """Promises the epoch; False if the replica has promised a higher epoch."""
        if epoch < self.promised:
            return self.planted_bugs.no_fence
        if epoch > self.promised:
            self.promised = epoch
            if not self.planted_bugs.volatile_promise:
                self.save()
        if epoch > self.place.epoch and self.role is not Role.IDLE:
            self.step_down()  # a newer primary exists; the newer view will arrive
        return True

    def save(self) -> None:
        epoch, base = self.log.lineage[0]
        record = ReplicaRecord(self.promised, base, epoch, self.applied, self.installing)
        self.overlay.put(layout.replica(self.number), encode_replica_record(record))

    # --- log and state ----------------------------------------------------------------------

    def apply(self) -> None:
        """Applies committed entries to the state, at most ``APPLY_MAX`` per call."""
        last = min(self.committed, self.applied + replica_limits.APPLY_MAX)
        if last <= self.applied:
            return
        for lsn in range(self.applied + 1, last + 1):
            changes = self.log.changes(lsn)
            for key, value in changes.puts:
                self.overlay.put_record(key, value)
            for key in changes.deletes:
                self.overlay.delete(key)
            self.log.applied(lsn)
            self.host.applied(self.number, lsn, changes)
        self.applied = last
        if self.role is Role.ACTIVE:
            self.trim(self.trim_point())
        self.save()

    def trim(self, last: int) -> None:
        if (last := min(last, self.applied)) > self.log.base:
            self.log.trim(last)
            self.save()

    def trim_point(self) -> int:
        """The last lsn that every follower has; a follower far behind gets a snapshot instead."""
        known = self.progress.values()
        level = min([each.level for each in known], default=self.applied)
        level = max(level, self.applied - replica_limits.KEEP_MAX)
        return min([level, *(each.transfer.at[0] for each in known if each.transfer is not None)])

    def begin_log(self) -> None:
        """Starts the log for the first follower. State written without entries gets a new lsn, so
        that a former follower does not take its old state for the current state."""
        if self.applied < self.log.end:
            return  # the primary appended entries, and these may be acknowledged
        self.log.restart(self.log.end + 1, self.place.epoch)
        self.applied = self.committed = self.log.end
        self.save()

    def wipe(self) -> None:
        """Deletes the partition's state and log; only the promise stays."""
        self.ownership_generation += 1
        self.reign = 0
        self.overlay.drop_all(layout.state_ranges(self.number, self.catalogue))
        self.log.restart(0, 0)
        self.applied = self.committed = 0
        self.installing = False
        self.next_piece = ((0, 0), 0)
        self.level = (0, 0)
        self.save()
