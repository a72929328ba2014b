"""The node core joins the queue engine and the cluster core of one node. Pure.

The driver (a node, or a simulator) runs the node core in rounds:

1. ``begin(now)``; then ``handle`` for each client request and ``receive`` for each message of
   another node; then ``end()``, which returns the round's output as one value (``Ready``).
2. The driver persists ``Ready.writes``, then sends ``Ready.sends`` and ``Ready.answers``.

The engine holds the partitions led by this node and changes them at once. The changes of a round
become one log entry per partition. The commit gate (``commit_gate``) holds back an answer until the
entries that the answer rests on are committed. The node core *adopts* a partition when this node
leads the partition and the store holds the partition's whole state, and *abandons* a partition as
soon as another node may have changed the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Final

from weft.dht.core import PACE, SIZE, Core, Timing
from weft.dht.messages import AnyMessage, PeerReply, PeerRequest, QueueMessage, ReadyAnnouncement
from weft.dht.planner import ReplicationFactor
from weft.dht.rebalancer import Handover
from weft.dht.view import Member, View
from weft.persistence.store import Change, StoreReader
from weft.proto import wire
from weft.server.engine.engine import Engine
from weft.server.engine.push import SinglePush
from weft.server.engine.state import Answered

from .backup_waits import BackupWaits
from .catalogue_sync import CatalogueSync
from .commit_gate import CommitGate
from .commit_wait import UNKNOWN
from .lease_handover import LeaseHandover
from .local_verdict import LocalVerdict
from .membership import introduce
from .metadata_list import MetadataLists
from .operation import LIFE_US, Inner, Operation, PeerCaller
from .operations import Operations
from .partition_ownership import PartitionOwnership
from .primary_operations import settle
from .ready import Ready
from .reconciler import Reconciler
from .refusal import not_here
from .remote_pop import RemotePop
from .request_router import ENGINE_ALONE, ClientRequest, RequestRouter

#: Callers inside the cluster.
_INTERNAL: Final = frozenset({Inner, PeerCaller})


class NodeCore:
    def __init__(
        self,
        node: str,
        cluster: str,
        store: StoreReader,
        *,
        partitions: int,
        durability: str = "disk",
        cache_bytes: int = 0,
        entropy: Callable[[], int],
        pace: Timing = PACE,
        size: ReplicationFactor = SIZE,
    ) -> None:
        self.node, self.cluster, self._entropy = node, cluster, entropy
        self.core = Core(
            node, store, partitions=partitions, pace=pace, size=size,
            entropy=lambda below: entropy() % below,
        )  # fmt: skip
        self.local_verdict = LocalVerdict(self.core)
        self.engine = Engine(
            self.core.pending, partitions=partitions, durability=durability,
            cache_bytes=cache_bytes, entropy=entropy,
        )  # fmt: skip
        self._ownership = PartitionOwnership(self.core, self.engine)
        #: Before this time the node core has no work except requests; 0: unknown.
        self._idle_until = 0
        #: The same for all parts but the engine: a round of the engine alone does not change it.
        self._others_idle_until = 0
        self._has_operations = False
        self._operations = Operations(self)
        self._operations_view = self._catalogue_sync_view = 0
        parts = self.core, self.engine, self._ownership
        self._commit_gate = CommitGate(*parts, pace.suspect)
        self._metadata_lists = MetadataLists(*parts, self.send, self._operations.forward)
        self._catalogue_sync = CatalogueSync(*parts, self, self.run_operation, self.not_here)
        self._backup_waits = BackupWaits(*parts, self.not_here)
        self._lease_handover = LeaseHandover(*parts, self.return_lent)
        self._reconciler, self.destinations = Reconciler(self), self.engine.destinations
        self.core.ready_to_move = self._lease_handover.ready
        self.remote_pop = RemotePop(self)
        self._requests = RequestRouter(
            self, self.engine, self._operations, self._metadata_lists, self._catalogue_sync,
            self._backup_waits, self.remote_pop,
        )  # fmt: skip
        self._sends: list[tuple[str, AnyMessage]] = []
        #: This node as a member of the view: addresses and key.
        self.me: Member | None = None
        self._introduced: tuple[Member | None, int] = (None, 0)
        self.now = 0

    # --- the cluster as seen by operations (``cluster_host``) -------------------------------

    @property
    def view(self) -> View:
        return self.core.view

    def alive(self, node: str) -> bool:
        return self.core.alive(node)

    def random(self, below: int) -> int:
        return self._entropy() % below

    def is_unordered(self, queue: str) -> bool:
        return self.engine.ready.is_unordered(queue)

    def probe(self, queue: str) -> wire.ProbeReport | None:
        return self.engine.ready.probe(queue)

    def is_ordered(self, queue: str) -> bool | None:
        return self.engine.ready.is_ordered(queue)

    def outage(self, number: int | None = None) -> str:
        return self.local_verdict.outage(number)

    # --- a round --------------------------------------------------------------------------

    def recover(self, now: int) -> None:
        """Loads all state from the store; called once, before the first round."""
        self.now = now
        self.core.recover(now)
        self._operations.recover(self.core.boot)
        self.engine.begin(now)
        self.engine.load_queues()

    def found(self, member: Member, learners: int = 1) -> None:
        """Founds a new cluster with this node as the first member; called before `recover`."""
        self.core.found(member, learners)

    def begin(self, now: int) -> None:
        self.now = now
        self._idle_until = self._others_idle_until = 0
        self.core.begin(now)
        self.engine.begin(now)
        self._operations.begin(now)
        self._commit_gate.confirm_again()

    def handle(
        self, request: wire.AnyRequest, payload: Sequence[bytes], to: object, *, plain: bool
    ) -> None:
        """Handles a client request. A plain client knows one node; a smart client, the view."""
        if self._ownership.single and type(request) in ENGINE_ALONE:
            self.engine.handle(request, payload, to)
        else:
            self._requests.handle(request, payload, to, plain=plain)

    def direct(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None:
        """Answers a request on this node alone, if possible."""
        self._requests.direct(request, payload, to)

    def not_here(self, number: int) -> wire.Failure:
        return not_here(self, number)

    def receive(self, sender: str, message: AnyMessage) -> None:
        """Receives a message from another node."""
        if not isinstance(message, QueueMessage):
            self.core.receive(sender, message)
            return
        if sender in self.view.members:
            self.core.last_seen[sender] = self.now
            self._requests.receive(sender, message)

    def cancel(self, to: object) -> None:
        """Ends the waits and operations of a caller that has gone."""
        self.engine.cancel(to)
        self._metadata_lists.cancel(to)
        self._operations.cancel(to)

    def give_back(self, lent: list[wire.Lent]) -> None:
        """Returns the leased messages of an answer that could not be sent."""
        self.engine.give_back(lent)

    def set_full(self, full: bool) -> None:
        """At the free-space reserve the node refuses pushes; requests that free space work."""
        self.core.full = full
        self.engine.set_full(full)

    def end(self) -> Ready:
        """Ends the round; returns everything that the round produced."""
        writes = self._end()
        return Ready(writes, *self._outputs())

    def _end(self) -> list[Change]:
        if self._catalogue_sync_view != self.view.version:
            self._catalogue_sync_view = self.view.version
            self._catalogue_sync.view_changed()
        self._own()
        self._reconciler.work(self.now)
        if self._ownership.single and not self._operations.under_way:
            return self._end_alone()
        if self._operations_view != self.view.version:
            self._operations_view = self.view.version
            self._operations.view_changed()
        if self._operations.under_way or self._operations.busy:
            self._operations.work()
        self._metadata_lists.timers()
        if self.remote_pop.prefetched.bytes:
            self._return_prefetched()
        self._backup_waits.serve()
        self._lease_handover.begin()
        changes = self.engine.end()
        if changes or self._ownership.has_deferred or self.engine.has_barriers:
            self._ownership.propose(changes)
        self._lease_handover.proposed()
        awaited = self._catalogue_sync.awaited or self._backup_waits.awaited
        writes = self.core.end(hurry=awaited or self._ownership.is_waiting)
        self._catalogue_sync.learn()
        self._metadata_lists.announce()
        for answered in self.engine.answers():
            self._commit_gate.add(answered)
        return writes

    def _end_alone(self) -> list[Change]:
        """Ends the round of a single-node cluster: the node's own write commits the changes."""
        changes = self.engine.end()
        self.engine.take_barriers()
        self.engine.ready.take_changed()
        writes = self.core.end()
        self._commit_gate.ready += self.engine.answers()
        return changes + writes if writes else changes

    def _outputs(self) -> tuple[list[tuple[str, AnyMessage]], list[Answered]]:
        """The messages and answers that may be sent once the round is on disk."""
        answers: list[Answered] = []
        for answered in self._commit_gate.take():
            to = answered.to
            if isinstance(to, Inner):
                self._operations.answered(to, (answered.answer, answered.payload))
            elif isinstance(to, PeerCaller):
                reply = PeerReply(to.rid, answered.answer, list(answered.payload))
                self._sends.append((to.node, reply))
            else:
                answers.append(answered)
        sends = self.core.take_sends() + self._sends
        self._sends = []
        return sends, answers

    # --- a short round --------------------------------------------------------------------

    def _may_be_short(self, now: int) -> bool:
        """True if only the engine has work: nothing is due (`next_due` was called since the last
        round). Otherwise the next methods return None, and nothing has happened."""
        idle = now < self._idle_until and self._ownership.single
        return idle and not self.core.changed_partitions

    def run_short(self, now: int, requests: Iterable[ClientRequest]) -> Ready | None:
        """Runs a whole round of requests for the engine alone (`SHORT_ROUND`)."""
        if not self._may_be_short(now):
            return None
        changes, answers = self.engine.run_round(now, requests)
        self._idle_until = 0
        if not _INTERNAL.isdisjoint([type(answered.to) for answered in answers]):
            self._commit_gate.ready += answers  # from a cluster that had several nodes
            return Ready(changes, *self._outputs())
        return Ready(changes, [], answers)

    def start_single_push(
        self, now: int, request: wire.Push, payload: Sequence[bytes]
    ) -> SinglePush | None:
        """Starts a round of one push: write the changes, answer, then `enter` ends the round."""
        if len(payload) != 1 or not self._may_be_short(now):
            return None
        return self.engine.start_single_push(now, request, payload[0])

    def enter(self, single_push: SinglePush) -> None:
        self._idle_until = 0
        self.engine.enter(single_push)

    def next_due(self) -> int:
        """The time at which the node core has work to do without a request."""
        if not self._others_idle_until:
            self._others_idle_until = self._next_due_of_others()
            self._has_operations = self._operations.under_way
        due = min(self._others_idle_until, self.engine.next_due())
        self._idle_until = 0 if self._has_operations else due
        return due

    def _next_due_of_others(self) -> int:
        busy = self._operations.busy or self._catalogue_sync.due or self._backup_waits.awaited
        if busy or self._lease_handover.due or self._ownership.can_lead:
            return self.now
        soonest = self.core.next_due()
        if (due := self._reconciler.next_due()) is not None and due < soonest:
            soonest = due
        if self._ownership.single and not self._operations.under_way:
            return soonest
        if (due := self._metadata_lists.next_due()) is not None and due < soonest:
            soonest = due
        prefetched = self.remote_pop.prefetched
        if prefetched.bytes and (due := prefetched.next_due()) is not None:
            soonest = min(soonest, due)
        if self._operations.under_way and (due := self._operations.next_due()) is not None:
            soonest = min(soonest, due)
        return soonest

    def introduce(self) -> None:
        """Publishes this node's addresses, if the view has other addresses."""
        known = self._introduced == (self.me, self.view.version)
        if self.me is not None and not known and introduce(self.core, self.me):
            self._introduced = self.me, self.view.version

    def _return_prefetched(self) -> None:
        """Returns prefetched messages that no client has popped in time."""
        for (_, queue), receipts in self.remote_pop.prefetched.overdue(self.now).items():
            self.return_lent(wire.Nack(queue, receipts, counted=False))

    def return_lent(self, nack: wire.Nack) -> None:
        """Returns leased messages that no client has seen to the primaries of their partitions."""
        self.run_operation(self._lease_handover.returning(settle(self, nack, ())))

    def retire(self, *, hurry: bool = False) -> Handover:
        """Hands over before this node stops: see ``dht.rebalancer`` and ``lease_handover``."""
        self.remote_pop.prefetched.closed = True
        self._lease_handover.stop()
        left = self.core.retire(hurry=hurry)
        if left is not Handover.DONE and self._lease_handover.recording:
            return Handover.RECORDING
        busy = self._lease_handover.returns or self.remote_pop.prefetched.bytes
        return max(left, Handover.MOVING) if busy else left

    def drain(self) -> None:
        """Ends all waits, because the node is stopping."""
        self.engine.drain()
        self._metadata_lists.drain()
        self.remote_pop.prefetched.closed = True
        self._operations.end_all(wire.Failure("SHUTTING_DOWN", "the node is stopping", True))

    def close(self) -> None:
        self.engine.close()

    # --- leadership of partitions ---------------------------------------------------------

    @property
    def single(self) -> bool:
        """True if every answer rests only on the node's own writes, in their order."""
        return self._ownership.single and not self._operations.under_way

    @property
    def led(self) -> Set[int]:
        return self._ownership.led

    @property
    def leads(self) -> int:
        return len(self._ownership.led)

    @property
    def holds(self) -> int:
        return self._ownership.holds

    def _own(self) -> None:
        """Abandons partitions that other nodes may have changed; adopts newly led partitions."""
        lost = self._ownership.update()
        if lost:
            self._abandon(lost)
        self._catalogue_sync.reload()
        if self._ownership.is_waiting and self._ownership.adopt():
            self._metadata_lists.moved(UNKNOWN)

    def _abandon(self, lost: set[int]) -> None:
        unsent = self._commit_gate.remove(lost)
        self._lease_handover.moved(lost, unsent)
        self._ownership.abandon(lost)
        for answered in unsent:
            self._commit_gate.fail(answered)
        if self.core.catalogue in lost:
            self._catalogue_sync.distrust()
        self._metadata_lists.moved(
            wire.Failure("NOT_PRIMARY", "another node keeps this list now", True)
        )

    # --- services for operations -------------------------------------------------------------

    def send(self, to: str, message: PeerRequest | PeerReply | ReadyAnnouncement) -> None:
        self._sends.append((to, message))

    def run_operation(self, operation: Operation) -> None:
        """Runs an operation of this node itself, without a caller."""
        self._operations.start(operation, None, self.now + LIFE_US)

    def reply(self, to: object, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> None:
        """Sends the result of an operation to the caller."""
        if isinstance(to, PeerCaller):
            self._sends.append((to.node, PeerReply(to.rid, answer, list(payload))))
        elif to is not None:
            self._commit_gate.ready.append(Answered(to, answer, payload))
