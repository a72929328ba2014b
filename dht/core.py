"""The cluster core of one node: the register, the replicas, who is alive. Pure.

Driven like the queue engine, round by round: ``begin(now)``, any number of ``receive`` and
``propose``, ``end()`` for the changes to be written (synced), and only then ``take_sends()`` and
``take_outcomes()``. So nothing is said before what it rests on is durable, and that rule stands in
one place, the driver.

A silent peer is only a *suspicion*: it makes this node wish for a view without that peer, and the
register decides. No safety rule looks at the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from weft.persistence import layout
from weft.persistence.overlay import Overlay
from weft.persistence.store import Change, Reader

from . import view as views
from .log import Log
from .messages import (
    Accept,
    Accepted,
    Announce,
    AnyMessage,
    Append,
    Appended,
    Fenced,
    Fetch,
    Fetched,
    Need,
    Ping,
    Prepare,
    Promise,
    Reject,
    Seal,
    Sealed,
)
from .register import Proposer, Vote, Voter
from .replica import Mutant, Replica, Role
from .view import NOTHING, Member, Place, View


class Pace(NamedTuple):
    """How often things are said, in microseconds. Safety does not depend on any of it."""

    ping: int = 200_000
    suspect: int = 1_000_000
    again: int = 100_000
    backoff: int = 50_000


class Size(NamedTuple):
    """How many copies."""

    min_sync: int = 2
    sync: int = 2
    learners: int = 1


class Outcome(NamedTuple):
    """What became of a proposal: its lsn, or None when nobody can say."""

    to: object
    lsn: int | None


PACE = Pace()
SIZE = Size()

_encode = msgspec.msgpack.Encoder().encode
_decode_view = msgspec.msgpack.Decoder(View).decode
_decode_vote = msgspec.msgpack.Decoder(Vote).decode
_decode_int = msgspec.msgpack.Decoder(int).decode

_VIEW, _VOTE, _BOOT = layout.node("view"), layout.node("vote"), layout.node("boot")


class Core:
    def __init__(
        self,
        node: str,
        store: Reader,
        *,
        pace: Pace = PACE,
        size: Size = SIZE,
        entropy: Callable[[int], int],
    ) -> None:
        self.node = node
        self._overlay = Overlay(store)
        self._pace = pace
        self._size = size
        self._entropy = entropy  # a random number below its argument
        self.mutant = Mutant()
        self.now = 0
        self.view = NOTHING
        self.boot = 0
        self.voter = Voter(Vote(), self._save_vote)
        self.proposer = Proposer(node, 0)
        self.replicas: dict[int, Replica] = {}
        self._heard: dict[str, int] = {}
        self._suspected: dict[str, int] = {}
        self._sends: list[tuple[str, AnyMessage]] = []
        self._outcomes: list[Outcome] = []
        self._ping_at = self._again_at = self._try_at = 0
        self._try_until = 0

    # --- start ----------------------------------------------------------------------------

    def found(self, member: Member, partitions: int) -> None:
        """The first node of a new cluster. Called once, on an empty store."""
        first = views.found(self.node, member, partitions)
        self._save_vote(Vote((0, 0, self.node), (0, 0, self.node), first))
        self._overlay.put(_VIEW, _encode(first))

    def recover(self, now: int) -> None:
        """Everything from the store. A fresh process leads nothing until its epoch was raised."""
        self.now = now
        boot = self._overlay.read(_BOOT)
        self.boot = (_decode_int(boot) if boot is not None else 0) + 1
        self._overlay.put(_BOOT, _encode(self.boot))
        vote = self._overlay.read(_VOTE)
        self.voter = Voter(_decode_vote(vote) if vote is not None else Vote(), self._save_vote)
        self.proposer = Proposer(self.node, self.boot)
        view = self._overlay.read(_VIEW)
        if view is not None:
            known = _decode_view(view)
            # Not `learn`: what this node led before it stopped, it does not lead now.
            self.view = known
            for number, place in enumerate(known.places):
                replica = self._replica(number)
                replica.place = place
            if self.node in known.members:
                self.proposer.wish(views.restart(self.node))

    def _replica(self, number: int) -> Replica:
        replica = self.replicas.get(number)
        if replica is None:
            log = Log(number, self._overlay)
            log.recover()
            data = self._overlay.read(layout.partition(number))
            promised = _decode_int(data) if data is not None else 0
            replica = Replica(number, self.node, log, promised, self, self._size.min_sync)
            replica.mutant = self.mutant
            self.replicas[number] = replica
        return replica

    # --- a round --------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        assert now >= self.now, "time goes forward"
        self.now = now

    def receive(self, sender: str, message: AnyMessage) -> None:
        """A message of a peer. Whoever was removed from the view is not heard."""
        known = sender in self.view.members or not self.view.members
        if not known and not isinstance(message, (Announce, Ping)):
            return
        self._heard[sender] = self.now
        match message:
            case Ping():
                if message.version < self.view.version:
                    self._sends.append((sender, Announce(self.view)))
                elif message.version > self.view.version:
                    self._sends.append((sender, Ping(self.view.version)))
            case Announce():
                self.learn(message.view)
            case Prepare():
                self._sends.append((sender, self.voter.prepare(message)))
            case Accept():
                self._sends.append((sender, self.voter.accept(message)))
            case Promise():
                self.proposer.promise(sender, message)
            case Accepted():
                self.proposer.accepted(sender, message)
            case Reject():
                self.proposer.reject(message)
            case _:
                self._partition(sender, message)

    def _partition(
        self,
        sender: str,
        message: Seal | Sealed | Fetch | Fetched | Append | Appended | Need | Fenced,
    ) -> None:
        replica = self._replica(message.partition)
        match message:
            case Seal():
                replica.seal(sender, message)
            case Sealed():
                replica.sealed(sender, message)
            case Fetch():
                replica.fetch(sender, message)
            case Fetched():
                replica.fetched(sender, message)
            case Append():
                replica.append(sender, message)
            case Appended():
                replica.appended(sender, message)
            case Need():
                replica.need(sender, message)
            case Fenced():
                replica.fenced(sender, message)

    def learn(self, view: View) -> None:
        """A chosen view. Older ones are old news."""
        if view.version <= self.view.version:
            return
        self.view = view
        self._overlay.put(_VIEW, _encode(view))
        for number, place in enumerate(view.places):
            self._replica(number).learn(place)

    def propose(self, number: int, data: bytes, to: object) -> bool:
        """Whether this node is the one to ask. The outcome follows when it is known."""
        return self._replica(number).propose(data, to) is not None

    def wish(self, change: views.Change) -> None:
        """Asks for a change of the view."""
        self.proposer.wish(change)

    def end(self) -> list[Change]:
        """The round ends: what is due is said, and all changes are given out to be written."""
        self._tick()
        self._drive_proposer()
        self._loop_back()
        return self._overlay.take()

    def next_due(self) -> int:
        """When the core next has something to say by itself."""
        due = min(self._ping_at, self._again_at)
        if not self.proposer.idle:
            due = min(due, self._try_until if self.proposer.trying else self._try_at)
        return due

    def take_sends(self) -> list[tuple[str, AnyMessage]]:
        sends, self._sends = self._sends, []
        return sends

    def take_outcomes(self) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    # --- inside ---------------------------------------------------------------------------

    def _loop_back(self) -> None:
        """What this node says to itself is heard in the same round: it is as durable."""
        while True:
            own = [message for to, message in self._sends if to == self.node]
            if not own:
                return
            self._sends = [each for each in self._sends if each[0] != self.node]
            for message in own:
                self.receive(self.node, message)
            self._drive_proposer()

    def _drive_proposer(self) -> None:
        proposer = self.proposer
        self._sends.extend(proposer.sends)
        proposer.sends.clear()
        for view in proposer.chosen:
            self.learn(view)
            self._sends.extend((node, Announce(view)) for node in view.members if node != self.node)
        proposer.chosen.clear()
        if proposer.lost:
            proposer.lost = False
            self._try_at = self.now + self._entropy(2 * self._pace.backoff)
        if proposer.idle or not self.view.members or self.now < self._try_at:
            return
        if not proposer.trying or self.now >= self._try_until:
            self._try_until = self.now + self._pace.suspect + self._entropy(self._pace.backoff)
            proposer.start(self.view)
            self._sends.extend(proposer.sends)
            proposer.sends.clear()

    def _tick(self) -> None:
        if self.now >= self._ping_at:
            self._ping_at = self.now + self._pace.ping
            ping = Ping(self.view.version)
            self._sends.extend((node, ping) for node in self.view.members if node != self.node)
            self._suspect()
        if self.now >= self._again_at:
            self._again_at = self.now + self._pace.again
            for replica in self.replicas.values():
                if replica.role is not Role.IDLE:
                    replica.say_again()
                    self._tend(replica)

    def alive(self, node: str) -> bool:
        return node == self.node or self.now - self._heard.get(node, 0) < self._pace.suspect

    def _suspect(self) -> None:
        for node in self.view.members:
            self._heard.setdefault(node, self.now)
            if self.alive(node) or self.now < self._suspected.get(node, 0):
                continue
            epochs = {
                number: place.epoch
                for number, place in enumerate(self.view.places)
                if self.node in place.sync and node in place.sync
            }
            if epochs:
                self._suspected[node] = self.now + self._pace.suspect
                change = views.suspect(self.node, node, epochs)
                self.proposer.wish(_unclean(change) if self.mutant.unclean_election else change)

    def _tend(self, replica: Replica) -> None:
        """A primary sees to it that its partition has enough copies."""
        if replica.role is not Role.ACTIVE or not self.proposer.idle:
            return
        place, number = replica.place, replica.number
        ready = replica.want_grow(self._size.sync, self.alive)
        if ready is not None:
            self.proposer.wish(views.grow(number, place.epoch, ready))
            return
        wanted = self._size.sync + self._size.learners - len(place.sync) - len(place.learners)
        spare = [
            node
            for node, member in sorted(self.view.members.items())
            if member.state == "active" and not place.holds(node) and self.alive(node)
        ]
        if wanted > 0 and spare:
            chosen = spare[number % len(spare)]
            self.proposer.wish(views.learn(number, place.epoch, (*place.learners, chosen)))

    def _save_vote(self, vote: Vote) -> None:
        if self.mutant.forgetful_voter and vote.promised[0]:
            return
        self._overlay.put(_VOTE, _encode(vote))

    # --- what replicas have to say (``replica.Outbox``) -------------------------------------

    def promise(self, partition: int, epoch: int) -> None:
        self._overlay.put(layout.partition(partition), _encode(epoch))

    def send(self, to: str, message: AnyMessage) -> None:
        self._sends.append((to, message))

    def outcome(self, to: object, lsn: int | None) -> None:
        self._outcomes.append(Outcome(to, lsn))


def _unclean(change: views.Change) -> views.Change:
    """The mutant: where there is a learner, it becomes primary."""

    def unclean(view: View) -> View:
        changed = change(view)
        places = tuple(
            Place(new.epoch, (new.learners[0], *new.sync), new.learners[1:])
            if new.epoch != old.epoch and new.learners
            else new
            for old, new in zip(view.places, changed.places, strict=True)
        )
        return view if changed is view else msgspec.structs.replace(changed, places=places)

    return unclean
