"""The cluster core of one node: the view, the replicas, and what a round does. Pure.

The driver runs the core round by round, like the queue engine: ``begin(now)``, any number of
``receive`` and ``propose``, ``end()`` for the changes to write (synced), and only then
``take_sends()``. So no message leaves before the state behind the message is durable, and one
place, the driver, enforces the rule. No safety rule reads the clock.

| module | part |
|---|---|
| ``message_dispatch`` | a handler for each type of message |
| ``view_register`` | the vote of this node, and its proposals of views |
| ``replica`` | the log of one partition, as follower or primary |
| ``failure_detector`` | which nodes are alive, and views without dead ones |
| ``ticker`` | pings, resends and other periodic work |
| ``leadership_check`` | the confirmation that this node still leads, before an answer from a read |
| ``rebalancer`` | the next step towards the planned placement |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from weft.persistence import layout
from weft.persistence.overlay import Overlay
from weft.persistence.store import Change, StoreReader

from . import view as views
from .caspaxos import Proposer, Voter
from .failure_detector import FailureDetector
from .leadership_check import LeadershipChecks
from .log import Changes
from .message_dispatch import HANDLERS
from .messages import (
    Announce,
    AnyMessage,
    EntriesAppended,
    PartitionMessage,
    Ping,
    ViewMessage,
)
from .planner import ReplicationFactor
from .planted_bugs import PlantedBugs
from .rebalancer import Handover, Rebalancer
from .replica import Replica
from .role import Role
from .ticker import Ticker
from .uncommitted import UncommittedState
from .view import NOTHING, Member, View
from .view_register import ViewRegister


class Timing(NamedTuple):
    """Intervals and timeouts in microseconds. Safety does not depend on any of these."""

    ping: int = 200_000
    suspect: int = 1_000_000
    again: int = 100_000
    backoff: int = 50_000
    #: A node may be silent for so long before other nodes hold its data instead.
    grace: int = 600_000_000


PACE: Final = Timing()
SIZE: Final = ReplicationFactor()

_encode = msgspec.msgpack.Encoder().encode
encode_view = _encode
decode_view = msgspec.msgpack.Decoder(View).decode
_decode_int = msgspec.msgpack.Decoder(int).decode

_VIEW, _BOOT = layout.node("view"), layout.node("boot")


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
        self.entropy = entropy  # returns a random number below the argument
        self.planted_bugs = PlantedBugs()
        self.now = 0
        self.view = NOTHING
        self.boot = 0
        self._register = ViewRegister(self, self._overlay)
        self.replicas: dict[int, Replica] = {}
        #: Replicas that may have messages to resend: those that lead followers or ask, and more.
        self.busy: set[int] = set()
        #: Replicas with committed entries to apply, as noted after each message and each resend.
        self._unapplied: set[int] = set()
        self.rebalancer = Rebalancer(self)
        #: The process is about to end (``Rebalancer.retire``) and takes on no new work.
        self.stopping = False
        self.leadership_checks = LeadershipChecks(self)
        self.failure_detector = FailureDetector(self)
        #: Time of a node's last message; for a node without any, time of the first check.
        self.last_seen = self.failure_detector.last_seen
        self._ticker = Ticker(self)
        #: True if this node's disk is at its reserve; and the peers with a disk at its reserve.
        self.full = False
        self.full_peers: set[str] = set()
        self._sends: list[tuple[str, AnyMessage]] = []
        #: True if this node may propose another primary for a partition that the node leads. The
        #: call starts the preparation of the move, so the caller repeats the call until true.
        self.ready_to_move: Callable[[int], bool] = lambda number: True
        #: Partitions with a possible change of role, replica set or commit index.
        self.changed_partitions: set[int] = set()
        #: Applied catalogue records, and partitions with a replaced state.
        self.queues_changed: list[tuple[bytes, bytes | None]] = []
        self.states_replaced: list[int] = []

    # --- start ----------------------------------------------------------------------------

    def found(self, member: Member, learners: int = 1) -> None:
        """Founds a new cluster with this node. Call once, on an empty store, before `recover`."""
        first = views.found(self.node, member, self.catalogue, learners)
        self._register.found(first)
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
        self._register.recover(self.boot)
        view = self._overlay.read(_VIEW)
        if view is not None:
            # Not `learn`: a restarted node does not lead its former partitions.
            self.view = decode_view(view)
            for number, place in enumerate(self.view.places):
                replica = self.replica(number)
                replica.place, replica.min_sync = place, self.view.min_sync
                if replica.asks:
                    self.busy.add(number)
            if self.node in self.view.members:
                self.proposer.propose_change(views.restart(self.node))

    def replica(self, number: int) -> Replica:
        replica = self.replicas.get(number)
        if replica is None:
            replica = Replica(number, self.node, self._overlay, self.catalogue, self)
            replica.planted_bugs = self.planted_bugs
            self.replicas[number] = replica
        return replica

    @property
    def voter(self) -> Voter:
        return self._register.voter

    @property
    def proposer(self) -> Proposer:
        return self._register.proposer

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
        self.last_seen[sender] = self.now
        HANDLERS[type(message)](self, sender, message)

    def learn(self, view: View) -> None:
        """Learns a chosen view; ignores a view that is not newer than the known one."""
        if view.version <= self.view.version:
            return
        self.view = view
        self._overlay.put(_VIEW, _encode(view))
        if self.node not in view.members:
            self.proposer.forget()
        for number, place in enumerate(view.places):
            replica = self.replica(number)
            replica.learn(place, view.min_sync, view.version)
            self.note_commit(replica)  # a set of one commits alone
            self.busy.add(number)
            self.changed_partitions.add(number)
            # After a promise of a newer epoch, the data may come from the newer epoch's primary.
            old = place.epoch >= replica.promised
            keeps = place.holds(self.node) or self.is_lost  # a lost disk may still be useful
            if old and not keeps and not replica.empty:
                replica.wipe()
            if replica.role is Role.IDLE and not replica.reign:
                self.pending.drop(number)  # in a reign the engine keeps its state, too

    @property
    def is_lost(self) -> bool:
        """True if an operator declared this node's disk lost: the node must never serve again."""
        return self.node in self.view.lost

    def force(self, view: View) -> None:
        """Writes a view decided by this node alone (``data_loss_recovery.forced``)."""
        self._register.force(view)

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
        if lsn > replica.applied:  # also if a set of one has committed it: it is not in the store
            self.pending.add(number, lsn, made)
        self.note_commit(replica)
        return lsn

    def committed(self, number: int) -> int:
        return self.replicas[number].committed

    def confirm(self, number: int) -> int:
        """Asks the members to confirm the lead; returns the ticket `confirmed` must reach."""
        return self.leadership_checks.ask(number)

    def confirmed(self, number: int) -> int:
        return self.leadership_checks.level(number)

    def propose_change(self, change: views.Change) -> None:
        """Proposes a change of the view to the register."""
        self.proposer.propose_change(change)

    def end(self, *, hurry: bool = False) -> list[Change]:
        """Ends the round: queues due messages, and returns all changes to be written.

        Committed entries are applied with a write that happens anyway, or at the next tick, or at
        once if a caller waits for the result (`hurry`).
        """
        ticker = self._ticker
        quiet = self.now < ticker.ping_at and self.now < ticker.again_at
        quiet = quiet and self._register.proposer.idle
        if quiet and not (hurry or self._sends or self._overlay.dirty):
            return []
        ticked = self._ticker.tick()
        self._register.drive()
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

    def note_commit(self, replica: Replica) -> None:
        if replica.committed > replica.applied:
            self._unapplied.add(replica.number)

    @property
    def ping_at(self) -> int:
        """The time of the next ping to all nodes."""
        return self._ticker.ping_at

    def next_due(self) -> int:
        """The time at which the core next sends messages by itself."""
        due = min(self._ticker.ping_at, self._ticker.again_at)
        return due if self._register.proposer.idle else min(due, self._register.due_at)

    def take_sends(self) -> list[tuple[str, AnyMessage]]:
        self.leadership_checks.send()
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
            self._register.drive()

    def retire(self, *, hurry: bool = False) -> Handover:
        """Hands over before this node stops: see ``Rebalancer.retire``."""
        return self.rebalancer.retire(hurry=hurry)

    def reachable(self, node: str) -> bool:
        """True if a message from the node arrived within the suspicion timeout."""
        return self.failure_detector.reachable(node)

    def alive(self, node: str) -> bool:
        """True if the node is reachable and has not announced its stop."""
        return self.failure_detector.alive(node)

    def met(self, node: str) -> bool:
        """True if the node is alive and has sent a message: this node may rely on the node."""
        return self.failure_detector.met(node)

    # --- calls from replicas (``replica_host.ReplicaHost``) ---------------------------------

    def send(self, to: str, message: AnyMessage) -> None:
        self._sends.append((to, message))

    def send_later(self, to: str, message: EntriesAppended) -> None:
        self._ticker.later[to, message.partition] = message

    def may_install(self, size: int) -> bool:
        if self._ticker.install_budget <= 0:
            return False
        self._ticker.install_budget -= size
        return True

    def applied(self, partition: int, lsn: int, changes: Changes) -> None:
        self.pending.settle(partition, lsn, changes)
        if partition == self.catalogue:
            self.queues_changed += changes.puts
            self.queues_changed += [(key, None) for key in changes.deletes]

    def replaced(self, partition: int) -> None:
        self.states_replaced.append(partition)
