"""A replica of one partition: follower or primary, fenced by epochs.

Invariant: no acknowledged entry is ever lost. Each of these rules is needed:

- A replica answers FENCED to a SEAL, FETCH, APPEND or INSTALL with an epoch below its promise.
  Otherwise the replica promises the epoch, in the same synced write as the message's changes.
  Learning a view raises the promise too. A promise never decreases, not even across crashes.
- A fresh process leads nothing. A new primary first SEALs the whole sync set, which fences every
  older primary (older primaries need acknowledgements from the same members). The new primary
  adopts the log with the greatest (last epoch, end), levels all members, and only then is ACTIVE.
  No replica truncates to a "known commit point". A primary ACTIVE in the previous epoch keeps its
  own log, which has every committed entry; a joining learner may bring an uncommitted one.
- An entry is committed when durable on *every* member of the sync set and every *pending* node,
  if the set has at least ``min_sync`` members. Only then is the entry applied to the state, by the
  primary and, once told of the commit, by the followers.
- To grow the set, the primary first makes a learner pending: commits need the learner from then on.
  Once the learner is level, the primary proposes the new view. The learner stays pending until a
  newer epoch is learned or the proposal is decided: until then, the outcome is unknown.
- A primary drops applied entries that no follower lacks. A learner that lacks dropped entries
  receives the whole state (``install``).

Timers only decide when to resend. ``role`` has the table of roles and transitions.
"""

from __future__ import annotations

from typing import Final

from weft.persistence import layout
from weft.persistence.overlay import Overlay

from .follower import Follower
from .log import KEEP_MAX, Changes, Log, agree, encode, last_of
from .messages import (
    AnyMessage,
    AppendEntries,
    EntriesAppended,
    FencedReply,
    Fetch,
    Fetched,
    Install,
    Installed,
    Lineage,
    Need,
    Seal,
    SealReply,
)
from .planted_bugs import NO_PLANTED_BUGS
from .replica_host import ReplicaHost
from .replica_record import ReplicaRecord, decode_replica_record, encode_replica_record
from .role import Role
from .snapshot_transfer import BEGIN_AGAIN, SnapshotTransfer
from .view import ReplicaSet

#: Entries in one message.
ENTRIES_MAX: Final = 64
#: Entries applied in one round.
APPLY_MAX: Final = 256


class Replica:
    def __init__(
        self, number: int, node: str, overlay: Overlay, catalogue: int, host: ReplicaHost
    ) -> None:
        self.number = number
        self.node = node
        self._overlay = overlay
        self._catalogue = catalogue
        self._host = host
        self.planted_bugs = NO_PLANTED_BUGS
        self.log = Log(number, overlay)
        self.place = ReplicaSet(0, (node,))
        self.min_sync = 1
        self.role = Role.IDLE
        #: Raised whenever another node may have changed the partition. While equal, the node's
        #: in-memory state of the partition is valid, even across epochs.
        self.ownership_generation = 0
        #: The commit index: entries up to here are known to be durable on every required node.
        #: A sync set that has shrunk below min_sync commits nothing, not even inherited entries.
        self.committed = 0
        #: The last lsn that is applied to the state.
        self.applied = 0
        #: (epoch, lsn): the log is known to equal the log of the epoch's primary up to the lsn.
        self._level = (0, 0)
        #: After a restart or a cut: entries may be committed, and the replica must ask for that.
        self.asks = False
        self._installing = False
        self._install = ((0, 0), 0)  # (epoch, number of the transfer), next piece
        self.promised = 0
        self._recover()
        self._sealed: dict[str, tuple[Lineage, int]] = {}
        self._source = ""  # the member to fetch entries from
        self._goes_on = False  # ACTIVE in the previous epoch
        self._follows: dict[str, Follower] = {}  # the followers of a primary
        self._sent_count = 0  # snapshot transfers started
        self.pending: set[str] = set()
        self._wanted = ""  # the learner that joins the sync set next

    def _recover(self) -> None:
        data = self._overlay.read(layout.replica(self.number))
        meta = decode_replica_record(data) if data is not None else ReplicaRecord()
        self.promised = meta.promised
        self._installing = meta.installing
        if not meta.installing:
            self.log.recover(meta.base, meta.base_epoch)
            self.applied = self.committed = meta.applied
        self.asks = self.log.end > self.applied

    # --- the view -------------------------------------------------------------------------

    def learn(self, place: ReplicaSet, min_sync: int, version: int = 0) -> None:
        """Takes over the partition's replica set from a newer view, of version `version`."""
        self.min_sync = min_sync
        if place.epoch == self.place.epoch:
            self._learners(place, version)
        if place.epoch <= self.place.epoch:
            return
        alone = self.alone and self.place.epoch > 0
        self._goes_on = self.role is Role.ACTIVE and place.epoch == self.place.epoch + 1
        self.place = place
        self._step_down()
        self.ownership_generation += place.primary != self.node
        if alone and not self.alone and place.primary == self.node:
            self._begin_log()
        if place.holds(self.node):
            self._promise(place.epoch)
        if place.primary == self.node and self._installing:
            self.wipe()  # only ``data_loss_recovery`` names such a node, for lack of a copy
        if place.primary == self.node:
            self._follows = {node: Follower() for node in self.followers}
            self.role = Role.SEALING
            self._sealed = {self.node: (self.log.lineage, self.log.end)}
            self.resend()
            self._all_sealed()

    def _learners(self, place: ReplicaSet, version: int) -> None:
        """Only the learners changed: an ACTIVE primary announces its log to the new learners."""
        alone = self.alone
        self.place = place
        if alone and not self.alone:
            self._begin_log()
        if self.role is Role.IDLE:
            return
        known = self._follows
        self._follows = {n: known.get(n) or Follower(version) for n in self.followers}
        if self.role is Role.ACTIVE:
            for learner in [node for node in place.learners if node not in known]:
                self._follows[learner].next = self.log.end + 1
                self._ship(learner, even_empty=True)

    def _begin_log(self) -> None:
        """Starts the log for the first follower. State written without entries gets a new lsn, so
        that a former follower does not take its old state for the current state."""
        if self.applied < self.log.end:
            return  # ``propose`` wrote entries, and these may be acknowledged
        self.log.restart(self.log.end + 1, self.place.epoch)
        self.applied = self.committed = self.log.end
        self._save()

    def _step_down(self) -> None:
        if self.role is not Role.IDLE:  # a follower keeps its commit index
            self.role = Role.IDLE
            self.committed = self.applied
        self.pending.clear()
        self._follows.clear()

    def _promise(self, epoch: int) -> bool:
        """Promises the epoch; False if the replica has promised a higher epoch."""
        if epoch < self.promised:
            return self.planted_bugs.no_fence
        if epoch > self.promised:
            self.promised = epoch
            if not self.planted_bugs.volatile_promise:
                self._save()
        if epoch > self.place.epoch and self.role is not Role.IDLE:
            self._step_down()  # a newer primary exists; the newer view will arrive
        return True

    def _save(self) -> None:
        epoch, base = self.log.lineage[0]
        meta = ReplicaRecord(self.promised, base, epoch, self.applied, self._installing)
        self._overlay.put(layout.replica(self.number), encode_replica_record(meta))

    # --- a follower -----------------------------------------------------------------------

    def seal(self, sender: str, message: Seal) -> None:
        if not self._promise(message.epoch):
            self._send(sender, FencedReply(self.number, self.promised))
            return
        lineage = list(self.log.lineage)
        self._send(sender, SealReply(self.number, message.epoch, lineage, self.log.end))

    def fetch(self, sender: str, message: Fetch) -> None:
        if not self._promise(message.epoch):
            self._send(sender, FencedReply(self.number, self.promised))
            return
        before = message.first - 1
        if self.log.base <= before <= self.log.end:
            previous = (before, self.log.epoch_at(before))
            entries = self.log.entries(message.first, ENTRIES_MAX)
            self._send(sender, Fetched(self.number, message.epoch, previous, entries))

    def append(self, sender: str, message: AppendEntries) -> None:
        if not self._promise(message.epoch):
            self._send(sender, FencedReply(self.number, self.promised))
            return
        lsn, epoch = message.previous
        if self._installing and lsn == 0:
            self.wipe()  # the primary has the log from the start: discard the partial state
        # Entries below the base are applied, so every primary since has these entries.
        known = lsn < self.log.base or self.log.has(lsn, epoch)
        if self._installing or not known:
            self._need(sender, message.epoch)
            return
        self.ownership_generation += 1
        self.asks = False
        self.log.take(message.entries)
        level = lsn + len(message.entries)
        if self._level[0] != message.epoch or level > self._level[1]:
            self._level = message.epoch, level
        self.hear_commit(message.epoch, message.committed)
        self.trim(message.trim)
        send = self._host.send_later if message.lazy else self._host.send
        send(sender, EntriesAppended(self.number, message.epoch, level, message.since))

    def _need(self, primary: str, epoch: int) -> None:
        self._send(primary, Need(self.number, epoch, list(self.log.lineage), self.log.end))

    def hear_commit(self, epoch: int, lsn: int) -> None:
        """Takes the primary's commit index, as far as the two logs are known to be equal."""
        if self._level[0] == epoch:
            self.committed = max(self.committed, min(lsn, self._level[1]))

    def install(self, sender: str, message: Install) -> None:
        if not self._promise(message.epoch):
            self._send(sender, FencedReply(self.number, self.promised))
            return
        lsn, epoch = message.at
        if not self._installing and (self.log.base > lsn or self.log.has(lsn, epoch)):
            self._send(sender, EntriesAppended(self.number, message.epoch, lsn, message.since))
            return
        this = (message.epoch, message.transfer)
        if this < self._install[0]:
            return  # a piece of an abandoned transfer
        if message.number == 0 and not (self._installing and self._install[0] == this):
            self.wipe()
            self._installing = True
            self._save()
            self._install = (this, 0)
        number = message.number
        if self._install[0] != this or number > self._install[1]:
            # The piece is of another transfer, or a restart has lost the earlier pieces.
            number = BEGIN_AGAIN
        elif number == self._install[1]:
            self._install = (this, number + 1)
            for key, value in message.rows:
                self._overlay.put_record(key, value)
            if message.last or self.planted_bugs.install_whole_early:
                self._installing = False
                self.log.restart(lsn, epoch)
                self.applied = self.committed = lsn
                self._save()
                self._host.replaced(self.number)
        self._send(sender, Installed(self.number, message.epoch, lsn, number, message.transfer))

    def wipe(self) -> None:
        """Deletes the partition's state and log; only the promise stays."""
        self.ownership_generation += 1
        self._overlay.drop_all(layout.state_ranges(self.number, self._catalogue))
        self.log.restart(0, 0)
        self.applied = self.committed = 0
        self._installing = False
        self._install = ((0, 0), 0)
        self._level = (0, 0)
        self._save()

    @property
    def empty(self) -> bool:
        return self.log.end == 0 and not self._installing

    # --- both -----------------------------------------------------------------------------

    def apply(self) -> None:
        """Applies committed entries to the state, at most APPLY_MAX per call."""
        last = min(self.committed, self.applied + APPLY_MAX)
        if last <= self.applied:
            return
        for lsn in range(self.applied + 1, last + 1):
            changes = self.log.changes(lsn)
            for key, value in changes.puts:
                self._overlay.put_record(key, value)
            for key in changes.deletes:
                self._overlay.delete(key)
            self.log.applied(lsn)
            self._host.applied(self.number, lsn, changes)
        self.applied = last
        if self.role is Role.ACTIVE:
            self.trim(self._trim_point())
        self._save()

    def trim(self, last: int) -> None:
        if (last := min(last, self.applied)) > self.log.base:
            self.log.trim(last)
            self._save()

    # --- a primary ------------------------------------------------------------------------

    @property
    def alone(self) -> bool:
        """True if no node follows: once the log is applied, proposals bypass the log."""
        return self.place.sync == (self.node,) and not self.place.learners

    @property
    def serving(self) -> bool:
        """True if the replica may take proposals: ACTIVE, with ``min_sync`` sync members."""
        return self.role is Role.ACTIVE and len(self.place.sync) >= self.min_sync

    def propose(self, changes: Changes, bodies: list[tuple[bytes, bytes | None]]) -> int:
        """Proposes an entry and returns its lsn; committed once `committed` reaches the lsn."""
        assert self.serving
        if self.alone and self.applied == self.log.end:  # else an older entry is applied later
            for key, value in (*changes.puts, *bodies):
                if value is not None:
                    self._overlay.put_record(key, value)
            for key in changes.deletes:
                self._overlay.delete(key)
            return self.log.end
        lsn = self.log.append(self.place.epoch, encode(changes), bodies)
        for follower in self.followers:
            if not self._is_lazy(follower) or self._has_lot(follower):
                self._ship(follower)
        self._commit()
        return lsn

    def sealed(self, sender: str, message: SealReply) -> None:
        if self.role is Role.SEALING and message.epoch == self.place.epoch:
            self._sealed.setdefault(sender, (message.lineage, message.end))
            self._all_sealed()

    def fetched(self, sender: str, message: Fetched) -> None:
        if self.role is not Role.FETCHING or message.epoch != self.place.epoch:
            return
        if sender == self._source and self.log.has(*message.previous):
            self.ownership_generation += 1
            self.log.take(message.entries)
            self._fetch_or_copy()

    def appended(self, sender: str, message: EntriesAppended) -> None:
        follower = self._follower(sender, message.epoch)
        if follower is None or message.since != follower.since:
            return  # a learner that left and rejoined has discarded the acknowledged entries
        follower.has(message.lsn)
        self._progress(sender)

    def need(self, sender: str, message: Need) -> None:
        follower = self._follower(sender, message.epoch)
        if follower is None:
            return
        common = agree(self.log.lineage, self.log.end, message.lineage, message.end)
        if common is None or common < self.log.base:
            if sender in self.place.learners:
                self._send_state(sender)
            return
        follower.next = max(common, follower.level) + 1
        self._ship(sender, even_empty=True)

    def installed(self, sender: str, message: Installed) -> None:
        follower = self._follower(sender, message.epoch)
        transfer = follower.transfer if follower is not None else None
        if follower is None or transfer is None or message.transfer != transfer.count:
            return
        if message.number == BEGIN_AGAIN and transfer.number:
            follower.transfer = None
            self._send_state(sender)
        elif message.number == transfer.number and not transfer.last:
            transfer.advance()
            self._send_piece(sender)
        elif message.number == transfer.number:
            follower.has(message.lsn)
            self._ship(sender, even_empty=True)
            self._progress(sender)

    def fenced(self, sender: str, message: FencedReply) -> None:
        """A node has promised a newer epoch, so this replica is no longer the primary."""
        if message.epoch > self.place.epoch and self.role is not Role.IDLE:
            self._step_down()

    def want_grow(self, learner: str) -> bool:
        """True if the learner may join the sync set now: the learner is pending and level."""
        if self.role is not Role.ACTIVE:
            return False
        if self.planted_bugs.grow_unlevel:
            return True
        follower = self._follows.get(learner)
        match = follower.match if follower is not None else None
        if follower is None or match is None or not self._host.reachable(learner):
            return False
        if follower.lazy:
            self._ship(learner, even_empty=True)  # from now on the primary waits for the answer
        if self.log.end - match <= ENTRIES_MAX:
            self.pending.add(learner)
        return match >= self.log.end

    def wait_only_for(self, learner: str) -> None:
        """Keeps only `learner` pending. No proposal is in flight, so no other node has joined."""
        self._wanted = learner
        if self.pending - {learner}:
            self.pending &= {learner}
            self._commit()

    def lag(self) -> dict[str, int]:
        """Entries that each follower is behind, except for entries that may be in flight."""
        end, follows = self.log.end, self._follows.items()
        return {name: lag for name, each in follows if (lag := each.lag(end, ENTRIES_MAX))}

    @property
    def installing_others(self) -> int:
        return sum(each.transfer is not None for each in self._follows.values())

    # --- inside ---------------------------------------------------------------------------

    @property
    def followers(self) -> list[str]:
        return [*self.place.sync[1:], *self.place.learners]

    @property
    def needed(self) -> list[str]:
        """Nodes that must acknowledge an entry or confirm a pop's answer (``leadership_check``)."""
        return [*self.place.sync[1:], *(n for n in self.pending if n not in self.place.sync)]

    def _follower(self, sender: str, epoch: int) -> Follower | None:
        """The sender as a follower, if this replica leads in the message's epoch."""
        leads = self.role in (Role.COPYING, Role.ACTIVE) and epoch == self.place.epoch
        return self._follows.get(sender) if leads else None

    def resend(self) -> None:
        """Resends all unanswered requests: messages get lost."""
        epoch = self.place.epoch
        if self.role is Role.SEALING:
            for member in self.place.sync:
                if member not in self._sealed:
                    self._send(member, Seal(self.number, epoch))
        elif self.role is Role.FETCHING:
            self._fetch_or_copy()
        elif self.role in (Role.COPYING, Role.ACTIVE):
            for follower in self.followers:
                self._say_again_to(follower)
        elif self.asks and self.place.primary != self.node:
            self._need(self.place.primary, epoch)

    def _say_again_to(self, name: str) -> None:
        """Resends to a follower only if the follower made no progress since the last call."""
        follower = self._follows[name]
        late, match = follower.is_late(self.log.end), follower.match
        if follower.transfer is not None:
            if self._host.reachable(name):
                self._send_piece(name)
            else:
                follower.transfer = None  # an open transfer keeps the log from being trimmed
        elif late and (follower.under_way or not self._is_lazy(name)):
            follower.next = self.log.end + 1 if match is None else match + 1
            self._ship(name, even_empty=True)

    def _is_lazy(self, name: str) -> bool:
        """True for a learner that no commit waits for: entries gather until the next ping
        (`send_to_learners`). The catalogue is never lazy: every node waits for new queues."""
        learns = name in self.place.learners and name not in self.pending
        return learns and name != self._wanted and self.number != self._catalogue

    def _has_lot(self, name: str) -> bool:
        """True if the entries gathered for an idle learner fill a message."""
        follower = self._follows[name]
        return not follower.under_way and self.log.end - follower.level >= ENTRIES_MAX

    def send_to_learners(self) -> None:
        """Sends gathered entries along with a ping, if appended before the previous ping. By then
        most messages are consumed, and their payloads need not be copied."""
        for learner in self.place.learners if self.role is Role.ACTIVE else ():
            follower = self._follows[learner]
            end_at_last_ping, follower.end_at_last_ping = follower.end_at_last_ping, self.log.end
            if not follower.under_way and end_at_last_ping > follower.level:
                self._ship(learner, upto=end_at_last_ping)

    def news(self, name: str) -> int | None:
        """The commit index, if due to be sent to a level follower; else None."""
        follower = self._follows.get(name) if self.role is Role.ACTIVE else None
        tell = follower is not None and follower.is_to_hear(self.committed)
        return self.committed if tell else None

    def _all_sealed(self) -> None:
        if any(member not in self._sealed for member in self.place.sync):
            return
        if self.planted_bugs.cut_to_commit:
            self.log.cut(self.committed + 1)
        if self._goes_on or self.planted_bugs.cut_to_commit:
            self._source = self.node
        else:
            self._source = max(
                self._sealed, key=lambda node: (last_of(*self._sealed[node]), node == self.node)
            )
        if self._source == self.node:
            self._copy()
        else:
            self.role = Role.FETCHING
            self._fetch_or_copy()

    def _fetch_or_copy(self) -> None:
        lineage, end = self._sealed[self._source]
        common = agree(self.log.lineage, self.log.end, lineage, end)
        assert common is not None, "members of a sync set share what is applied"
        if common == end and self.log.end == end:
            self._copy()
        else:
            self._send(self._source, Fetch(self.number, self.place.epoch, common + 1))

    def _copy(self) -> None:
        """Keeps this replica's log and brings every member level with the log."""
        self.role = Role.COPYING
        for member, (lineage, end) in self._sealed.items():
            if member != self.node:
                common = agree(self.log.lineage, self.log.end, lineage, end)
                assert common is not None, "members of a sync set share what is applied"
                self._follows[member].next = max(common, self.log.base) + 1
                self._ship(member, even_empty=True)
        self._progress("")

    def _progress(self, name: str) -> None:
        if self.role is Role.COPYING:
            matches = [self._follows[member].match for member in self.place.sync[1:]]
            if all(match is not None and match >= self.log.end for match in matches):
                self.role = Role.ACTIVE
                for learner in self.place.learners:
                    self._follows[learner].next = self.log.end + 1
                    self._ship(learner, even_empty=True)
        if self.role is Role.ACTIVE:
            self._commit()
        follower = self._follows.get(name)
        if follower is None or (follower.next or 0) > self.log.end:
            return
        if self._has_lot(name) or not (follower.lazy and self._is_lazy(name)):
            self._ship(name)

    def _commit(self) -> None:
        """Commits entries that all needed nodes have. The own write ends before answers go out."""
        if len(self.place.sync) < self.min_sync:
            return
        levels = [each.level if each else 0 for each in map(self._follows.get, self.needed)]
        level = min(levels, default=self.log.end)
        level = self.log.end if self.planted_bugs.early_ack else level
        if level > self.committed:
            self.committed = level
            if self.number == self._catalogue:  # every node waits for new queues
                for follower in self.followers:
                    self._ship(follower, even_empty=True)

    def _trim_point(self) -> int:
        """The last lsn that every follower has; a follower far behind gets a snapshot instead."""
        follows = self._follows.values()
        level = min([each.level for each in follows], default=self.applied)
        level = max(level, self.applied - KEEP_MAX)
        return min([level, *(each.transfer.at[0] for each in follows if each.transfer is not None)])

    def _ship(self, name: str, *, even_empty: bool = False, upto: int = 0) -> None:
        follower = self._follows[name]
        first = follower.next
        if first is None or follower.transfer is not None:
            return  # the follower's log is not known yet, or a snapshot is in flight
        if first <= self.log.base:
            self._send_state(name)
            return
        upto = upto or self.log.end
        entries = self.log.entries(first, min(ENTRIES_MAX, upto - first + 1))
        if entries or even_empty:
            before = (first - 1, self.log.epoch_at(first - 1))
            follower.next = first + len(entries)
            follower.commit_sent = self.committed, 0
            # A follower short of the end answers at once, because more entries follow.
            last = follower.next > upto and 0 < len(entries) < ENTRIES_MAX
            follower.lazy, follower.stalled_ticks = last and self._is_lazy(name), 0
            about = (self.committed, self._trim_point(), follower.since, follower.lazy)
            self._send(name, AppendEntries(self.number, self.place.epoch, before, entries, *about))

    def _send_state(self, learner: str) -> None:
        """Starts a snapshot from the stored state: the entries applied up to the last write."""
        follower = self._follows[learner]
        if follower.transfer is not None or learner not in self.place.learners:
            return
        self._sent_count += 1
        about = (self._overlay, self.number, self._catalogue, self.log)
        follower.transfer = SnapshotTransfer.begin(*about, self._sent_count)
        self._send_piece(learner)

    def _send_piece(self, learner: str) -> None:
        follower = self._follows[learner]
        transfer = follower.transfer
        if transfer is not None and self._host.may_install(transfer.size):  # else retry later
            self._send(learner, transfer.message(self.number, self.place.epoch, follower.since))

    def _send(self, to: str, message: AnyMessage) -> None:
        self._host.send(to, message)
