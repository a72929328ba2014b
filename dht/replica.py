"""A replica of one partition: follower or primary, fenced by epochs.

The rules, each needed for "nothing acknowledged is ever lost":

- A receiver of SEAL, FETCH, APPEND or INSTALL of an epoch below its promise answers FENCED.
  Otherwise the promise becomes that epoch, in the same synced write as whatever the message
  changes. Learning a view raises it too. A promise never decreases, across crashes too.
- A fresh process leads nothing. A new primary first SEALs all of its sync set, which fences every
  older primary (their acknowledgements need these very members); adopts the log that holds most,
  by (last epoch, end); levels all members with it; and only then is ACTIVE. Nothing is ever cut
  back to a "known commit point".
- An entry is committed when it is durable on *every* member of the sync set and on every *pending*
  one, and the set has at least ``min_sync`` members. Only then is it applied to the state, by the
  primary and, when they hear of it, by the others.
- To grow, a learner is made pending first: its word is needed from that instant on. When it is
  level the view is changed. It stays pending until a newer epoch is learned or the wish is decided,
  because until then nobody knows whether the change was chosen.
- Entries that are applied and that no follower lacks are dropped. Who lacks more than that, which
  only a learner can, is sent the whole state (``install``).

Nothing here reads a clock: time only decides when something is said again.
"""

from __future__ import annotations

from typing import Final

from weft.persistence import layout
from weft.persistence.overlay import Overlay

from .follower import Follower
from .log import Changes, Log, agree, encode, last_of
from .messages import (
    AnyMessage,
    Append,
    Appended,
    Fenced,
    Fetch,
    Fetched,
    Install,
    Installed,
    Lineage,
    Need,
    Seal,
    Sealed,
)
from .meta import Meta, decode_meta, encode_meta
from .mutant import NO_MUTANT
from .outbox import Outbox
from .role import Role
from .sending import Sending
from .view import Place

#: Entries in one message.
ENTRIES_MAX: Final = 64
#: Applied entries that are kept for a follower that is only a little behind.
KEEP_MAX: Final = 4096
#: In the place of a piece's number: what was installed before it is not there.
BEGIN_AGAIN: Final = -1
#: Entries applied in one round.
APPLY_MAX: Final = 256


class Replica:
    def __init__(
        self, number: int, node: str, overlay: Overlay, catalogue: int, outbox: Outbox
    ) -> None:
        self.number = number
        self.node = node
        self._overlay = overlay
        self._catalogue = catalogue
        self._outbox = outbox
        self.mutant = NO_MUTANT
        self.log = Log(number, overlay)
        self.place = Place(0, (node,))
        self.min_sync = 1
        self.role = Role.IDLE
        #: Grows whenever somebody else may have changed the partition: as long as it stays, what
        #: this node has in memory of it holds, whatever epochs went by.
        self.turn = 0
        #: Durable wherever it must be up to here, as far as this replica knows. A set that has
        #: shrunk below min_sync commits nothing, not even what it inherited.
        self.committed = 0
        #: Up to here it is in the state.
        self.applied = 0
        #: (epoch, lsn): this log is known to equal its primary's up to there.
        self._level = (0, 0)
        #: After a restart: some of the log may be committed, and nobody will say so unasked.
        self.asks = False
        self._installing = False
        self._install = ((0, 0), 0)  # (epoch, number of the sending), next piece
        self.promised = 0
        self._recover()
        self._sealed: dict[str, tuple[Lineage, int]] = {}
        self._source = ""  # whom it fetches from
        self._follows: dict[str, Follower] = {}  # who follows this one, while it is a primary
        self._sent_count = 0  # states that were sent
        self.pending: set[str] = set()
        self._wanted = ""  # the learner that is to join the set next

    def _recover(self) -> None:
        data = self._overlay.read(layout.replica(self.number))
        meta = decode_meta(data) if data is not None else Meta()
        self.promised = meta.promised
        if meta.installing:
            self._installing = True
        else:
            self.log.recover(meta.base, meta.base_epoch)
            self.applied = self.committed = meta.applied
        self.asks = self.log.end > self.applied

    # --- the view -------------------------------------------------------------------------

    def learn(self, place: Place, min_sync: int, version: int = 0) -> None:
        """A place for this partition, as of a version of the view newer than the one known."""
        self.min_sync = min_sync
        if place.epoch == self.place.epoch:
            self._learners(place, version)
        if place.epoch <= self.place.epoch:
            return
        alone = self.alone and self.place.epoch > 0
        self.place = place
        self._step_down()
        self.turn += place.primary != self.node
        if alone and not self.alone and place.primary == self.node:
            self._begin_log()
        if place.holds(self.node):
            self._promise(place.epoch)
        if place.primary == self.node:
            self._follows = {node: Follower() for node in self.followers}
            self.role = Role.SEALING
            self._sealed = {self.node: (self.log.lineage, self.log.end)}
            self.say_again()
            self._all_sealed()

    def _learners(self, place: Place, version: int) -> None:
        """Only the learners differ: the new ones are told what there is."""
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
        """Somebody follows now. What was written without an entry has a number of its own, so that
        nobody who followed once before takes his state for ours."""
        if self.applied < self.log.end:
            return  # nothing was (``propose``), and what is in the log may have been acknowledged
        self.log.restart(self.log.end + 1, self.place.epoch)
        self.applied = self.committed = self.log.end
        self._save()

    def _step_down(self) -> None:
        if self.role is not Role.IDLE:  # a follower goes on knowing what it was told
            self.role = Role.IDLE
            self.committed = self.applied
        self.pending.clear()
        self._follows.clear()

    def _promise(self, epoch: int) -> bool:
        """Whether the epoch is not below what was promised; then it is promised."""
        if epoch < self.promised:
            return self.mutant.no_fence
        if epoch > self.promised:
            self.promised = epoch
            if not self.mutant.volatile_promise:
                self._save()
        if epoch > self.place.epoch and self.role is not Role.IDLE:
            self._step_down()  # a newer primary speaks: its view is on its way
        return True

    def _save(self) -> None:
        epoch, base = self.log.lineage[0]
        meta = Meta(self.promised, base, epoch, self.applied, self._installing)
        self._overlay.put(layout.replica(self.number), encode_meta(meta))

    # --- a follower -----------------------------------------------------------------------

    def seal(self, sender: str, message: Seal) -> None:
        if not self._promise(message.epoch):
            self._send(sender, Fenced(self.number, self.promised))
            return
        self._send(sender, Sealed(self.number, message.epoch, list(self.log.lineage), self.log.end))

    def fetch(self, sender: str, message: Fetch) -> None:
        if not self._promise(message.epoch):
            self._send(sender, Fenced(self.number, self.promised))
            return
        before = message.first - 1
        if self.log.base <= before <= self.log.end:
            previous = (before, self.log.epoch_at(before))
            entries = self.log.entries(message.first, ENTRIES_MAX)
            self._send(sender, Fetched(self.number, message.epoch, previous, entries))

    def append(self, sender: str, message: Append) -> None:
        if not self._promise(message.epoch):
            self._send(sender, Fenced(self.number, self.promised))
            return
        lsn, epoch = message.previous
        if self._installing and lsn == 0:
            self.wipe()  # all there ever was is in this log: half a state is not needed
        # What is below the base was applied, so every primary since has it.
        known = lsn < self.log.base or self.log.has(lsn, epoch)
        if self._installing or not known:
            self._need(sender, message.epoch)
            return
        self.turn += 1
        self.asks = False
        self.log.take(message.entries)
        level = lsn + len(message.entries)
        if self._level[0] != message.epoch or level > self._level[1]:
            self._level = message.epoch, level
        self.hear_commit(message.epoch, message.committed)
        self.trim(message.trim)
        send = self._outbox.send_later if message.lazy else self._outbox.send
        send(sender, Appended(self.number, message.epoch, level, message.since))

    def _need(self, primary: str, epoch: int) -> None:
        self._send(primary, Need(self.number, epoch, list(self.log.lineage), self.log.end))

    def hear_commit(self, epoch: int, lsn: int) -> None:
        """The primary has committed so much; it counts as far as the logs are known to agree."""
        if self._level[0] == epoch:
            self.committed = max(self.committed, min(lsn, self._level[1]))

    def install(self, sender: str, message: Install) -> None:
        if not self._promise(message.epoch):
            self._send(sender, Fenced(self.number, self.promised))
            return
        lsn, epoch = message.at
        if not self._installing and (self.log.base > lsn or self.log.has(lsn, epoch)):
            self._send(sender, Appended(self.number, message.epoch, lsn, message.since))
            return
        this = (message.epoch, message.sending)
        if this < self._install[0]:
            return  # of a try that was given up
        if message.number == 0 and not (self._installing and self._install[0] == this):
            self.wipe()
            self._installing = True
            self._save()
            self._install = (this, 0)
        number = message.number
        if self._install[0] != this or number > self._install[1]:
            # A piece of another try, or the first ones were lost in a restart.
            number = BEGIN_AGAIN
        elif number == self._install[1]:
            self._install = (this, number + 1)
            for key, value in message.rows:
                self._overlay.put_record(key, value)
            if message.last or self.mutant.install_whole_early:
                self._installing = False
                self.log.restart(lsn, epoch)
                self.applied = self.committed = lsn
                self._save()
                self._outbox.replaced(self.number)
        self._send(sender, Installed(self.number, message.epoch, lsn, number, message.sending))

    def wipe(self) -> None:
        """Nothing of this partition is kept but the promise."""
        self.turn += 1
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
        """Writes committed entries into the state."""
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
            self._outbox.applied(self.number, lsn, changes)
        self.applied = last
        if self.role is Role.ACTIVE:
            self.trim(self._trim_point())
        self._save()

    def trim(self, last: int) -> None:
        last = min(last, self.applied)
        if last > self.log.base:
            self.log.trim(last)
            self._save()

    # --- a primary ------------------------------------------------------------------------

    @property
    def alone(self) -> bool:
        """Nobody follows: once the log is in the state, that is written at once, without a log."""
        return self.place.sync == (self.node,) and not self.place.learners

    @property
    def serving(self) -> bool:
        """Whether it may take proposals: it leads, and enough others follow."""
        return self.role is Role.ACTIVE and len(self.place.sync) >= self.min_sync

    def propose(self, changes: Changes, bodies: list[tuple[bytes, bytes | None]]) -> int:
        """A new entry; returns its lsn. It is committed when `committed` has reached that."""
        assert self.serving
        if self.alone and self.applied == self.log.end:  # or an older entry would come after it
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

    def sealed(self, sender: str, message: Sealed) -> None:
        if self.role is Role.SEALING and message.epoch == self.place.epoch:
            self._sealed.setdefault(sender, (message.lineage, message.end))
            self._all_sealed()

    def fetched(self, sender: str, message: Fetched) -> None:
        if self.role is not Role.FETCHING or message.epoch != self.place.epoch:
            return
        if sender == self._source and self.log.has(*message.previous):
            self.turn += 1
            self.log.take(message.entries)
            self._fetch_or_copy()

    def appended(self, sender: str, message: Appended) -> None:
        follower = self._follower(sender, message.epoch)
        if follower is None or message.since != follower.since:
            return  # it may have forgotten since what it has said then
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
        sending = follower.sending if follower is not None else None
        if follower is None or sending is None or message.sending != sending.count:
            return
        if message.number == BEGIN_AGAIN and sending.number:
            follower.sending = None
            self._send_state(sender)
        elif message.number == sending.number and not sending.last:
            sending.advance()
            self._send_piece(sender)
        elif message.number == sending.number:
            follower.has(message.lsn)
            self._ship(sender, even_empty=True)
            self._progress(sender)

    def fenced(self, sender: str, message: Fenced) -> None:
        """Somebody promised a newer epoch: whatever it is, this is not the primary any more."""
        if message.epoch > self.place.epoch and self.role is not Role.IDLE:
            self._step_down()

    def want_grow(self, learner: str) -> bool:
        """Whether a learner may be taken into the sync set now: it is pending, and level."""
        if self.role is not Role.ACTIVE:
            return False
        if self.mutant.grow_unlevel:
            return True
        follower = self._follows.get(learner)
        match = follower.match if follower is not None else None
        if follower is None or match is None or not self._outbox.alive(learner):
            return False
        if follower.lazy:
            self._ship(learner, even_empty=True)  # its answer is waited for now
        if self.log.end - match <= ENTRIES_MAX:
            self.pending.add(learner)
        return match >= self.log.end

    def wait_only_for(self, learner: str) -> None:
        """No wish of this node is under way: whoever else is pending was not taken in."""
        self._wanted = learner
        if self.pending - {learner}:
            self.pending &= {learner}
            self._commit()

    def lag(self) -> dict[str, int]:
        """How many entries each follower is behind; not what is just on its way to it."""
        lags = ((name, each.lag(self.log.end, ENTRIES_MAX)) for name, each in self._follows.items())
        return {name: lag for name, lag in lags if lag}

    @property
    def installing_others(self) -> int:
        return sum(each.sending is not None for each in self._follows.values())

    # --- inside ---------------------------------------------------------------------------

    @property
    def followers(self) -> list[str]:
        return [*self.place.sync[1:], *self.place.learners]

    @property
    def needed(self) -> list[str]:
        """Whose word an acknowledgement needs, or the answer to a pop (``confirmation``)."""
        return [*self.place.sync[1:], *(n for n in self.pending if n not in self.place.sync)]

    def _follower(self, sender: str, epoch: int) -> Follower | None:
        """Who says something to this node as its primary, if it is."""
        leads = self.role in (Role.COPYING, Role.ACTIVE) and epoch == self.place.epoch
        return self._follows.get(sender) if leads else None

    def say_again(self) -> None:
        """Whatever this node waits for is asked for again: messages get lost."""
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
        """Only to who got no further since the last time; the commit is news, too."""
        follower = self._follows[name]
        late, match = follower.is_late(self.log.end), follower.match
        if follower.sending is not None:
            if self._outbox.alive(name):
                self._send_piece(name)
            else:
                follower.sending = None  # or the log would grow for ever
        elif late and (follower.under_way or not self._is_lazy(name)):
            follower.next = self.log.end + 1 if match is None else match + 1
            self._ship(name, even_empty=True)

    def _is_lazy(self, name: str) -> bool:
        """Learners are not waited for: they get what has gathered, with the pings (`feed`). But
        every node waits to hear of a new queue."""
        learns = name in self.place.learners and name not in self.pending
        return learns and name != self._wanted and self.number != self._catalogue

    def _has_lot(self, name: str) -> bool:
        """Whether more has gathered for a learner than goes into a message."""
        follower = self._follows[name]
        return not follower.under_way and self.log.end - follower.level >= ENTRIES_MAX

    def feed(self) -> None:
        """There is a ping for everyone: what has gathered for learners goes with it, if it was
        there at the last one. Most messages are gone by then, and need not be copied."""
        for learner in self.place.learners if self.role is Role.ACTIVE else ():
            follower = self._follows[learner]
            ripe, follower.ripe = follower.ripe, self.log.end
            if not follower.under_way and ripe > follower.level:
                self._ship(learner, upto=ripe)

    def news(self, name: str) -> int | None:
        """The commit, if a follower that is level is to be told so."""
        follower = self._follows.get(name) if self.role is Role.ACTIVE else None
        tell = follower is not None and follower.is_to_hear(self.committed)
        return self.committed if tell else None

    def _all_sealed(self) -> None:
        if any(member not in self._sealed for member in self.place.sync):
            return
        if self.mutant.cut_to_commit:
            self.log.cut(self.committed + 1)
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
        """The log is the one to keep: every member is brought level with it."""
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
        """Commits what everyone needed has. Its own copy is durable when answers go out."""
        if len(self.place.sync) < self.min_sync:
            return
        levels = [each.level if each else 0 for each in map(self._follows.get, self.needed)]
        level = min(levels, default=self.log.end)
        level = self.log.end if self.mutant.early_ack else level
        if level > self.committed:
            self.committed = level
            if self.number == self._catalogue:  # every node waits to hear of a new queue
                for follower in self.followers:
                    self._ship(follower, even_empty=True)

    def _trim_point(self) -> int:
        """What every follower has; who is far behind is sent the state instead."""
        follows = self._follows.values()
        level = min([each.level for each in follows], default=self.applied)
        level = max(level, self.applied - KEEP_MAX)
        return min([level, *(each.sending.at[0] for each in follows if each.sending is not None)])

    def _ship(self, name: str, *, even_empty: bool = False, upto: int = 0) -> None:
        follower = self._follows[name]
        first = follower.next
        if first is None or follower.sending is not None:
            return  # it has not said yet what it holds, or is sent all of it
        if first <= self.log.base:
            self._send_state(name)
            return
        upto = upto or self.log.end
        entries = self.log.entries(first, min(ENTRIES_MAX, upto - first + 1))
        if entries or even_empty:
            before = (first - 1, self.log.epoch_at(first - 1))
            follower.next = first + len(entries)
            follower.told = self.committed, 0
            # What does not bring it to the end is answered at once: there is more to come.
            last = follower.next > upto and 0 < len(entries) < ENTRIES_MAX
            follower.lazy, follower.still = last and self._is_lazy(name), 0
            about = (self.committed, self._trim_point(), follower.since, follower.lazy)
            self._send(name, Append(self.number, self.place.epoch, before, entries, *about))

    def _send_state(self, learner: str) -> None:
        """From the state as it is in the store, which is what was applied when it was written."""
        follower = self._follows[learner]
        if follower.sending is not None or learner not in self.place.learners:
            return
        self._sent_count += 1
        about = (self._overlay, self.number, self._catalogue, self.log)
        follower.sending = Sending.begin(*about, self._sent_count)
        self._send_piece(learner)

    def _send_piece(self, learner: str) -> None:
        follower = self._follows[learner]
        sending = follower.sending
        if sending is not None and self._outbox.may_install(sending.size):  # or later
            self._send(learner, sending.message(self.number, self.place.epoch, follower.since))

    def _send(self, to: str, message: AnyMessage) -> None:
        self._outbox.send(to, message)
