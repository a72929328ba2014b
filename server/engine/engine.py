"""The queue engine: requests and time in, writes and answers out. Pure.

The driver (a node, or a simulator) calls it like this, over and over:

1. ``begin(now)``, then ``handle(request, payload, to)`` for everything that came, then ``end()``.
2. Write all of ``end()``'s changes to the store, atomically.
3. Send every answer of ``answers()``.

Nothing is answered before what it rests on is written, because answers are only handed out after
the writes. ``to`` is the driver's own name for a caller; the engine gives it back untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from weft.dht import placement, table
from weft.errors import InvalidArgument, StorageError, WeftError
from weft.persistence.store import Change, Reader
from weft.proto import streams, wire

from . import admin, app, catalogue, keep, ledger, pop, reserve, settle, stage, sweep
from .dedup import SLICE_US
from .ownership import abandon
from .push import Placed, answer, enter, place_lone, push
from .recovery import adopt, bury_strays
from .state import Answered, State

#: Timers of one kind handled per round; the rest follow in the next.
_TIMERS_MAX: Final = 1000
_SECOND_US: Final = 1_000_000

_VERBS: dict[type, Callable[..., None]] = {
    wire.Pop: pop.pop,
    wire.Peek: pop.peek,
    wire.Ack: settle.ack,
    wire.Nack: settle.nack,
    wire.Extend: settle.extend,
    wire.CreateQueue: admin.create_queue,
    wire.UpdateQueue: admin.update_queue,
    wire.DeleteQueue: admin.delete_queue,
    wire.ListQueues: admin.list_queues,
    wire.DescribeQueue: admin.describe_queue,
    wire.PurgeQueue: admin.purge_queue,
    wire.Redrive: admin.redrive,
    wire.Snapshot: keep.snapshot,
    wire.Restore: keep.restore,
}
#: Steps of what concerns several partitions; each has to be asked where its partition is led.
_STEPS: dict[type, Callable[..., None]] = {
    streams.OpenSubscription: ledger.open_subscription,
    streams.BeginReserve: ledger.begin_reserve,
    streams.SealReservation: ledger.seal_reservation,
    streams.DescribeReservation: ledger.describe_reservation,
    streams.AckThrough: ledger.ack_through,
    streams.Heartbeat: ledger.heartbeat,
    streams.ReleaseAll: ledger.release_all,
    streams.DeleteSubscription: ledger.delete_subscription,
    streams.Settle: ledger.settle,
    streams.JudgeMarks: ledger.judge_marks,
    streams.SubscriptionStats: ledger.subscription_stats,
    streams.ListSubscriptions: ledger.list_subscriptions,
    streams.Survey: reserve.survey,
    streams.Mark: reserve.mark,
    streams.ReadReserved: reserve.read_reserved,
    streams.Finish: reserve.finish,
    streams.CloseStage: app.close_stage,
    streams.Decide: app.decide,
    streams.Decided: app.decided,
    streams.GiveUpStages: app.give_up_stages,
    streams.LastPublished: app.last_published,
    streams.Reveal: stage.reveal,
    streams.ListStages: stage.list_stages,
    streams.DropStages: stage.drop_stages,
}


class Lone(NamedTuple):
    """A round that is one push."""

    changes: list[Change]
    answer: wire.Pushed
    placed: Placed


#: What the engine of a node that leads everything answers by itself.
VERBS: Final = frozenset({wire.Push, *_VERBS, *table.VERBS})
#: Requests that bring a batch.
BRINGS: Final = (wire.Push, streams.Stage)


class Engine:
    def __init__(
        self,
        store: Reader,
        *,
        partitions: int,
        durability: str,
        cache_bytes: int,
        entropy: Callable[[], int],
    ) -> None:
        self.state = State(store, partitions, cache_bytes, entropy)
        self._durability = durability
        self._retain_at = 0
        self._forget_at = 0

    def recover(self, now: int) -> None:
        """Rebuilds everything from the store, for a node that leads all there is."""
        self.begin(now)
        self.load_queues()
        self.adopt({*range(self.state.partitions), self.state.catalogue})

    def load_queues(self) -> None:
        """The queues as the catalogue has them. What was known before is forgotten."""
        catalogue.load(self.state)

    def learn_queue(self, key: bytes, record: bytes | None) -> None:
        """A record of the catalogue has changed, by another node's hand."""
        catalogue.learn(self.state, key, record)

    def adopt(self, partitions: set[int]) -> None:
        """This node leads these partitions now: what they hold is read from the store."""
        adopt(self.state, partitions)

    def abandon(self, partitions: set[int]) -> None:
        """It does not lead them any more: whatever is in memory of them is forgotten."""
        abandon(self.state, partitions)

    def bury_strays(self) -> None:
        """The catalogue is known to be complete: what belongs to no queue is garbage."""
        bury_strays(self.state)

    def begin(self, now: int) -> None:
        """A round starts; `now` is in microseconds since 1970 and never goes back."""
        state = self.state
        assert now >= state.now, "time goes forward"
        state.now = now

    def handle(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None:
        """One request. Whatever is wrong with it is its answer, and has changed nothing."""
        state = self.state
        try:
            if len(payload) != isinstance(request, BRINGS):
                raise InvalidArgument(f"{len(payload)} payload frames do not go with this verb")
            if type(request) is wire.Push:
                push(state, request, payload[0], to, self._durability)
            elif type(request) is streams.Stage:
                stage.stage(state, request, payload[0], to, self._durability)
            elif (verb := _VERBS.get(type(request)) or _STEPS.get(type(request))) is not None:
                verb(state, request, to)
            else:
                self._table(request, to)
        except StorageError:
            raise  # the disk is not the caller's fault: the node must stop
        except WeftError as error:
            state.answer(to, wire.Failure(error.code, error.message, error.retriable))

    def lone_push(self, now: int, request: wire.Push, payload: bytes) -> Lone | None:
        """The first half of a round that is this push and nothing else; see `push`.

        None: it has to do with something else, or is refused. Nothing was changed then.
        """
        state = self.state
        self.begin(now)
        placed = place_lone(state, request, payload)
        if placed is None:
            return None
        return Lone(
            state.take_writes(), answer(request, placed.partition, self._durability), placed
        )

    def enter(self, lone: Lone) -> None:
        """The second half: it was written and answered."""
        enter(self.state, lone.placed)

    def cancel(self, to: object) -> None:
        """The caller has gone: its waits are over."""
        waiter = self.state.waiting.get(to)
        if waiter is not None:
            pop.give_up(self.state, waiter)

    def serve_ear(self, ear: int) -> None:
        """Somebody who was deaf listens again."""
        pop.serve_ear(self.state, ear)

    def give_back(self, lent: list[wire.Lent]) -> None:
        """An answer could not be sent."""
        settle.give_back(self.state, lent)

    def hold(self, lent: list[wire.Lent]) -> None:
        """An answer is kept back for now."""
        settle.hold(self.state, lent)

    def release(self, lent: list[wire.Lent]) -> None:
        """It goes out."""
        settle.release(self.state, lent)

    def set_full(self, full: bool) -> None:
        """Below the free-space reserve pushes are refused; what frees space still works."""
        self.state.full = full

    def end(self) -> list[Change]:
        """The round ends: timers, long work, those who wait; then all changes, to be written."""
        state = self.state
        self._timers()
        self._work()
        while state.stirred:
            _, queue = state.stirred.popitem()
            pop.serve_waiters(state, queue)
            if queue.ready:
                state.risen.add(queue.name)
        return state.take_writes()

    def answers(self) -> list[Answered]:
        """What may be sent now that the round is written."""
        return self.state.take_answers()

    def take_barriers(self) -> set[int]:
        """Partitions that were read in this round, and must still be led by this node."""
        barriers, self.state.barriers = self.state.barriers, set()
        return barriers

    def next_due(self) -> int:
        """When the engine next has something to do by itself."""
        state = self.state
        if state.jobs:
            return state.now
        timers = (state.leases.timers, state.waiter_timers, state.delay_timers)
        times = [when for each in timers if (when := each.next()) is not None]
        times.append(self._retain_at)
        return min(times)

    def drain(self) -> None:
        """The node is stopping: nobody waits any longer."""
        for waiter in list(self.state.waiters.values()):
            pop.give_up(self.state, waiter)

    def close(self) -> None:
        """Ends long work; what it left undone is found and done after the next start."""
        while self.state.jobs:
            job = self.state.jobs.popleft()
            job.close()

    def _timers(self) -> None:
        state = self.state
        for nonce in state.leases.timers.fire(state.now, _TIMERS_MAX):
            settle.expire(state, nonce)
        for number in state.waiter_timers.fire(state.now, _TIMERS_MAX):
            pop.time_out(state, state.waiters[number])
        for queue_id in state.delay_timers.fire(state.now, _TIMERS_MAX):
            self._fall_due(queue_id)
        if state.now >= self._retain_at:
            self._retain_at = state.now + _SECOND_US
            ledger.expire(state)
            for queue in state.queues.values():
                if queue.settings.retention_ms:
                    state.jobs.append(sweep.retain(state, queue))
        if state.now >= self._forget_at:
            self._forget_at = state.now + SLICE_US
            state.jobs.append(sweep.forget(state))
            state.leases.tidy(state.now)
            sweep.forget_strays(state)
            for queue in state.queues.values():
                for window in queue.windows.values():
                    window.expire(state.now)

    def _fall_due(self, queue_id: int) -> None:
        state = self.state
        queue = state.by_id.get(queue_id)
        if queue is None:
            return  # purged or deleted since
        for _ in range(_TIMERS_MAX):
            due = queue.ids.take_due(state.now)
            if due is None:
                break
            priority, entry = due
            batch = state.touch(entry.handle)
            count = batch.parts[max(0, entry.first)].count
            queue.delayed -= count
            queue.ready += count
            queue.ids.add_returned(priority, entry)
            state.stirred[queue.id] = queue
        state.delay(queue)

    def _work(self) -> None:
        """One step of each long job."""
        for _ in range(len(self.state.jobs)):
            job = self.state.jobs.popleft()
            try:
                next(job)
            except StopIteration:
                continue
            self.state.jobs.append(job)

    def _table(self, request: wire.AnyRequest, to: object) -> None:
        state = self.state
        verb = table.VERBS.get(type(request))
        if verb is None:
            raise InvalidArgument(f"{type(request).__name__} is not for the engine")
        key: str = request.key  # type: ignore[union-attr]
        place = table.place(key, state.partitions)
        partition = placement.of_text(key, state.partitions)
        data = state.overlay.read(place)
        outcome = verb(request, None if data is None else bytes(data))
        if outcome.writes and outcome.value is None:
            state.overlay.delete(place)
        elif outcome.value is not None:
            state.check_space()
            state.overlay.put(place, outcome.value)
        else:  # it only read: nobody else may have written meanwhile
            state.barriers.add(partition)
        state.answer(to, outcome.answer, (), {partition})
