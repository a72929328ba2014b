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

from collections.abc import Iterator
from typing import Final

from weft.persistence import layout
from weft.persistence.overlay import Overlay

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
    Row,
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
#: How often a commit is told to a follower that gets no entries after it.
_TELL_TIMES: Final = 3
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
        self._install: tuple[int, tuple[int, int], int] = (0, (0, 0), 0)  # epoch, at, next piece
        self.promised = 0
        self._recover()
        self._sealed: dict[str, tuple[Lineage, int]] = {}
        self._source = ""  # whom it fetches from
        self._match: dict[str, int] = {}  # node -> its log equals ours up to this lsn
        self._next: dict[str, int] = {}  # node -> the first lsn not sent to it yet
        self._told: dict[str, tuple[int, int]] = {}  # node -> the commit it was told, how often
        self._stuck: dict[str, int] = {}  # node -> its match when something was last said again
        self._sending: dict[str, Sending] = {}
        self.pending: set[str] = set()

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

    def learn(self, place: Place, min_sync: int) -> None:
        """A place for this partition that is not older than the one known."""
        self.min_sync = min_sync
        if place.epoch == self.place.epoch:
            self._learners(place)
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
            self.role = Role.SEALING
            self._sealed = {self.node: (self.log.lineage, self.log.end)}
            self.say_again()
            self._all_sealed()

    def _learners(self, place: Place) -> None:
        """Only the learners differ: the new ones are told what there is."""
        new = [node for node in place.learners if node not in self.place.learners]
        alone = self.alone
        self.place = place
        if alone and not self.alone:
            self._begin_log()
        if self.role is Role.ACTIVE:
            for learner in new:
                self._next[learner] = self.log.end + 1
                self._ship(learner, even_empty=True)
        for node in [*self._next, *self._sending]:
            if not place.holds(node):
                self._forget(node)

    def _begin_log(self) -> None:
        """Somebody follows now. What was written without an entry has a number of its own, so that
        nobody who followed once before takes his state for ours."""
        if self.applied < self.log.end:
            return  # nothing was (``propose``), and what is in the log may have been acknowledged
        self.log.restart(self.log.end + 1, self.place.epoch)
        self.applied = self.committed = self.log.end
        self._save()

    def _forget(self, node: str) -> None:
        for known in (self._next, self._match, self._told, self._stuck, self._sending):
            known.pop(node, None)

    def _step_down(self) -> None:
        if self.role is not Role.IDLE:  # a follower goes on knowing what it was told
            self.role = Role.IDLE
            self.committed = self.applied
        self.pending.clear()
        for node in {*self._next, *self._match, *self._sending}:
            self._forget(node)

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
            self._send(
                sender,
                Fetched(
                    self.number, message.epoch, (before, self.log.epoch_at(before)),
                    self.log.entries(message.first, ENTRIES_MAX),
                ),
            )  # fmt: skip

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
        self._send(sender, Appended(self.number, message.epoch, level))

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
            self._send(sender, Appended(self.number, message.epoch, lsn))
            return
        this = (message.epoch, message.at)
        if message.number == 0 and not (self._installing and self._install[:2] == this):
            self.wipe()
            self._installing = True
            self._save()
            self._install = (*this, 0)
        if self._install[:2] != this or message.number > self._install[2]:
            # A piece of another try, or the first ones were lost in a restart.
            self._send(sender, Installed(self.number, message.epoch, lsn, BEGIN_AGAIN))
            return
        if message.number == self._install[2]:
            self._install = (message.epoch, message.at, message.number + 1)
            for key, value in message.rows:
                self._overlay.put_record(key, value)
            if message.last or self.mutant.install_whole_early:
                self._installing = False
                self.log.restart(lsn, epoch)
                self.applied = self.committed = lsn
                self._save()
                self._outbox.replaced(self.number)
        self._send(sender, Installed(self.number, message.epoch, lsn, message.number))

    def wipe(self) -> None:
        """Nothing of this partition is kept but the promise."""
        self.turn += 1
        self._overlay.drop_all(layout.state_ranges(self.number, self._catalogue))
        self.log.restart(0, 0)
        self.applied = self.committed = 0
        self._installing = False
        self._install = (0, (0, 0), 0)
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
        # Learners are not waited for: they get what has gathered, once in a while. But every node
        # waits to hear of a new queue.
        eager = self.followers if self.number == self._catalogue else self.needed
        for follower in eager:
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
        if self._leads(message.epoch):
            self._sending.pop(sender, None)
            self._match[sender] = max(self._match.get(sender, 0), message.lsn)
            if self._next.get(sender, 0) <= self._match[sender]:
                self._next[sender] = self._match[sender] + 1
            self._progress(sender)

    def need(self, sender: str, message: Need) -> None:
        if not self._leads(message.epoch):
            return
        common = agree(self.log.lineage, self.log.end, message.lineage, message.end)
        if common is None or common < self.log.base:
            if sender in self.place.learners:
                self._send_state(sender)
            return
        self._next[sender] = max(common, self._match.get(sender, 0)) + 1
        self._ship(sender, even_empty=True)

    def installed(self, sender: str, message: Installed) -> None:
        sending = self._sending.get(sender)
        if not self._leads(message.epoch) or sending is None:
            return
        if message.lsn == sending.at[0] and message.number == BEGIN_AGAIN and sending.number:
            del self._sending[sender]
            self._send_state(sender)
            return
        if (message.lsn, message.number) != (sending.at[0], sending.number):
            return
        if not sending.last:
            sending.advance()
            self._send_piece(sender)
            return
        del self._sending[sender]
        self._match[sender] = message.lsn
        self._next[sender] = message.lsn + 1
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
        match = self._match.get(learner)
        if match is None or not self._outbox.alive(learner):
            return False
        if self.log.end - match <= ENTRIES_MAX:
            self.pending.add(learner)
        return match >= self.log.end

    def wait_only_for(self, learner: str) -> None:
        """No wish of this node is under way: whoever else is pending was not taken in."""
        if self.pending - {learner}:
            self.pending &= {learner}
            self._commit()

    def lag(self) -> dict[str, int]:
        """How many entries each follower is behind; not what is just on its way to it."""
        behind = {node: self.log.end - self._match.get(node, 0) for node in self.followers}
        return {
            node: lag for node, lag in behind.items()
            if lag > (ENTRIES_MAX if node in self._match else 0)
        }  # fmt: skip

    @property
    def installing_others(self) -> int:
        return len(self._sending)

    # --- inside ---------------------------------------------------------------------------

    @property
    def followers(self) -> list[str]:
        return [*self.place.sync[1:], *self.place.learners]

    @property
    def needed(self) -> list[str]:
        """Whose word an acknowledgement needs, or the answer to a pop (``confirmation``)."""
        return [*self.place.sync[1:], *(n for n in self.pending if n not in self.place.sync)]

    def _leads(self, epoch: int) -> bool:
        return self.role in (Role.COPYING, Role.ACTIVE) and epoch == self.place.epoch

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

    def _say_again_to(self, follower: str) -> None:
        """Only to who got no further since the last time; the commit is news, too."""
        match = self._match.get(follower)
        before = self._stuck.get(follower, -2)
        self._stuck[follower] = -1 if match is None else match
        if follower in self._sending:
            if self._outbox.alive(follower):
                self._send_piece(follower)
            else:
                del self._sending[follower]  # or the log would grow for ever
        elif match is None or (match < self.log.end and match == before):
            self._next[follower] = self.log.end + 1 if match is None else match + 1
            self._ship(follower, even_empty=True)
        elif follower in self.place.learners and match == self._next.get(follower, 0) - 1:
            self._ship(follower)  # what has gathered for it; nothing is under way

    def news(self, follower: str) -> int | None:
        """The commit, if a follower that is level was not told so, or only once: it is not
        answered, and may have been lost."""
        told, times = self._told.get(follower, (-1, 0))
        if self.role is not Role.ACTIVE or (told >= self.committed and times >= _TELL_TIMES):
            return None
        if self._match.get(follower, -1) < self.committed:
            return None  # it hears of it with the entries
        self._told[follower] = self.committed, times + 1 if told == self.committed else 1
        return self.committed

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
            return
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
                self._next[member] = max(common, self.log.base) + 1
                self._ship(member, even_empty=True)
        self._progress("")

    def _progress(self, follower: str) -> None:
        if self.role is Role.COPYING:
            members = self.place.sync[1:]
            if all(self._match.get(member, -1) >= self.log.end for member in members):
                self.role = Role.ACTIVE
                for learner in self.place.learners:
                    self._next[learner] = self.log.end + 1
                    self._ship(learner, even_empty=True)
        if self.role is Role.ACTIVE:
            self._commit()
        if follower and self._next.get(follower, self.log.end + 1) <= self.log.end:
            self._ship(follower)

    def _commit(self) -> None:
        """Commits what everyone needed has. Its own copy is durable when answers go out."""
        if len(self.place.sync) < self.min_sync:
            return
        levels = [self._match.get(member, 0) for member in self.needed]
        level = min(levels, default=self.log.end)
        level = self.log.end if self.mutant.early_ack else level
        if level > self.committed:
            self.committed = level
            if self.number == self._catalogue:  # every node waits to hear of a new queue
                for follower in self.followers:
                    self._ship(follower, even_empty=True)

    def _trim_point(self) -> int:
        """What every follower has; who is far behind is sent the state instead."""
        levels = [self._match.get(node, 0) for node in self.followers]
        level = max(min(levels, default=self.applied), self.applied - KEEP_MAX)
        return min([level, *(sending.at[0] for sending in self._sending.values())])

    def _ship(self, follower: str, *, even_empty: bool = False) -> None:
        first = self._next.get(follower)
        if first is None or follower in self._sending:
            return  # it has not said yet what it holds, or is sent all of it
        if first <= self.log.base:
            self._send_state(follower)
            return
        entries = self.log.entries(first, ENTRIES_MAX)
        if entries or even_empty:
            before = (first - 1, self.log.epoch_at(first - 1))
            self._next[follower] = first + len(entries)
            self._told[follower] = self.committed, 0
            trim = self._trim_point()
            self._send(
                follower,
                Append(self.number, self.place.epoch, before, entries, self.committed, trim),
            )

    def _send_state(self, learner: str) -> None:
        """From the state as it is in the store, which is what was applied when it was written."""
        if learner in self._sending or learner not in self.place.learners:
            return
        data = self._overlay.stored(layout.replica(self.number))
        meta = decode_meta(data) if data is not None else Meta()
        if not self.log.base <= meta.applied <= self.log.end:
            return  # what is in the store is older than this log: the next write mends that
        at = (meta.applied, self.log.epoch_at(meta.applied))
        self._sending[learner] = Sending(at, self._rows())
        self._send_piece(learner)

    def _rows(self) -> Iterator[Row]:
        for start, stop in layout.state_ranges(self.number, self._catalogue):
            yield from self._overlay.stored_rows(start, stop)

    def _send_piece(self, learner: str) -> None:
        sending = self._sending[learner]
        if not self._outbox.may_install(sending.size):
            return  # it is sent when others say things again
        self._send(learner, sending.message(self.number, self.place.epoch))

    def _send(self, to: str, message: AnyMessage) -> None:
        self._outbox.send(to, message)
