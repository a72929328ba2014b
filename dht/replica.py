"""A replica of one partition: follower or primary, fenced by epochs.

The rules, each needed for "nothing acknowledged is ever lost":

- A receiver of SEAL, FETCH or APPEND of an epoch below its promise answers FENCED. Otherwise the
  promise becomes that epoch, in the same synced write as whatever the message changes. Learning a
  view raises it too. A promise never decreases, across crashes too.
- A fresh process leads nothing. A new primary first SEALs all of its sync set, which fences every
  older primary (their acknowledgements need these very members); adopts the log that holds most,
  by (last epoch, end); levels all members with it; and only then is ACTIVE. Nothing is ever cut
  back to a "known commit point".
- An entry is acknowledged when it is durable on *every* member of the sync set and on every
  *pending* one, and the set has at least ``min_sync`` members.
- To grow, a learner is made pending first: its word is needed from that instant on. When it is
  level the view is changed. It stays pending until a newer epoch is learned, because nobody knows
  whether the change was chosen.

Nothing here reads a clock: time only decides when something is said again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from .log import Log, agree
from .messages import (
    AnyMessage,
    Append,
    Appended,
    Fenced,
    Fetch,
    Fetched,
    Lineage,
    Need,
    Seal,
    Sealed,
)
from .view import Place

#: Entries in one message.
ENTRIES_MAX: Final = 64


class Role(Enum):
    IDLE = "idle"
    SEALING = "sealing"
    FETCHING = "fetching"
    COPYING = "copying"
    ACTIVE = "active"


class Outbox(Protocol):
    """Where a replica puts what is to be written, said and told."""

    def promise(self, partition: int, epoch: int) -> None:
        """To be written with the round."""
        ...

    def send(self, to: str, message: AnyMessage) -> None: ...

    def outcome(self, to: object, lsn: int | None) -> None:
        """A proposal is acknowledged, or nobody can say (None)."""
        ...


class Mutant:
    """Bugs that can be switched on, to see that the simulator catches them."""

    #: A lower epoch is obeyed like the promised one.
    no_fence = False
    #: A learner may become primary.
    unclean_election = False
    #: Acknowledged when the primary alone has it.
    early_ack = False
    #: Into the sync set before it is level, and without having been pending.
    grow_unlevel = False
    #: A promise is kept in memory only.
    volatile_promise = False
    #: What a voter promised and accepted is kept in memory only.
    forgetful_voter = False
    #: The driver does not wait for the disk.
    skipped_fsync = False


NO_MUTANT: Final = Mutant()


class Replica:
    def __init__(
        self, number: int, node: str, log: Log, promised: int, outbox: Outbox, min_sync: int
    ) -> None:
        self.number = number
        self.node = node
        self.log = log
        self.promised = promised
        self._outbox = outbox
        self._min_sync = min_sync
        self.mutant = NO_MUTANT
        self.place = Place(0, (node,))
        self.role = Role.IDLE
        #: Durable wherever it must be up to here, as far as this primary knows. A set that has
        #: shrunk below min_sync commits nothing, not even what it inherited.
        self.committed = 0
        self._sealed: dict[str, tuple[Lineage, int]] = {}
        self._source = ""  # whom it fetches from
        self._match: dict[str, int] = {}  # node -> its log equals ours up to this lsn
        self._next: dict[str, int] = {}  # node -> the first lsn not sent to it yet
        self.pending: set[str] = set()
        self._waiting: deque[tuple[int, object]] = deque()

    # --- the view -------------------------------------------------------------------------

    def learn(self, place: Place) -> None:
        """A newer place for this partition."""
        if place.epoch == self.place.epoch:
            self.place = place  # only the learners differ
        if place.epoch <= self.place.epoch:
            return
        self.place = place
        self._step_down()
        if place.holds(self.node):
            self._promise(place.epoch)
        if place.primary == self.node:
            self.role = Role.SEALING
            self._sealed = {self.node: (self.log.lineage, self.log.end)}
            self.say_again()
            self._all_sealed()

    def _step_down(self) -> None:
        self.role = Role.IDLE
        self.committed = 0
        self.pending.clear()
        self._match.clear()
        self._next.clear()
        for _, to in self._waiting:
            self._outbox.outcome(to, None)
        self._waiting.clear()

    def _promise(self, epoch: int) -> bool:
        """Whether the epoch is not below what was promised; then it is promised."""
        if epoch < self.promised:
            return self.mutant.no_fence
        if epoch > self.promised:
            self.promised = epoch
            if not self.mutant.volatile_promise:
                self._outbox.promise(self.number, epoch)
        return True

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
        if before <= self.log.end:
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
        if not self.log.has(lsn, epoch):
            self._send(
                sender, Need(self.number, message.epoch, list(self.log.lineage), self.log.end)
            )
            return
        self.log.take(message.entries)
        self._send(sender, Appended(self.number, message.epoch, lsn + len(message.entries)))

    # --- a primary ------------------------------------------------------------------------

    def propose(self, data: bytes, to: object) -> int | None:
        """The lsn of a new entry, or None when this node cannot take one now."""
        if self.role is not Role.ACTIVE or len(self.place.sync) < self._min_sync:
            return None
        lsn = self.log.append(self.place.epoch, data)
        self._waiting.append((lsn, to))
        for follower in self._followers:
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
            self.log.take(message.entries)
            self._fetch_or_copy()

    def appended(self, sender: str, message: Appended) -> None:
        if self._leads(message.epoch):
            self._match[sender] = max(self._match.get(sender, 0), message.lsn)
            self._progress(sender)

    def need(self, sender: str, message: Need) -> None:
        if self._leads(message.epoch):
            common = agree(self.log.lineage, self.log.end, message.lineage, message.end)
            self._next[sender] = max(common, self._match.get(sender, 0)) + 1
            self._ship(sender)

    def fenced(self, sender: str, message: Fenced) -> None:
        """Somebody promised a newer epoch: whatever it is, this is not the primary any more."""
        if message.epoch > self.place.epoch and self.role is not Role.IDLE:
            self._step_down()

    def want_grow(self, size: int, alive: Callable[[str], bool]) -> str | None:
        """The learner to be taken into the sync set now, once it is pending and level."""
        if self.role is not Role.ACTIVE or len(self.place.sync) >= size:
            return None
        for learner in self.place.learners:
            if self.mutant.grow_unlevel:
                return learner
            if alive(learner) and learner in self._match:
                if self._match[learner] >= self.log.end:
                    self.pending.add(learner)
                    return learner
                if self.log.end - self._match[learner] <= ENTRIES_MAX:
                    self.pending.add(learner)
        return None

    # --- inside ---------------------------------------------------------------------------

    @property
    def _followers(self) -> list[str]:
        return [*self.place.sync[1:], *self.place.learners]

    @property
    def _needed(self) -> set[str]:
        """Whose word an acknowledgement needs."""
        return {*self.place.sync, *self.pending} - {self.node}

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
            for follower in self._followers:
                match = self._match.get(follower)
                if match is None or match < self.log.end:
                    self._next[follower] = self.log.end + 1 if match is None else match + 1
                    self._ship(follower, even_empty=True)

    def _all_sealed(self) -> None:
        if any(member not in self._sealed for member in self.place.sync):
            return
        self._source = max(
            self._sealed, key=lambda node: (_last(self._sealed[node]), node == self.node)
        )
        if self._source == self.node:
            self._copy()
            return
        self.role = Role.FETCHING
        self._fetch_or_copy()

    def _fetch_or_copy(self) -> None:
        lineage, end = self._sealed[self._source]
        common = agree(self.log.lineage, self.log.end, lineage, end)
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
                self._next[member] = common + 1
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
        if follower and self._next.get(follower, 0) <= self.log.end:
            self._ship(follower)

    def _commit(self) -> None:
        """Acknowledges what everyone needed has. Its own copy is durable when answers go out."""
        if len(self.place.sync) < self._min_sync:
            return
        levels = [self._match.get(member, 0) for member in self._needed]
        level = min(levels, default=self.log.end)
        if self.mutant.early_ack:
            level = self.log.end
        self.committed = max(self.committed, level)
        while self._waiting and self._waiting[0][0] <= level:
            lsn, to = self._waiting.popleft()
            self._outbox.outcome(to, lsn)

    def _ship(self, follower: str, *, even_empty: bool = False) -> None:
        first = self._next.get(follower)
        if first is None:
            return  # it has not said yet what it holds
        entries = self.log.entries(first, ENTRIES_MAX)
        if entries or even_empty:
            before = (first - 1, self.log.epoch_at(first - 1))
            self._next[follower] = first + len(entries)
            self._send(follower, Append(self.number, self.place.epoch, before, entries))

    def _send(self, to: str, message: AnyMessage) -> None:
        self._outbox.send(to, message)


def _last(held: tuple[Lineage, int]) -> tuple[int, int]:
    lineage, end = held
    return (lineage[-1][0] if lineage else 0, end)
