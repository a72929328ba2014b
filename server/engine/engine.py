"""The queue engine: requests and time in, writes and answers out. Pure.

The driver (a node, or a simulator) runs one round after another:

1. Call ``begin(now)``, then ``handle(request, payload, to)`` for each request, then ``end()``.
2. Write all changes returned by ``end()`` to the store, atomically.
3. Send every answer of ``answers()``.

Invariant: no answer leaves before the changes it depends on are written, because the driver takes
answers only after the write. ``to`` is the driver's own identifier of a caller; the engine returns
``to`` unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final

from weft.errors import InvalidArgument, StorageError, WeftError
from weft.persistence.store import Change, StoreReader
from weft.proto import wire
from weft.proto.verbs import WITH_PAYLOAD

from . import (
    ack,
    admin,
    backup,
    cancel,
    catalogue,
    cleanup,
    commit,
    destinations,
    graph_push,
    lease_records,
    ledger,
    ledger_verbs,
    multicast,
    ordered_multicast,
    outbox,
    pop,
    proposal,
    publisher,
    reserve,
    room,
    stage,
    table,
    table_batch,
    table_expiry,
    table_names,
    table_scan,
    table_watch,
    topic,
)  # fmt: skip
from .backpressure import Backpressure
from .commit_effects import CommitEffects
from .dedup import SLICE_US
from .eviction import abandon
from .handlers import handles
from .idle_queues import IdleQueues
from .partition_recovery import adopt, count_messages, delete_orphans
from .push import SinglePush, answer, index_push, place_single_push
from .queue import QueueState
from .queue_shares import QueueShares
from .ready_queues import ReadyQueues
from .recorded_leases import RecordedLeases
from .state import Answered, EngineState
from .unfinished_work import UnfinishedWork

#: Timers of one kind handled per round; the next round handles the rest.
_TIMERS_MAX: Final = 1000
_SECOND_US: Final = 1_000_000

#: Modules with handlers: the import registers the handlers of each.
_MODULES: Final = (
    ack, admin, backup, cancel, commit, graph_push, ledger_verbs, multicast, ordered_multicast,
    outbox, pop, publisher, reserve, room, stage, table, table_batch, table_scan, table_watch,
    topic,
)  # fmt: skip
_HANDLERS: Final = handles.by_request


class Engine:
    def __init__(
        self,
        store: StoreReader,
        *,
        partitions: int,
        durability: str,
        cache_bytes: int,
        entropy: Callable[[], int],
    ) -> None:
        self.state = EngineState(store, partitions, cache_bytes, entropy)
        #: Views of the state for the parts of the node core.
        self.ready, self.unfinished = ReadyQueues(self.state), UnfinishedWork(self.state)
        self.commits, self.shares = CommitEffects(self.state), QueueShares(self.state)
        self.idle_queues = IdleQueues(self.state)
        self.recorded_leases = RecordedLeases(self.state)
        self.destinations = destinations.Destinations(self.state)
        self.durability = durability
        #: Handlers of the node core for requests that a round of the engine alone may have, too.
        self.foreign: Mapping[type, Callable[..., None]] = {}
        self._retain_at = 0
        self._forget_at = 0

    @property
    def queues(self) -> Mapping[str, QueueState]:
        """The known queues by name, for reading."""
        return self.state.queues

    @property
    def grouped_queue(self) -> str:
        """The name of a grouped queue; "" if this node knows none."""
        return next((name for name, each in self.state.queues.items() if each.groups), "")

    @property
    def graph_queue(self) -> str:
        """The name of a queue that takes task graphs; "" if this node knows none."""
        queues = self.state.queues.items()
        return next((name for name, each in queues if each.settings.graphs), "")

    @property
    def deferred(self) -> Mapping[int, Mapping[str, None]]:
        """Connections with pops deferred by backpressure; the mapping stays the same object."""
        return self.state.deferred

    def limit(self, in_flight_max: int, backpressure: Backpressure) -> None:
        """Sets the driver's limits: messages in flight, and unsent responses of a connection."""
        self.state.leases.most = in_flight_max
        self.state.backpressure = backpressure

    def answer(
        self,
        to: object,
        answer: wire.AnyAnswer,
        payload: Sequence[bytes] = (),
        rests_on: Set[int] = frozenset(),
    ) -> None:
        """Adds an answer to the round, for a request that the engine does not handle itself."""
        self.state.answer(to, answer, payload, rests_on)

    def recover(self, now: int) -> None:
        """Rebuilds all state from the store, for a node that leads all partitions."""
        self.begin(now)
        self.load_queues()
        self.adopt({*range(self.state.partitions), self.state.catalogue})

    def load_queues(self) -> None:
        """Loads the queues from the catalogue and drops every queue missing there."""
        catalogue.load(self.state)

    def learn_queue(self, key: bytes, record: bytes | None) -> None:
        """Applies a catalogue record changed by another node."""
        catalogue.learn(self.state, key, record)

    def adopt(self, partitions: set[int], losses: int = 0) -> None:
        """Reads the state of newly led partitions from the store; `losses` counts the disks of the
        cluster that were lost for good."""
        adopt(self.state, partitions, losses)

    def abandon(self, partitions: set[int]) -> None:
        """Discards the in-memory state of partitions which this node no longer leads."""
        abandon(self.state, partitions)

    def undelivered(self, partitions: set[int], unsent: Sequence[Answered]) -> list[wire.Nack]:
        """The messages of lost partitions that no consumer has received, as nacks by queue."""
        return lease_records.undelivered(self.state, partitions, unsent)

    def count_messages(self, partition: int, batches_max: int) -> tuple[dict[str, int], int]:
        """The number of stored messages by queue, and the number of batches read for the count."""
        return count_messages(self.state, partition, batches_max)

    @property
    def unknown_queues(self) -> set[int]:
        """Queues missing in the catalogue with records on led partitions: deleted, or too new."""
        return {*self.state.orphans, *self.state.ownerless}

    def delete_orphans(self) -> None:
        """Deletes batches of unknown queues. Call only when the catalogue is complete."""
        delete_orphans(self.state)

    def begin(self, now: int) -> None:
        """Starts a round; `now` is in microseconds since 1970 and never decreases."""
        state = self.state
        assert now >= state.now, "time goes forward"
        state.now = now

    def handle(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None:
        """Handles one request. A refused request changes nothing; the error is the answer."""
        state, kind = self.state, type(request)
        try:
            if len(payload) != (kind in WITH_PAYLOAD):
                raise InvalidArgument(f"{len(payload)} payload frames do not go with this verb")
            handler = _HANDLERS.get(kind) or self.foreign.get(kind)
            if handler is None:
                raise InvalidArgument(f"{kind.__name__} is not for the engine")
            if payload:
                handler(state, request, payload[0], to, self.durability)
            else:
                handler(state, request, to)
        except StorageError:
            raise  # a disk error is not the caller's fault: the node must stop
        except WeftError as error:
            state.answer(to, wire.Failure(error.code, error.message, error.retriable))

    def run_round(
        self, now: int, requests: Iterable[tuple[object, wire.AnyRequest, Sequence[bytes], object]]
    ) -> tuple[list[Change], list[Answered]]:
        """Runs a whole round on a node that is its whole cluster: no other node has to confirm a
        read, or waits to hear of ready queues. `requests`: each with its caller and payload."""
        state = self.state
        self.begin(now)
        for to, request, payload, _ in requests:
            self.handle(request, payload, to)
        changes = self.end()
        state.barriers.clear()
        state.became_ready.clear()
        answers, state.answers = state.answers, []
        return changes, answers

    def start_single_push(self, now: int, request: wire.Push, payload: bytes) -> SinglePush | None:
        """Runs the first half of a round consisting only of this push; see `push`.

        Returns None, with nothing changed, if a pop waits at the queue, or if the push is a
        duplicate or refused.
        """
        state = self.state
        self.begin(now)
        placed = place_single_push(state, request, payload)
        if placed is None:
            return None
        said = answer(placed.queue, request, placed.partition, self.durability)
        return SinglePush(state.take_writes(), said, placed)

    def enter(self, single_push: SinglePush) -> None:
        """Runs the second half, after the write and the answer."""
        index_push(self.state, single_push.placed)

    def cancel(self, to: object) -> None:
        """Ends the waiting pop of a caller which is gone."""
        if (waiter := self.state.waiting.get(to)) is not None:
            pop.give_up(self.state, waiter)
        if self.state.rooms:
            room.cancel(self.state, to)
        if self.state.table.watchers:
            table_watch.cancel(self.state, to)

    def serve_peer(self, peer: int) -> None:
        """Serves the deferred pops of a connection released from backpressure."""
        pop.serve_peer(self.state, peer)

    def give_back(self, lent: list[wire.Lent]) -> None:
        """Returns the messages of an answer which the driver failed to send."""
        ack.give_back(self.state, lent)

    def hold(self, lent: list[wire.Lent]) -> None:
        """Stops the lease timers of an answer held back by the driver."""
        ack.hold(self.state, lent)

    def release(self, lent: list[wire.Lent]) -> None:
        """Starts the lease timers of a held answer, when the driver sends the answer."""
        ack.release(self.state, lent)

    def set_full(self, full: bool) -> None:
        """Refuses pushes while free disk space is below the reserve; verbs freeing space work."""
        self.state.full = full

    def end(self) -> list[Change]:
        """Ends the round: runs timers, jobs and waiting pops, then returns all changes to write."""
        state = self.state
        now = state.now
        if (
            now >= self._retain_at
            or now >= state.leases.timers.earliest
            or now >= state.waiter_timers.earliest
            or now >= state.delay_timers.earliest
            or now >= state.table.watch_timers.earliest
        ):
            self._timers()
        if state.jobs:
            self._work()
        if state.proposals.changed:
            proposal.release(state)
        while state.ready_queues:
            _, queue = state.ready_queues.popitem()
            if queue.waiters:
                pop.serve_waiters(state, queue)
            if queue.limits is not None:
                state.delay(queue)
            if queue.takeable if queue.limits is not None or queue.groups else queue.ready:
                state.became_ready.add(queue.name)
        if state.rooms:
            room.serve(state)
        if state.table.changed:
            table_watch.serve(state)
        return state.take_writes()

    def answers(self) -> list[Answered]:
        """The answers to send, after the round is written."""
        return self.state.take_answers()

    def add_barrier(self, partition: int) -> None:
        """Holds the round's answers until this node has confirmed that it leads the partition."""
        self.state.barriers.add(partition)

    @property
    def has_barriers(self) -> bool:
        return bool(self.state.barriers)

    def take_barriers(self) -> set[int]:
        """Partitions read in this round; this node must confirm its leadership of each."""
        barriers, self.state.barriers = self.state.barriers, set()
        return barriers

    def next_due(self) -> int:
        """Time of the engine's next timer or job step, in microseconds since 1970."""
        state = self.state
        if state.jobs or state.lease_records.backlog:
            return state.now
        due = self._retain_at
        if state.rooms:
            due = min(due, room.next_due(state))
        for timers in (
            state.leases.timers, state.waiter_timers, state.delay_timers, state.table.watch_timers,
        ):  # fmt: skip
            if timers.earliest < due and (when := timers.next()) is not None and when < due:
                due = when
        return due

    def drain(self) -> None:
        """Ends all waiting pops, because the node is stopping."""
        for waiter in list(self.state.waiters.values()):
            pop.give_up(self.state, waiter)
        room.drain(self.state)
        for to in list(self.state.table.watchers):
            table_watch.cancel(self.state, to)

    def close(self) -> None:
        """Ends all jobs. Recovery finds and finishes the remaining work after the next start."""
        while self.state.jobs:
            job = self.state.jobs.popleft()
            job.close()

    def _timers(self) -> None:
        state = self.state
        for nonce in state.leases.timers.fire(state.now, _TIMERS_MAX):
            ack.expire(state, nonce)
        for number in state.waiter_timers.fire(state.now, _TIMERS_MAX):
            waiter = state.waiters.get(number)
            if waiter is not None:  # else an earlier time-out has served it, too
                pop.time_out(state, waiter)
        for queue_id in state.delay_timers.fire(state.now, _TIMERS_MAX):
            self._fall_due(queue_id)
        for number in state.table.watch_timers.fire(state.now, _TIMERS_MAX):
            table_watch.time_out(state, number)
        if state.now >= self._retain_at:
            self._retain_at = state.now + _SECOND_US
            ledger.expire(state)
            if state.table.expiring and not state.table.sweeping:
                state.jobs.append(table_expiry.sweep(state))
            for queue in state.queues.values():
                if queue.settings.retention_ms:
                    state.jobs.append(cleanup.retain(state, queue))
        if state.now >= self._forget_at:
            self._forget_at = state.now + SLICE_US
            state.jobs.append(cleanup.forget(state))
            state.jobs.append(table_names.expire(state))
            table_watch.forget(state)
            state.leases.tidy(state.now)
            state.lease_records.tidy(state)
            cleanup.forget_pushes(state)

    def _fall_due(self, queue_id: int) -> None:
        state = self.state
        if (queue := state.by_id.get(queue_id)) is None:
            return  # the queue was purged or deleted in the meantime
        for _ in range(_TIMERS_MAX):
            if (due := queue.ids.take_due(state.now)) is None:
                break
            priority, entry = due
            batch = state.touch(entry.handle)
            count = batch.parts[max(0, entry.first)].count
            queue.delayed -= count
            queue.ready += count
            queue.ids.add_returned(priority, entry)
            state.ready_queues[queue.id] = queue
        if queue.limits is not None:
            state.ready_queues[queue.id] = queue
        state.delay(queue)

    def _work(self) -> None:
        """Runs one step of each job."""
        for _ in range(len(self.state.jobs)):
            job = self.state.jobs.popleft()
            try:
                next(job)
            except StopIteration:
                continue
            self.state.jobs.append(job)
