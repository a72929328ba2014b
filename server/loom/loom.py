"""The loom joins the queue engine and the cluster core of one node. Pure.

The driver (a node, or a simulator) calls it round by round:

1. ``begin(now)``; then ``handle`` for each request of a client and ``receive`` for each message of
   another node; then ``end()``.
2. All of ``end()``'s changes are written to the store, atomically and synced.
3. ``deliver()`` gives what may be said now: messages for nodes, answers for clients.

The engine holds the partitions that this node leads, and changes them at once; the changes of a
round become one log entry for each partition; answers are held back until the entries they rest on
are committed (``held``). A partition is *adopted* when this node leads it and its state is all in
the store, and *abandoned* as soon as somebody else may have changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Final, NamedTuple

import msgspec

from weft.dht import view as views
from weft.dht.core import PACE, SIZE, Core, Pace
from weft.dht.log import Changes
from weft.dht.messages import AnyMessage, Ask, QueueMessage, Reply
from weft.dht.messages import Stock as StockWord
from weft.dht.planner import Size
from weft.dht.view import Member, View
from weft.errors import StoreDamaged
from weft.persistence.store import Change, Reader
from weft.proto import streams, wire
from weft.server.engine.engine import BRINGS, VERBS, Engine, Lone
from weft.server.engine.state import Answered

from . import verbs, whole
from .errand import LIFE_US, Errand, Inner
from .errands import Errands
from .held import UNKNOWN, Held
from .keeping import Keeping
from .lists import Lists, unfit
from .members import join, leave, retire
from .news import News
from .places import of_batch, places
from .popping import Popping
from .report import cluster_info, view_info
from .snapshots import Snapshots

#: The lsn of changes that wait for a log: later than any.
_LATER: Final = 1 << 62


class PeerCaller(NamedTuple):
    """Who asked: another node, under its own number."""

    node: str
    rid: int


class Out(NamedTuple):
    """What may be said once the round is written."""

    sends: list[tuple[str, AnyMessage]]
    answers: list[Answered]


_NOT_YET: Final = wire.Failure("UNAVAILABLE", "this node is in no cluster: ask another", True)


class Loom:
    def __init__(
        self,
        node: str,
        cluster: str,
        store: Reader,
        *,
        partitions: int,
        durability: str = "disk",
        cache_bytes: int = 0,
        entropy: Callable[[], int],
        pace: Pace = PACE,
        size: Size = SIZE,
    ) -> None:
        self.node = node
        self.cluster = cluster
        self._entropy = entropy
        self.core = Core(
            node, store, partitions=partitions, pace=pace, size=size,
            entropy=lambda below: entropy() % below,
        )  # fmt: skip
        self.engine = Engine(
            self.core.pending, partitions=partitions, durability=durability,
            cache_bytes=cache_bytes, entropy=entropy,
        )  # fmt: skip
        self._led: dict[int, int] = {}  # partition -> the replica's turn when it was adopted
        self._waiting_to_lead: set[int] = set()
        self._alone = True
        #: This node is its whole cluster, and leads all of it.
        self._single = False
        #: A time before which there is nothing to do but what is asked; 0: not known.
        self._idle_until = 0
        self._deferred: dict[int, dict[bytes, bytes | None]] = {}
        self._held = Held(pace.suspect)
        self._errands = Errands(self)
        self._errands_view = 0
        self._lists = Lists(self)
        self._news = News(self, self)
        self._snapshots = Snapshots(self)
        self._keeping = Keeping(self)
        self.popping = Popping(self)
        self._out: list[Answered] = []
        self._sends: list[tuple[str, AnyMessage]] = []
        #: This node as it is to be known: addresses and key.
        self.me: Member | None = None
        self._introduced: tuple[Member | None, int] = (None, 0)
        self.now = 0

    # --- what errands know of the cluster (``whole.Cluster``) -----------------------------

    @property
    def view(self) -> View:
        return self.core.view

    def alive(self, node: str) -> bool:
        return self.core.alive(node)

    def random(self, below: int) -> int:
        return self._entropy() % below

    def is_ordered(self, queue: str) -> bool | None:
        known = self.engine.state.queues.get(queue)
        return None if known is None else known.settings.ordered

    # --- a round --------------------------------------------------------------------------

    def recover(self, now: int) -> None:
        """Everything from the store; called once, before the first round."""
        self.now = now
        self.core.recover(now)
        self._errands.recover(self.core.boot)
        self.engine.begin(now)
        self.engine.load_queues()

    def found(self, member: Member, learners: int = 1) -> None:
        """The first node of a new cluster; before `recover`."""
        self.core.found(member, learners)

    def begin(self, now: int) -> None:
        self.now = now
        self._idle_until = 0
        self.core.begin(now)
        self.engine.begin(now)
        self._errands.begin(now)
        if now >= self._held.ask_at:
            self._ask_again()

    def handle(
        self, request: wire.AnyRequest, payload: Sequence[bytes], to: object, *, plain: bool
    ) -> None:
        """A client's request. A plain client knows this node alone; a smart one the whole view."""
        kind = type(request)
        if self._single and kind in VERBS:
            self.engine.handle(request, payload, to)
            return
        refusal = self._unfit(request, payload)
        if refusal is not None:
            self.engine.state.answer(to, refusal)
            return
        if isinstance(request, wire.Join | wire.Leave):
            errand = join(self, request) if isinstance(request, wire.Join) else leave(self, request)
            self._errands.start(errand, to, self.now + LIFE_US)
            return
        make = verbs.STREAMS.get(kind)
        if make is None and len(self.view.members) > 1:
            make = verbs.ERRANDS.get(kind) or (verbs.PLAIN.get(kind) if plain else None)
        if make is not None:
            self._errands.start(make(self, request, payload), to, self.now + LIFE_US)
            return
        if len(self.view.members) > 1:
            if isinstance(request, BRINGS) and self._is_astray(request):
                errand = verbs.PLAIN[kind](self, request, payload)
                self._errands.start(errand, to, self.now + LIFE_US)
                return
            if plain and isinstance(request, wire.Pop):
                errand = self.popping.pop(request, payload)
                self._errands.start(errand, to, self.now + request.wait_ms * 1000 + LIFE_US)
                return
        self.direct(request, payload, to)

    def _unfit(self, request: wire.AnyRequest, payload: Sequence[bytes]) -> wire.Failure | None:
        """What is wrong with a client's request before anybody looks into it."""
        if len(payload) != isinstance(request, BRINGS):
            words = f"{len(payload)} payload frames do not go with this verb"
        elif isinstance(request, wire.CatchUp | streams.INNER_REQUESTS):
            words = "nodes alone ask this of each other"
        elif isinstance(request, streams.ReadReserved) and not (
            0 <= request.partition < self.core.catalogue
        ):
            words = f"there is no partition {request.partition}"
        elif isinstance(request, wire.Where) and (wrong := unfit(request)) is not None:
            words = wrong
        elif self.node not in self.view.members:
            return _NOT_YET
        else:
            return None
        return wire.Failure("INVALID_ARGUMENT", words, False)

    def _is_astray(self, request: wire.Push | streams.Stage) -> bool:
        """Whether a smart client sent it here because it does not know that the queue is an
        ordered one, or does not know that it is none any more."""
        doubtful = self.is_ordered(request.queue) or self._lists.keeps(request.queue)
        return doubtful and of_batch(self, request) not in self._led

    def direct(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None:
        """A request that this node answers by itself, if it can."""
        kind = type(request)
        if self._wants_news(request) and not (isinstance(to, Inner) and to.fresh):
            errand = whole.refreshed(self, request, payload)
            self._errands.start(errand, to, self.now + LIFE_US)
            return
        refusal = self._refusal(request)
        if refusal is not None:
            self.engine.state.answer(to, refusal)
        elif kind is wire.View:
            self.engine.state.answer(to, view_info(self))
        elif kind is wire.ClusterStatus:
            self.engine.state.answer(to, cluster_info(self))
        elif isinstance(request, wire.Where):
            self._lists.where(request, to)
        elif isinstance(request, wire.CatchUp):
            self._news.catch_up(request, to)
        elif isinstance(request, wire.Snapshot) and places(self, request):
            self._snapshots.ask(request, to)
        else:
            self.engine.handle(request, payload, to)
            if isinstance(request, wire.Pop):
                self._lists.popped(request, to)

    def _wants_news(self, request: wire.AnyRequest) -> bool:
        """Whether it names a queue that this node may just not have heard of."""
        name = getattr(request, "queue", None)
        return (
            name is not None
            and (name not in self.engine.state.queues or self._news.doubtful)
            and type(request) is not wire.CreateQueue
            and self.core.catalogue not in self._led
        )

    def _refusal(self, request: wire.AnyRequest) -> wire.Failure | None:
        """What stands against answering here: the partition is another node's, or not ready."""
        partitions = places(self, request)
        for number in partitions:
            if number not in self._led or not self.core.serving(number):
                return self.not_here(number)
        if self.core.full_peers and isinstance(request, BRINGS):
            full = self.core.full_peers.intersection(self.view.places[partitions[0]].sync)
            if full:
                return wire.Failure(
                    "STORAGE_FULL", f"the disk of node {min(full)} is at its free-space reserve: "
                    "ack or purge something, or add disk", True,
                )  # fmt: skip
        return None

    def not_here(self, number: int) -> wire.Failure:
        places = self.view.places
        if places and places[number].primary != self.node:
            return wire.Failure("NOT_PRIMARY", "another node leads this partition", True)
        return wire.Failure(
            "UNAVAILABLE", "this node is not ready to serve this partition: nothing was done", True
        )

    def receive(self, sender: str, message: AnyMessage) -> None:
        """A message of another node."""
        if not isinstance(message, QueueMessage):
            self.core.receive(sender, message)
            return
        if sender not in self.view.members:
            return
        self.core.heard[sender] = self.now
        match message:
            case Ask():
                self.direct(message.request, message.payload, PeerCaller(sender, message.rid))
            case Reply():
                self._errands.replied(sender, message)
            case StockWord():
                self._lists.hear(sender, message)

    def cancel(self, to: object) -> None:
        """The caller has gone: its waits and errands are over."""
        self.engine.cancel(to)
        self._lists.cancel(to)
        self._errands.cancel(to)

    def give_back(self, lent: list[wire.Lent]) -> None:
        """An answer could not be sent."""
        self.engine.give_back(lent)

    def set_full(self, full: bool) -> None:
        """At the free-space reserve pushes are refused; what frees space still works."""
        self.core.full = full
        self.engine.set_full(full)

    def end(self) -> list[Change]:
        """The round ends; all of its changes, to be written."""
        self._own()
        self._keeping.work(self.now)
        if self._single and not self._errands.under_way:
            return self._end_alone()
        if self._errands_view != self.view.version:
            self._errands_view = self.view.version
            self._errands.view_changed()
        if self._errands.under_way or self._errands.busy:
            self._errands.work()
        self._lists.timers()
        if self.popping.loot.bytes:
            self._return_loot()
        self._snapshots.serve()
        changes = self.engine.end()
        if changes or self._deferred or self.engine.state.barriers:
            self._propose(changes)
        hurry = self._news.awaited or self._snapshots.awaited or bool(self._waiting_to_lead)
        writes = self.core.end(hurry=hurry)
        self._news.learn()
        self._lists.announce()
        for answered in self.engine.answers():
            self._hold(answered)
        return writes

    def _end_alone(self) -> list[Change]:
        """The same for a node that is its whole cluster: what it writes is committed by that."""
        changes = self.engine.end()
        self.engine.take_barriers()
        self.engine.state.risen.clear()
        writes = self.core.end()
        self._out += self.engine.answers()
        return changes + writes if writes else changes

    def deliver(self) -> Out:
        """What may be said now that the round is written."""
        for number in self._held.partitions if self._held else ():
            level = self.core.committed(number) if number >= 0 else self.core.confirmed(~number)
            for answered in self._held.committed(number, level):
                if isinstance(answered.answer, wire.Popped):
                    self.engine.release(answered.answer.lent)
                self._out.append(answered)
        answers: list[Answered] = []
        pending, self._out = self._out, []
        for answered in pending:
            to = answered.to
            if isinstance(to, Inner):
                self._errands.answered(to, (answered.answer, answered.payload))
            elif isinstance(to, PeerCaller):
                reply = Reply(to.rid, answered.answer, list(answered.payload))
                self._sends.append((to.node, reply))
            else:
                answers.append(answered)
        sends = self.core.take_sends() + self._sends
        self._sends = []
        return Out(sends, answers)

    # --- a round that is one push ---------------------------------------------------------

    def lone_push(self, now: int, request: wire.Push, payload: Sequence[bytes]) -> Lone | None:
        """For a caller who is alone with his push: what to write, and what to say then.

        It is the whole of a round of a node that is its whole cluster and has nothing else to do
        (`next_due` was asked since the last round). After the answer `enter` ends it. None: do an
        ordinary round, nothing has happened.
        """
        if now >= self._idle_until or not self._single or self.core.stirred or len(payload) != 1:
            return None
        return self.engine.lone_push(now, request, payload[0])

    def enter(self, lone: Lone) -> None:
        self._idle_until = 0
        self.engine.enter(lone)

    def next_due(self) -> int:
        """When there is something to do although nobody asks."""
        due = self._next_due()
        self._idle_until = 0 if self._errands.under_way else due
        return due

    def _next_due(self) -> int:
        if self._errands.busy or self._news.due or self._snapshots.awaited or self._can_lead():
            return self.now
        soonest = min(self.core.next_due(), self.engine.next_due())
        if (due := self._keeping.next_due()) is not None and due < soonest:
            soonest = due
        if self._single and not self._errands.under_way:
            return soonest
        if (due := self._lists.next_due()) is not None and due < soonest:
            soonest = due
        if self.popping.loot.bytes and (kept := self.popping.loot.next_due()) is not None:
            soonest = min(soonest, kept)
        if self._errands.under_way and (due := self._errands.next_due()) is not None:
            soonest = min(soonest, due)
        return soonest

    def introduce(self) -> None:
        """The others are told where this node is, when they know other addresses."""
        if self.me is None or self._introduced == (self.me, self.view.version):
            return
        before = self.view.members.get(self.node)
        if before is not None and before.key != self.me.key and before.key:
            raise StoreDamaged(
                "the cluster knows this node by another key: restore curve.json from a backup, or "
                "start the node with an empty data directory and --join, as a new one"
            )
        if before is not None and self.core.proposer.idle:
            self._introduced = self.me, self.view.version
            state, witness = before.state, before.witness
            member = msgspec.structs.replace(self.me, state=state, witness=witness)
            if before != member:
                self.core.wish(views.join(self.node, member))

    def _return_loot(self) -> None:
        """What was stolen and nobody asked for goes back to the nodes that lent it."""
        by_place: dict[tuple[str, str], list[wire.Receipt]] = {}
        for node, queue, receipt in self.popping.loot.overdue(self.now):
            by_place.setdefault((node, queue), []).append(receipt)
        for (node, queue), receipts in by_place.items():
            self._errands.give_back(node, queue, receipts)

    def retire(self) -> bool:
        """Others are to go on without this node; whether there is still something to hand over."""
        return retire(self)

    def drain(self) -> None:
        """The node is stopping: nobody waits any longer."""
        self.engine.drain()
        self._lists.drain()
        self._errands.end_all(wire.Failure("SHUTTING_DOWN", "the node is stopping", True))

    def close(self) -> None:
        self.engine.close()

    # --- who leads what -------------------------------------------------------------------

    @property
    def single(self) -> bool:
        """Whether this node is its whole cluster, with nothing under way but what clients ask: then
        all that it says rests on its own writes, in their order, and on nothing else."""
        return self._single and not self._errands.under_way

    @property
    def led(self) -> Set[int]:
        return self._led.keys()

    @property
    def leads(self) -> int:
        """How many partitions this node serves."""
        return len(self._led)

    @property
    def holds(self) -> int:
        """How many partitions it has a copy of, its own included."""
        return sum(place.holds(self.node) for place in self.view.places)

    def _own(self) -> None:
        """Abandons what somebody else may have changed, adopts what this node leads now."""
        core = self.core
        alone = len(self.view.members) < 2
        if self._alone and not alone:
            self.engine.drain()  # who waits here would not hear of messages on other nodes
        self._alone = alone
        # Its log is in the state, if it had one: what is written at once would be overwritten.
        ready = alone and core.all_settled and not self._deferred
        self._single = ready and len(self._led) > core.catalogue
        if not core.stirred and not self._waiting_to_lead:
            self._news.reload()
            return
        stirred, core.stirred = core.stirred, set()
        gone = {p for p in stirred if p in self._led and self._is_lost(p)}
        if gone:
            self._abandon(gone)
        self._news.reload()
        self._waiting_to_lead |= {p for p in stirred if core.replicas[p].serving}
        self._waiting_to_lead -= self._led.keys()
        if self._waiting_to_lead:
            new = {p for p in self._waiting_to_lead if core.serving(p) and core.settled(p)}
            idle = {p for p in self._waiting_to_lead if not core.serving(p)}
            self._waiting_to_lead -= new | idle
            if new:
                self._adopt(new)

    def _can_lead(self) -> bool:
        core = self.core
        return any(core.serving(p) for p in self._waiting_to_lead)

    def _is_lost(self, number: int) -> bool:
        replica = self.core.replicas[number]
        return replica.turn != self._led[number]

    def _abandon(self, gone: set[int]) -> None:
        for number in gone:
            del self._led[number]
            self._deferred.pop(number, None)
            self.core.pending.drop(number)
        self.engine.abandon(gone)
        for number in gone:
            for answered in self._held.lost(number):
                self._fail(answered)
        if self.core.catalogue in gone:
            self._news.distrust()
        self._lists.moved(wire.Failure("NOT_PRIMARY", "another node keeps this list now", True))

    def _adopt(self, new: set[int]) -> None:
        core = self.core
        if core.catalogue in new:
            self.engine.load_queues()
        self.engine.adopt(new)
        self._led.update({number: core.replicas[number].turn for number in new})
        self._lists.moved(UNKNOWN)

    def _fail(self, answered: Answered) -> None:
        if isinstance(answered.answer, wire.Popped):
            self.engine.give_back(answered.answer.lent)
        self._out.append(Answered(answered.to, UNKNOWN))

    def _propose(self, changes: list[Change]) -> None:
        catalogue = self.core.catalogue
        by_partition: dict[int, list[Change]] = {p: [] for p in self.engine.take_barriers()}
        for key, value in changes:
            number = catalogue if key[:1] == b"q" else key[1] << 8 | key[2]
            found = by_partition.get(number)
            if found is None:
                by_partition[number] = [(key, value)]
            else:
                found.append((key, value))
        for number in [p for p in self._deferred if self.core.serving(p)]:
            later = list(self._deferred.pop(number).items())
            by_partition[number] = later + by_partition.get(number, [])
        for number, own in by_partition.items():
            if number not in self._led:
                continue  # it was led when this was decided, and is another node's now
            if self.core.serving(number):
                self.core.propose(number, own)
            else:
                self._defer(number, own)

    def _defer(self, number: int, changes: list[Change]) -> None:
        """Between two epochs that this node leads: it is proposed in the next one."""
        self._deferred.setdefault(number, {}).update(changes)
        puts = [(key, value) for key, value in changes if value is not None]
        deletes = [key for key, value in changes if value is None]
        self.core.pending.add(number, _LATER, Changes(puts, deletes, []))

    def _ask_again(self) -> None:
        """What others said long ago, of who leads, is not enough for an answer that leaves now."""
        for answered, patience in self._held.old(self.now):
            if isinstance(answered.answer, wire.Popped):
                self.engine.release(answered.answer.lent)
            self._hold(answered, patience)

    def _hold(self, answered: Answered, patience: int = 0) -> None:
        needs: dict[int, int] = {}
        lends, rests_on = isinstance(answered.answer, wire.Popped), answered.rests_on
        if isinstance(answered.answer, wire.Pushed) and self.core.catalogue in self._led:
            rests_on = {*rests_on, self.core.catalogue}  # its queue may be new, not committed yet
        for number in rests_on:
            replica = self.core.replicas.get(number)
            # Between two epochs that it leads, what is held already waits for the second one.
            if replica is None or number not in self._led or not (replica.serving or patience):
                self._fail(answered)
                return
            if replica.committed < replica.log.end:
                needs[number] = replica.log.end
            if (lends or answered.sure) and (replica.needed or not replica.serving):
                needs[~number] = self.core.confirm(number)
        if needs:
            self._held.add(answered, needs, self.now, patience)
            if isinstance(answered.answer, wire.Popped):
                self.engine.hold(answered.answer.lent)
        else:
            self._out.append(answered)

    # --- what errands need ----------------------------------------------------------------

    def send(self, to: str, message: Ask) -> None:
        self._sends.append((to, message))

    def tell_node(self, node: str, word: StockWord) -> None:
        self._sends.append((node, word))

    def run_errand(self, errand: Errand) -> None:
        """For nobody but this node."""
        self._errands.start(errand, None, self.now + LIFE_US)

    def tell(self, to: object, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> None:
        """An errand has ended."""
        if isinstance(to, PeerCaller):
            self._sends.append((to.node, Reply(to.rid, answer, list(payload))))
        elif to is not None:
            self._out.append(Answered(to, answer, payload))
