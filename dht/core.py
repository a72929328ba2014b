"""The cluster core of one node: the register, the replicas, who is alive. Pure.

Driven like the queue engine, round by round: ``begin(now)``, any number of ``receive`` and
``propose``, ``end()`` for the changes to be written (synced), and only then ``take_sends()``. So
nothing is said before what it rests on is durable, and that rule stands in one place, the driver.

A silent peer is only a *suspicion*: it makes this node wish for a view without that peer, and the
register decides. No safety rule looks at the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from weft.persistence import layout
from weft.persistence.overlay import Overlay
from weft.persistence.store import Change, Reader

from . import view as views
from .confirmation import Confirmations
from .log import Changes
from .messages import (
    Accept,
    Accepted,
    Announce,
    AnyMessage,
    Append,
    Appended,
    Commits,
    Confirm,
    Confirmed,
    Fenced,
    Fetch,
    Fetched,
    Install,
    Installed,
    Need,
    PartitionMessage,
    Ping,
    Prepare,
    Promise,
    Reject,
    Seal,
    Sealed,
    ViewMessage,
)
from .mutant import Mutant
from .pending import Pending
from .planner import Size
from .register import Proposer, Vote, Voter
from .replica import Replica
from .role import Role
from .steward import Steward
from .view import NOTHING, Member, Place, View


class Pace(NamedTuple):
    """How often things are said, in microseconds. Safety does not depend on any of it."""

    ping: int = 200_000
    suspect: int = 1_000_000
    again: int = 100_000
    backoff: int = 50_000
    #: How long a node may be silent before others hold its data in its stead.
    grace: int = 600_000_000


#: Ticks (`again`) between two looks at what a follower has and was never told to be committed.
_ASK_TICKS: Final = 10
#: States that are handed over leave room for the daily work: so much between two ticks (`again`).
INSTALL_BYTES_PER_TICK: Final = 8 << 20

PACE: Final = Pace()
SIZE: Final = Size()

_encode = msgspec.msgpack.Encoder().encode
encode_view = _encode
decode_view = msgspec.msgpack.Decoder(View).decode
_decode_vote = msgspec.msgpack.Decoder(Vote).decode
_decode_int = msgspec.msgpack.Decoder(int).decode

_VIEW, _VOTE, _BOOT = layout.node("view"), layout.node("vote"), layout.node("boot")


class Core:
    def __init__(
        self,
        node: str,
        store: Reader,
        *,
        partitions: int,
        pace: Pace = PACE,
        size: Size = SIZE,
        entropy: Callable[[int], int],
    ) -> None:
        self.node = node
        self.catalogue = partitions
        self._overlay = Overlay(store)
        #: The store as this node's own proposals have made it, committed or not.
        self.pending = Pending(store, partitions)
        self.pace = pace
        self.size = size
        self._entropy = entropy  # a random number below its argument
        self.mutant = Mutant()
        self.now = 0
        self.view = NOTHING
        self.boot = 0
        self.voter = Voter(Vote(), self._save_vote)
        self.proposer = Proposer(node, 0)
        self.replicas: dict[int, Replica] = {}
        self._busy: set[int] = set()  # replicas that may have something to say again
        self._unapplied: set[int] = set()  # replicas with committed entries that are not applied
        self._steward = Steward(self)
        self._confirmations = Confirmations(self)
        #: When a node was last heard; one that never was, since it was first looked for.
        self.heard: dict[str, int] = {}
        self._awaited: dict[str, int] = {}  # the latter alone
        #: Whether this node's disk is at its reserve, and whose else is.
        self.full = False
        self.full_peers: set[str] = set()
        self._budget = 0
        self._suspected: dict[str, int] = {}
        self._sends: list[tuple[str, AnyMessage]] = []
        #: What goes with the next ping: (node, partition) -> an answer that nobody waits for.
        self._later: dict[tuple[str, int], Appended] = {}
        self._ping_at = self._again_at = self._try_at = self._ask_at = 0
        self._try_until = 0
        #: partition -> what was committed of it at the last look, where there were entries after.
        self._uncommitted: dict[int, int] = {}
        #: Partitions whose role, place or commit may have changed.
        self.stirred: set[int] = set()
        #: Catalogue records that were applied, and partitions whose state was replaced.
        self.queues_changed: list[tuple[bytes, bytes | None]] = []
        self.states_replaced: list[int] = []

    # --- start ----------------------------------------------------------------------------

    def found(self, member: Member, learners: int = 1) -> None:
        """The first node of a new cluster. Called once, on an empty store, before `recover`."""
        first = views.found(self.node, member, self.catalogue, learners)
        self._save_vote(Vote((0, 0, self.node), (0, 0, self.node), first))
        self._overlay.put(_VIEW, _encode(first))

    @property
    def founded(self) -> bool:
        """Whether this store is in a cluster."""
        return self._overlay.read(_VIEW) is not None

    def recover(self, now: int) -> None:
        """Everything from the store. A fresh process leads nothing until its epoch was raised."""
        self.now = now
        boot = self._overlay.read(_BOOT)
        self.boot = (_decode_int(boot) if boot is not None else 0) + 1
        self._overlay.put(_BOOT, _encode(self.boot))
        vote = self._overlay.read(_VOTE)
        self.voter = Voter(_decode_vote(vote) if vote is not None else Vote(), self._save_vote)
        if self.mutant.reused_ballot:
            self.proposer = Proposer(self.node, 0)
        else:
            # Above what this node itself has promised: its own first try is not refused by itself.
            self.proposer = Proposer(self.node, self.boot, self.voter.vote.promised[0])
        view = self._overlay.read(_VIEW)
        if view is not None:
            # Not `learn`: what this node led before it stopped, it does not lead now.
            self.view = decode_view(view)
            for number, place in enumerate(self.view.places):
                replica = self._replica(number)
                replica.place, replica.min_sync = place, self.view.min_sync
                if replica.asks:
                    self._busy.add(number)
            if self.node in self.view.members:
                self.proposer.wish(views.restart(self.node))

    def _replica(self, number: int) -> Replica:
        replica = self.replicas.get(number)
        if replica is None:
            replica = Replica(number, self.node, self._overlay, self.catalogue, self)
            replica.mutant = self.mutant
            self.replicas[number] = replica
        return replica

    # --- a round --------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        assert now >= self.now, "time goes forward"
        self.now = now

    def receive(self, sender: str, message: ViewMessage | PartitionMessage) -> None:
        """A message of a peer. Whoever was removed from the view is not heard."""
        known = sender in self.view.members or not self.view.members
        if not known and not isinstance(message, (Announce, Ping)):
            return
        self.heard[sender] = self.now
        match message:
            case Ping():
                (self.full_peers.add if message.full else self.full_peers.discard)(sender)
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
            case Commits():
                for number, epoch, lsn in message.commits:
                    replica = self.replicas.get(number)
                    if replica is not None:
                        replica.hear_commit(epoch, lsn)
                        self._note_commit(replica)
            case Confirm():
                self._confirmations.asked(sender, message)
            case Confirmed():
                self._confirmations.answered(sender, message)
            case _:
                self._partition(sender, message)

    def _partition(self, sender: str, message: PartitionMessage) -> None:
        if not 0 <= message.partition <= self.catalogue:
            return
        replica = self._replica(message.partition)
        place = replica.place
        late = isinstance(message, Append | Install) and message.epoch <= place.epoch
        if late and not place.holds(self.node):
            return  # for a learner that is none any more
        if isinstance(message, Append | Install) and message.since > self.view.version:
            # By a view on its way to us we may have to forget what we would say that we have.
            self._sends.append((sender, Ping(self.view.version)))
            return
        self._busy.add(message.partition)
        self.stirred.add(message.partition)
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
            case Install():
                replica.install(sender, message)
            case Installed():
                replica.installed(sender, message)
            case Fenced():
                replica.fenced(sender, message)
        self._note_commit(replica)

    def learn(self, view: View) -> None:
        """A chosen view. Older ones are old news."""
        if view.version <= self.view.version:
            return
        self.view = view
        self._overlay.put(_VIEW, _encode(view))
        if self.node not in view.members:
            self.proposer.forget()
        for number, place in enumerate(view.places):
            replica = self._replica(number)
            replica.learn(place, view.min_sync, view.version)
            self._note_commit(replica)  # a set of one needs nobody's word
            self._busy.add(number)
            self.stirred.add(number)
            # Who was promised a newer epoch may have been given all this by its primary.
            old = place.epoch >= replica.promised
            if old and not place.holds(self.node) and not replica.empty:
                replica.wipe()
            if replica.role is Role.IDLE:
                self.pending.drop(number)

    def serving(self, number: int) -> bool:
        """Whether this node leads a partition, and its state is all there."""
        replica = self.replicas.get(number)
        return replica is not None and replica.serving

    @property
    def all_settled(self) -> bool:
        """Whether whatever is known to be committed is in the store's state."""
        return not self._unapplied

    def settled(self, number: int) -> bool:
        """Whether everything in a partition's log is in the store's state."""
        replica = self.replicas[number]
        return replica.applied == replica.log.end

    def propose(self, number: int, changes: list[Change]) -> int:
        """Changes of one partition's state as one entry; the lsn that `committed` must reach."""
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        bodies: list[tuple[bytes, bytes | None]] = []
        for key, value in changes:
            if value is None:
                deletes.append(key)
            elif key[:1] == layout.BODY:
                bodies.append((key, value))
            else:
                puts.append((key, value))
        replica = self.replicas[number]
        made = Changes(puts, deletes, [key for key, _ in bodies])
        lsn = replica.propose(made, bodies)
        if lsn > replica.committed:
            self.pending.add(number, lsn, made)
        self._note_commit(replica)
        return lsn

    def committed(self, number: int) -> int:
        return self.replicas[number].committed

    def confirm(self, number: int) -> int:
        """Asks the others whether this node still leads; the ticket `confirmed` must reach."""
        return self._confirmations.ask(number)

    def confirmed(self, number: int) -> int:
        return self._confirmations.level(number)

    def wish(self, change: views.Change) -> None:
        """Asks for a change of the view."""
        self.proposer.wish(change)

    def end(self, *, hurry: bool = False) -> list[Change]:
        """The round ends: what is due is said, and all changes are given out to be written.

        Committed entries go into the state with a write that is made anyway, or after a while, or
        at once when somebody waits for it (`hurry`).
        """
        quiet = self.now < self._ping_at and self.now < self._again_at and self.proposer.idle
        if quiet and not (hurry or self._sends or self._overlay.dirty):
            return []
        ticked = self._tick()
        self._drive_proposer()
        self._loop_back()
        if hurry or ticked or self._overlay.dirty:
            self._apply()
        return self._overlay.take()

    def _apply(self) -> None:
        for number in list(self._unapplied):
            replica = self.replicas[number]
            replica.apply()
            if replica.applied >= replica.committed:
                self._unapplied.discard(number)

    def _note_commit(self, replica: Replica) -> None:
        if replica.committed > replica.applied:
            self._unapplied.add(replica.number)

    @property
    def ping_at(self) -> int:
        """When a message goes to everyone the next time."""
        return self._ping_at

    def next_due(self) -> int:
        """When the core next has something to say by itself."""
        due = min(self._ping_at, self._again_at)
        if not self.proposer.idle:
            due = min(due, self._try_until if self.proposer.trying else self._try_at)
        return due

    def take_sends(self) -> list[tuple[str, AnyMessage]]:
        self._confirmations.send()
        sends, self._sends = self._sends, []
        return sends

    # --- inside ---------------------------------------------------------------------------

    def _loop_back(self) -> None:
        """What this node says to itself is heard in the same round: it is as durable."""
        while True:
            own = [message for to, message in self._sends if to == self.node]
            if not own:
                return
            self._sends = [each for each in self._sends if each[0] != self.node]
            for message in own:
                self.receive(self.node, message)  # type: ignore[arg-type]
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
            self._try_at = self.now + self._entropy(2 * self.pace.backoff)
        if proposer.idle or not self.view.members or self.now < self._try_at:
            return
        if not proposer.trying or self.now >= self._try_until:
            self._try_until = self.now + self.pace.suspect + self._entropy(self.pace.backoff)
            proposer.start(self.view)
            self._sends.extend(proposer.sends)
            proposer.sends.clear()

    def _tick(self) -> bool:
        """Whether it was time to say things again."""
        if self.now >= self._ping_at:
            self._ping_at = self.now + self.pace.ping
            ping = Ping(self.view.version, self.full)
            self._sends.extend((node, ping) for node in self.view.members if node != self.node)
            self._send_with_pings()
            self._suspect()
        if self.now < self._again_at:
            return False
        self._again_at = self.now + self.pace.again
        self._budget = INSTALL_BYTES_PER_TICK
        if self.now >= self._ask_at:
            self._ask_at = self.now + _ASK_TICKS * self.pace.again
            self._ask_for_commits()
        for number in list(self._busy):
            replica = self.replicas[number]
            if replica.role is Role.IDLE and not replica.asks:
                self._busy.discard(number)
            else:
                replica.say_again()
                self._note_commit(replica)
        self._confirmations.say_again()
        self._steward.tend()
        return True

    def _ask_for_commits(self) -> None:
        """A follower behind a cut may have missed the word: entries that stay uncommitted for long
        are asked about."""
        waiting: dict[int, int] = {}
        for number, replica in self.replicas.items():
            if replica.role is Role.IDLE and replica.log.end > replica.committed:
                waiting[number] = replica.committed
                if self._uncommitted.get(number) == replica.committed:
                    replica.asks = True
                    self._busy.add(number)
        self._uncommitted = waiting

    def _send_with_pings(self) -> None:
        """What nobody waits for goes when a message for everyone goes anyway: it is one on the
        wire, and one for the receiver to wake up for, whatever is in it."""
        later, self._later = self._later, {}
        self._sends.extend((node, answer) for (node, _), answer in later.items())
        for number in self._busy:
            self.replicas[number].feed()
        self._tell_commits()

    def _tell_commits(self) -> None:
        """One message for each node, and no answer: what is lost is said with the next entries."""
        news: dict[str, list[tuple[int, int, int]]] = {}
        for number in self._busy:
            replica = self.replicas[number]
            if replica.role is Role.ACTIVE:
                for follower in replica.followers:
                    if (lsn := replica.news(follower)) is not None:
                        news.setdefault(follower, []).append((number, replica.place.epoch, lsn))
        for node, commits in news.items():
            self._sends.append((node, Commits(commits)))

    def alive(self, node: str) -> bool:
        """Whether it was heard lately; who has said that it stops is gone already."""
        if node == self.node:
            return True
        member = self.view.members.get(node)
        stopped = member is not None and member.state == "stopped"
        return not stopped and self.now - self.heard.get(node, 0) < self.pace.suspect

    def met(self, node: str) -> bool:
        """Whether it was heard lately indeed. Who was not heard yet is given some time before it is
        suspected; that is no reason to leave anything to it."""
        return self.alive(node) and self.heard.get(node) != self._awaited.get(node)

    def _suspect(self) -> None:
        for node in self.view.members:
            if node not in self.heard:
                self.heard[node] = self._awaited[node] = self.now
            if self.alive(node) or self.now < self._suspected.get(node, 0):
                continue
            epochs = {
                number: place.epoch
                for number, place in enumerate(self.view.places)
                if self.node in place.sync and node in place.sync
            }
            if epochs:
                self._suspected[node] = self.now + self.pace.suspect
                change = views.suspect(self.node, node, epochs)
                self.proposer.wish(_unclean(change) if self.mutant.unclean_election else change)

    def _save_vote(self, vote: Vote) -> None:
        if self.mutant.forgetful_voter and vote.promised[0]:
            return
        self._overlay.put(_VOTE, _encode(vote))

    # --- what replicas have to say (``replica.Outbox``) -------------------------------------

    def send(self, to: str, message: AnyMessage) -> None:
        self._sends.append((to, message))

    def send_later(self, to: str, message: Appended) -> None:
        self._later[to, message.partition] = message

    def may_install(self, size: int) -> bool:
        if self._budget <= 0:
            return False
        self._budget -= size
        return True

    def applied(self, partition: int, lsn: int, changes: Changes) -> None:
        self.pending.settle(partition, lsn, changes)
        if partition == self.catalogue:
            self.queues_changed += changes.puts
            self.queues_changed += [(key, None) for key in changes.deletes]

    def replaced(self, partition: int) -> None:
        self.states_replaced.append(partition)


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
