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

from collections.abc import Callable, Sequence, Set

from weft.dht.core import PACE, SIZE, Core, Timing
from weft.dht.messages import AnyMessage, PeerReply, PeerRequest, QueueMessage
from weft.dht.messages import StockAnnouncement as StockWord
from weft.dht.planner import ReplicationFactor
from weft.dht.rebalancer import Handover
from weft.dht.view import Member, View
from weft.persistence.store import Change, StoreReader
from weft.proto import wire
from weft.server.engine.engine import Engine, SinglePush
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
from .request_router import ENGINE_ALONE, RequestRouter


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
        self.node = node
        self.cluster = cluster
        self._entropy = entropy
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
        self._operations = Operations(self)
        self._operations_view = self._catalogue_sync_view = 0
        parts = self.core, self.engine, self._ownership
        self._commit_gate = CommitGate(*parts, pace.suspect)
        self._metadata_lists = MetadataLists(*parts, self.send, self._operations.forward)
        self._catalogue_sync = CatalogueSync(*parts, self, self.run_operation, self.not_here)
        self._backup_waits = BackupWaits(*parts, self.not_here)
        self._lease_handover = LeaseHandover(*parts, self.return_lent)
        self._reconciler = Reconciler(self)
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

    def is_ordered(self, queue: str) -> bool | None:
        known = self.engine.queues.get(queue)
        return None if known is None else known.settings.ordered

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
        self._idle_until = 0
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
        if sender not in self.view.members:
            return
        self.core.heard[sender] = self.now
        match message:
            case PeerRequest():
                node, rid = message.reply_to or (sender, message.rid)
                if node in self.view.members:
                    caller = PeerCaller(node, rid, forwarded=message.reply_to is not None)
                    self._requests.direct(message.request, message.payload, caller)
            case PeerReply():
                self._operations.replied(sender, message)
            case StockWord():
                self._metadata_lists.hear(sender, message)

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
        hurry = (
            self._catalogue_sync.awaited or self._backup_waits.awaited or self._ownership.is_waiting
        )
        writes = self.core.end(hurry=hurry)
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

    # --- a round of one push --------------------------------------------------------------

    def start_single_push(
        self, now: int, request: wire.Push, payload: Sequence[bytes]
    ) -> SinglePush | None:
        """Starts a round that consists of one push; returns the changes to write, and the answer to
        send after the write.

        Only for a node that is its whole cluster and has no other work (`next_due` was called since
        the last round). After the answer, `enter` ends the round. None: nothing has happened, run
        an ordinary round.
        """
        if (
            now >= self._idle_until
            or not self._ownership.single
            or self.core.changed_partitions
            or len(payload) != 1
        ):
            return None
        return self.engine.start_single_push(now, request, payload[0])

    def enter(self, single_push: SinglePush) -> None:
        self._idle_until = 0
        self.engine.enter(single_push)

    def next_due(self) -> int:
        """The time at which the node core has work to do without a request."""
        due = self._next_due()
        self._idle_until = 0 if self._operations.under_way else due
        return due

    def _next_due(self) -> int:
        busy = self._operations.busy or self._catalogue_sync.due or self._backup_waits.awaited
        if busy or self._lease_handover.due or self._ownership.can_lead:
            return self.now
        soonest = min(self.core.next_due(), self.engine.next_due())
        if (due := self._reconciler.next_due()) is not None and due < soonest:
            soonest = due
        if self._ownership.single and not self._operations.under_way:
            return soonest
        if (due := self._metadata_lists.next_due()) is not None and due < soonest:
            soonest = due
        if (
            self.remote_pop.prefetched.bytes
            and (kept := self.remote_pop.prefetched.next_due()) is not None
        ):
            soonest = min(soonest, kept)
        if self._operations.under_way and (due := self._operations.next_due()) is not None:
            soonest = min(soonest, due)
        return soonest

    def introduce(self) -> None:
        """Publishes this node's addresses to the other members, if the view has other addresses."""
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
        """True if this node is its whole cluster and no operation is under way: then every answer
        rests only on the node's own writes, in their order."""
        return self._ownership.single and not self._operations.under_way

    @property
    def led(self) -> Set[int]:
        return self._ownership.led

    @property
    def leads(self) -> int:
        """The number of partitions that this node serves."""
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

    def send(self, to: str, message: PeerRequest | PeerReply | StockWord) -> None:
        self._sends.append((to, message))

    def run_operation(self, operation: Operation) -> None:
        """Runs an operation of this node itself, without a caller."""
        self._operations.start(operation, None, self.now + LIFE_US)

    def tell(self, to: object, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> None:
        """Sends the result of an operation to the caller."""
        if isinstance(to, PeerCaller):
            self._sends.append((to.node, PeerReply(to.rid, answer, list(payload))))
        elif to is not None:
            self._commit_gate.ready.append(Answered(to, answer, payload))
