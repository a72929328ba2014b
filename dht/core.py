"""The cluster core of one node: the register, the replicas, the failure detector. Pure.

The driver runs the core round by round, like the queue engine: ``begin(now)``, any number of
``receive`` and ``propose``, ``end()`` for the changes to write (synced), and only then
``take_sends()``. So no message leaves before the state behind the message is durable, and one
place, the driver, enforces the rule.

A silent peer is only a *suspicion*: this node proposes a view without the peer, and the register
decides. No safety rule reads the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from weft.persistence import layout
from weft.persistence.overlay import Overlay
from weft.persistence.store import Change, StoreReader

from . import data_loss_recovery
from . import view as views
from .caspaxos import Proposer, Vote, Voter
from .leadership_check import LeadershipChecks
from .log import Changes
from .messages import (
    Accept,
    Accepted,
    Announce,
    AnyMessage,
    AppendEntries,
    Commits,
    Confirm,
    Confirmed,
    EntriesAppended,
    Install,
    PartitionMessage,
    Ping,
    Prepare,
    Promise,
    ProposalRejected,
    ViewMessage,
)
from .planner import ReplicationFactor, holders
from .planted_bugs import PlantedBugs
from .rebalancer import Handover, Rebalancer
from .replica import Replica
from .role import Role
from .uncommitted import UncommittedState
from .view import NOTHING, Member, ReplicaSet, View, is_stopping


class Timing(NamedTuple):
    """Intervals and timeouts in microseconds. Safety does not depend on any of these."""

    ping: int = 200_000
    suspect: int = 1_000_000
    again: int = 100_000
    backoff: int = 50_000
    #: A node may be silent for so long before other nodes hold its data instead.
    grace: int = 600_000_000


#: Ticks (`again`) between two checks for entries on a follower without a known commit.
_ASK_TICKS: Final = 10
#: Snapshot bytes sent between two ticks (`again`), limited to leave room for regular traffic.
INSTALL_BYTES_PER_TICK: Final = 8 << 20

PACE: Final = Timing()
SIZE: Final = ReplicationFactor()

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
        store: StoreReader,
        *,
        partitions: int,
        pace: Timing = PACE,
        size: ReplicationFactor = SIZE,
        entropy: Callable[[int], int],
    ) -> None:
        self.node = node
        self.catalogue = partitions
        self._overlay = Overlay(store)
        #: The store including this node's own proposals, committed or not.
        self.pending = UncommittedState(store, partitions)
        self.pace = pace
        self.size = size
        self._entropy = entropy  # returns a random number below the argument
        self.planted_bugs = PlantedBugs()
        self.now = 0
        self.view = NOTHING
        self.boot = 0
        self.voter = Voter(Vote(), self._save_vote)
        self.proposer = Proposer(node, 0)
        self.replicas: dict[int, Replica] = {}
        self._busy: set[int] = set()  # replicas that may have messages to resend
        self._unapplied: set[int] = set()  # replicas with committed entries to apply
        self._rebalancer = Rebalancer(self)
        #: The process is about to end (``Rebalancer.retire``) and takes on no new work.
        self.stopping = False
        self._confirmations = LeadershipChecks(self)
        #: Time of a node's last message; for a node without any, time of the first check.
        self.heard: dict[str, int] = {}
        self._awaited: dict[str, int] = {}  # times of first checks only
        #: True if this node's disk is at its reserve; and the peers with a disk at its reserve.
        self.full = False
        self.full_peers: set[str] = set()
        self._budget = 0
        self._suspected: dict[str, int] = {}
        self._sends: list[tuple[str, AnyMessage]] = []
        #: Answers that no node waits for, sent with the next ping: (node, partition) -> answer.
        self._later: dict[tuple[str, int], EntriesAppended] = {}
        #: True if this node may propose another primary for a partition that the node leads. The
        #: call starts the preparation of the move, so the caller repeats the call until true.
        self.ready_to_move: Callable[[int], bool] = lambda number: True
        self._ping_at = self._again_at = self._try_at = self._ask_at = 0
        self._try_until = 0
        #: partition -> commit index at the last check, for partitions with uncommitted entries.
        self._uncommitted: dict[int, int] = {}
        #: Partitions with a possible change of role, replica set or commit index.
        self.changed_partitions: set[int] = set()
        #: Applied catalogue records, and partitions with a replaced state.
        self.queues_changed: list[tuple[bytes, bytes | None]] = []
        self.states_replaced: list[int] = []

    # --- start ----------------------------------------------------------------------------

    def found(self, member: Member, learners: int = 1) -> None:
        """Founds a new cluster with this node. Call once, on an empty store, before `recover`."""
        first = views.found(self.node, member, self.catalogue, learners)
        self._save_vote(Vote((0, 0, self.node), (0, 0, self.node), first))
        self._overlay.put(_VIEW, _encode(first))

    @property
    def founded(self) -> bool:
        """True if the store belongs to a cluster."""
        return self._overlay.read(_VIEW) is not None

    def recover(self, now: int) -> None:
        """Loads all state from the store. A fresh process leads nothing before an epoch change."""
        self.now = now
        boot = self._overlay.read(_BOOT)
        self.boot = (_decode_int(boot) if boot is not None else 0) + 1
        self._overlay.put(_BOOT, _encode(self.boot))
        vote = self._overlay.read(_VOTE)
        self.voter = Voter(_decode_vote(vote) if vote is not None else Vote(), self._save_vote)
        if self.planted_bugs.reused_ballot:
            self.proposer = Proposer(self.node, 0)
        else:
            # Start above this node's own promise, or the node's voter refuses the first ballot.
            self.proposer = Proposer(self.node, self.boot, self.voter.vote.promised[0])
        view = self._overlay.read(_VIEW)
        if view is not None:
            # Not `learn`: a restarted node does not lead its former partitions.
            self.view = decode_view(view)
            for number, place in enumerate(self.view.places):
                replica = self._replica(number)
                replica.place, replica.min_sync = place, self.view.min_sync
                if replica.asks:
                    self._busy.add(number)
            if self.node in self.view.members:
                self.proposer.propose_change(views.restart(self.node))

    def _replica(self, number: int) -> Replica:
        replica = self.replicas.get(number)
        if replica is None:
            replica = Replica(number, self.node, self._overlay, self.catalogue, self)
            replica.planted_bugs = self.planted_bugs
            self.replicas[number] = replica
        return replica

    # --- a round --------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        assert now >= self.now, "time goes forward"
        self.now = now

    def receive(self, sender: str, message: ViewMessage | PartitionMessage) -> None:
        """Handles a peer's message; from a removed or lost node, only Announce and Ping."""
        known = sender in self.view.members or not self.view.members
        known = known and sender not in self.view.lost
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
            case ProposalRejected():
                self.proposer.reject(message)
            case Commits():
                for number, epoch, lsn in message.commits:
                    replica = self.replicas.get(number)
                    if replica is not None:
                        replica.follower.hear_commit(epoch, lsn)
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
        late = isinstance(message, AppendEntries | Install) and message.epoch <= place.epoch
        if late and not place.holds(self.node):
            return  # this node is no longer a learner
        if isinstance(message, AppendEntries | Install) and message.since > self.view.version:
            # A newer view may make this node discard the partition, so acknowledge nothing before
            # learning the newer view.
            self._sends.append((sender, Ping(self.view.version)))
            return
        self._busy.add(message.partition)
        self.changed_partitions.add(message.partition)
        replica.receive(sender, message)
        self._note_commit(replica)

    def learn(self, view: View) -> None:
        """Learns a chosen view; ignores a view that is not newer than the known one."""
        if view.version <= self.view.version:
            return
        self.view = view
        self._overlay.put(_VIEW, _encode(view))
        if self.node not in view.members:
            self.proposer.forget()
        for number, place in enumerate(view.places):
            replica = self._replica(number)
            replica.learn(place, view.min_sync, view.version)
            self._note_commit(replica)  # a set of one commits alone
            self._busy.add(number)
            self.changed_partitions.add(number)
            # After a promise of a newer epoch, the data may come from the newer epoch's primary.
            old = place.epoch >= replica.promised
            keeps = place.holds(self.node) or self.is_lost  # a lost disk may still be useful
            if old and not keeps and not replica.empty:
                replica.wipe()
            if replica.role is Role.IDLE:
                self.pending.drop(number)

    @property
    def is_lost(self) -> bool:
        """True if an operator declared this node's disk lost: the node must never serve again."""
        return self.node in self.view.lost

    def force(self, view: View) -> None:
        """Writes a view decided by this node alone (``data_loss_recovery.forced``)."""
        assert view.voters == (self.node,)
        counter = self.voter.vote.promised[0] + data_loss_recovery.COUNTER_JUMP
        ballot = (counter, self.boot, self.node)
        self.voter = Voter(Vote(ballot, ballot, view), self._save_vote)
        self._save_vote(self.voter.vote)
        self.proposer = Proposer(self.node, self.boot, counter)
        self.learn(view)
        self._sends.extend((node, Announce(view)) for node in view.members if node != self.node)

    def serving(self, number: int) -> bool:
        """True if this node is ACTIVE for the partition, with at least ``min_sync`` members."""
        replica = self.replicas.get(number)
        return replica is not None and replica.serving

    @property
    def all_settled(self) -> bool:
        """True if all entries known to be committed are applied to the store's state."""
        return not self._unapplied

    def settled(self, number: int) -> bool:
        """True if all entries of the partition's log are applied to the store's state."""
        replica = self.replicas[number]
        return replica.applied == replica.log.end

    def propose(self, number: int, changes: list[Change]) -> int:
        """Proposes a partition's changes as one entry; returns the lsn `committed` must reach."""
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
        lsn = replica.primary.propose(made, bodies)
        if lsn > replica.committed:
            self.pending.add(number, lsn, made)
        self._note_commit(replica)
        return lsn

    def committed(self, number: int) -> int:
        return self.replicas[number].committed

    def confirm(self, number: int) -> int:
        """Asks the members to confirm the lead; returns the ticket `confirmed` must reach."""
        return self._confirmations.ask(number)

    def confirmed(self, number: int) -> int:
        return self._confirmations.level(number)

    def propose_change(self, change: views.Change) -> None:
        """Proposes a change of the view to the register."""
        self.proposer.propose_change(change)

    def end(self, *, hurry: bool = False) -> list[Change]:
        """Ends the round: queues due messages, and returns all changes to be written.

        Committed entries are applied with a write that happens anyway, or at the next tick, or at
        once if a caller waits for the result (`hurry`).
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
        """The time of the next ping to all nodes."""
        return self._ping_at

    def next_due(self) -> int:
        """The time at which the core next sends messages by itself."""
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
        """Delivers this node's messages to itself in the same round: one write covers both."""
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
        """Queues pings and resends messages when due; True if the resend tick was due."""
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
                replica.resend()
                self._note_commit(replica)
        self._confirmations.resend()
        self._rebalancer.tend()
        return True

    def _ask_for_commits(self) -> None:
        """Asks primaries about entries that stay uncommitted for long: a follower behind a network
        cut may have missed the commit."""
        waiting: dict[int, int] = {}
        for number, replica in self.replicas.items():
            if replica.role is Role.IDLE and replica.log.end > replica.committed:
                waiting[number] = replica.committed
                if self._uncommitted.get(number) == replica.committed:
                    replica.asks = True
                    self._busy.add(number)
        self._uncommitted = waiting

    def _send_with_pings(self) -> None:
        """Sends deferred messages together with the pings: one message on the wire, and one
        wake-up of the receiver, for all of them."""
        later, self._later = self._later, {}
        self._sends.extend((node, answer) for (node, _), answer in later.items())
        for number in self._busy:
            self.replicas[number].log_sync.send_to_learners()
        self._tell_commits()

    def _tell_commits(self) -> None:
        """Sends commit indexes, one message per node, without an answer. The next entries repeat a
        lost commit index."""
        news: dict[str, list[tuple[int, int, int]]] = {}
        for number in self._busy:
            replica = self.replicas[number]
            if replica.role is Role.ACTIVE:
                for follower in replica.followers:
                    if (lsn := replica.log_sync.due_commit(follower)) is not None:
                        news.setdefault(follower, []).append((number, replica.place.epoch, lsn))
        for node, commits in news.items():
            self._sends.append((node, Commits(commits)))

    def retire(self, *, hurry: bool = False) -> Handover:
        """Hands over before this node stops: see ``Rebalancer.retire``."""
        return self._rebalancer.retire(hurry=hurry)

    def reachable(self, node: str) -> bool:
        """True if a message from the node arrived within the suspicion timeout."""
        return node == self.node or self.now - self.heard.get(node, 0) < self.pace.suspect

    def alive(self, node: str) -> bool:
        """True if the node is reachable and has not announced its stop."""
        return node == self.node or (self.reachable(node) and not is_stopping(self.view, node))

    def met(self, node: str) -> bool:
        """True if the node is alive and has sent a message. A node not heard from yet gets some
        time before suspicion, but this node does not rely on such a node."""
        return self.alive(node) and self.heard.get(node) != self._awaited.get(node)

    def _suspect(self) -> None:
        for node in self.view.members:
            if node not in self.heard:
                self.heard[node] = self._awaited[node] = self.now
            if self.stopping or self.alive(node) or self.now < self._suspected.get(node, 0):
                continue
            live = tuple(n for n in holders(self.view) if n != node and self.met(n))
            epochs = {
                number: place.epoch
                for number, place in enumerate(self.view.places)
                if self._drops(number, place, node, live)
            }
            if epochs:
                self._suspected[node] = self.now + self.pace.suspect
                change = views.suspect(self.node, node, epochs, live)
                self.proposer.propose_change(
                    _unclean(change) if self.planted_bugs.unclean_election else change
                )

    def _drops(self, number: int, place: ReplicaSet, missing: str, live: tuple[str, ...]) -> bool:
        """True if this node proposes a sync set without `missing`, a dead or stopping member.

        No set shrinks below `min_sync` while another way keeps as many copies: an active primary
        replaces the member (``planner.replenish``); a stopping member that still answers may lead,
        and then does the same; and without a live substitute, a smaller set gains nothing.
        """
        if self.node not in place.sync or missing not in place.sync:
            return False
        if place.primary == missing and self.reachable(missing):
            return False  # a stopping primary hands over its leases, and then the lead
        if len(place.sync) > self.view.min_sync:
            return True
        if self.replicas[number].role is Role.ACTIVE or self.reachable(missing):
            return False
        return bool(views.substitutes(self.view, place, live))

    def _save_vote(self, vote: Vote) -> None:
        if self.planted_bugs.forgetful_voter and vote.promised[0]:
            return
        self._overlay.put(_VOTE, _encode(vote))

    # --- calls from replicas (``replica_host.ReplicaHost``) ---------------------------------

    def send(self, to: str, message: AnyMessage) -> None:
        self._sends.append((to, message))

    def send_later(self, to: str, message: EntriesAppended) -> None:
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
