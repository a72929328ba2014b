"""The verbs on queues: create, update, delete, list, describe, purge, redrive."""

from __future__ import annotations

from collections.abc import Generator

import msgspec
import xxhash

from weft import limits
from weft.dht import placement
from weft.errors import InvalidArgument, Overloaded, QueueExists, QueueInUse
from weft.persistence import layout
from weft.proto import wire
from weft.proto.settings import Settings

from . import idle_queues, message_set, topic
from . import queue as stored
from .batch import TouchedBatch, split
from .catalogue import drop, enter, renew, settle
from .cleanup import STEP
from .handlers import handles
from .head import Part
from .message_id_queue import Handle, IdEntry
from .queue import GENERATION_BITS, QueueRecord, QueueState
from .state import EngineState

_CREATED_MASK = (1 << 47) - 1


@handles(
    wire.CreateQueue, wire.CreateGroupedQueue, wire.CreateKeptQueue, wire.CreateStochasticQueue,
    wire.CreateExpiringQueue, wire.CreateLimitedQueue, wire.CreateGraphQueue,
)  # fmt: skip
def create_queue(state: EngineState, request: wire.CreateQueue, to: object) -> None:
    limits.check_queue_name(request.queue)
    request.settings.check()
    _check_verb(request)
    found = state.queues.get(request.queue)
    if found is not None and found.settings != request.settings:
        differ = [
            f"{name} is {getattr(found.settings, name)!r}"
            for name in Settings.__struct_fields__
            if getattr(found.settings, name) != getattr(request.settings, name)
        ]
        raise QueueExists(
            f"{request.queue} exists with other settings ({', '.join(differ)}): "
            "update it, or create it with the same"
        )
    if found is None:
        _check_room(state, request.queue, request.settings)
        _make(state, request.queue, request.settings)
        _make_dead_letter(state, request.settings)
    state.answer(to, wire.Created(found is None), (), {state.catalogue})


def _check_verb(request: wire.CreateQueue) -> None:
    """A node of an older version does not know the verbs for settings that it would ignore."""
    if request.settings.graphs is not isinstance(request, wire.CreateGraphQueue):
        raise InvalidArgument(
            "a queue with graphs, and no other, is created by the request create_graph_queue"
        )
    if request.settings.graphs:
        return
    limited = isinstance(request, wire.CreateLimitedQueue)
    if request.settings.has_limits is not limited:
        raise InvalidArgument(
            "a queue with a share or a limit, and no other, is created by the request "
            "create_limited_queue"
        )
    if limited:
        return
    if request.settings.grouped is not isinstance(request, wire.CreateGroupedQueue):
        raise InvalidArgument(
            "a grouped queue, and no other, is created by the request create_grouped_queue"
        )
    if request.settings.stochastic is not isinstance(request, wire.CreateStochasticQueue):
        raise InvalidArgument(
            "a stochastic queue, and no other, is created by the request create_stochastic_queue"
        )
    if request.settings.keep_leases is not isinstance(request, wire.CreateKeptQueue):
        raise InvalidArgument(
            "a queue that keeps leases, and no other, is created by the request create_kept_queue"
        )
    if request.settings.expire_idle_ms and type(request) is wire.CreateQueue:
        raise InvalidArgument(
            "a queue with expire_idle_ms is created by the request create_expiring_queue"
        )


@handles(wire.UpdateQueue)
def update_queue(state: EngineState, request: wire.UpdateQueue, to: object) -> None:
    queue = state.queue(request.queue)
    unknown = set(request.changes) - set(Settings.__struct_fields__)
    if unknown:
        raise InvalidArgument(
            f"unknown setting: {', '.join(sorted(unknown))}; the settings are "
            f"{', '.join(Settings.__struct_fields__)}"
        )
    try:
        settings = msgspec.convert(
            msgspec.structs.asdict(queue.settings) | request.changes, _SettingsByName
        )
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{error}") from None
    changed = Settings(*msgspec.structs.astuple(settings))
    changed.check()
    for fixed in ("ordered", "grouped", "keep_leases", "kind"):
        if getattr(changed, fixed) != getattr(queue.settings, fixed):
            raise InvalidArgument(
                f"{fixed} of {request.queue} cannot be changed after creation: create another queue"
            )
    if queue.settings.graphs and not changed.graphs:
        raise InvalidArgument(
            f"graphs of {request.queue} stays on: its tasks may wait for others. Create another "
            "queue for a queue without graphs"
        )
    _check_room(state, request.queue, changed)
    settle(state, queue, QueueRecord(queue.created, queue.generation, changed))
    idle_queues.note(state, queue)
    _save(state, queue)
    _make_dead_letter(state, changed)
    state.answer(to, wire.Done(), (), {state.catalogue})


#: Settings as a mapping, because `Settings` is an array on the wire.
_SettingsByName = msgspec.defstruct(
    "SettingsByName",
    [(name, type(getattr(Settings(), name))) for name in Settings.__struct_fields__],
)


@handles(wire.DeleteQueue)
def delete_queue(state: EngineState, request: wire.DeleteQueue, to: object) -> None:
    queue = state.queue(request.queue)
    users = [
        other.name for other in state.queues.values() if other.settings.dead_letter == queue.name
    ]
    if users:
        raise QueueInUse(
            f"{queue.name} is the dead letter of {', '.join(users[:5])}: "
            "update or delete those first"
        )
    topic.check_unfed(state, queue.name)
    drop(state, queue)
    state.overlay.delete(layout.of_catalogue(queue.name))
    state.answer(to, wire.Done(queue.messages), (), {state.catalogue})


@handles(wire.PurgeQueue)
def purge_queue(state: EngineState, request: wire.PurgeQueue, to: object) -> None:
    """Drops all messages, leased messages included, by starting an empty generation."""
    old = state.queue(request.queue)
    generation = (old.generation + 1) % (1 << GENERATION_BITS)
    new = renew(state, old, QueueRecord(old.created, generation, old.settings))
    _save(state, new)
    state.answer(to, wire.Done(old.messages), (), {state.catalogue})


@handles(wire.ListQueues)
def list_queues(state: EngineState, request: wire.ListQueues, to: object) -> None:
    limits.check_range("limit", request.limit, 1, limits.POP_COUNT_MAX)
    names = sorted(
        name for name in state.queues if name.startswith(request.prefix) and name > request.after
    )
    fed = topic.by_queue(state)
    page = [
        msgspec.structs.replace(info, topics=fed[name]) if name in fed else info
        for name in names[: request.limit]
        if (info := state.queues[name].info(state.now))
    ]
    state.answer(to, wire.Queues(page, len(names) > request.limit, _counted(state)))


@handles(wire.DescribeQueue)
def describe_queue(state: EngineState, request: wire.DescribeQueue, to: object) -> None:
    info = state.queue(request.queue).info(state.now)
    info = msgspec.structs.replace(info, topics=topic.feeding(state, request.queue))
    state.answer(to, wire.Queues([info], False, _counted(state)))


def _counted(state: EngineState) -> int:
    """Number of partitions counted by this node: the led partitions except the catalogue."""
    return len(state.led - {state.catalogue})


@handles(wire.Redrive)
def redrive(state: EngineState, request: wire.Redrive, to: object) -> None:
    queue = state.queue(request.queue)
    limits.check_range("limit", request.limit, 0, 1 << 40)
    state.jobs.append(_redrive(state, queue, request.limit or queue.ready, to))


def _redrive(state: EngineState, queue: QueueState, most: int, to: object) -> Generator[None]:
    """Returns dead letters to their origin queues; dead letters without an origin, or with one that
    does not take them, stay."""
    moved = steps = 0
    stay: list[tuple[TouchedBatch, int]] = []
    rests_on: set[int] = set()
    entries = queue.ready  # an upper bound: a message which stays is examined once
    while moved < most and entries > 0 and state.by_id.get(queue.id) is queue:
        entry = queue.ids.take()
        if entry is None:
            break
        batch, part = state.part(entry)
        if part.count > most - moved:
            part, rest = split(part, most - moved)
            batch.parts[rest.first] = rest
            queue.ids.add_returned(batch.head.priority, IdEntry(batch.handle, rest.first))
        entries -= part.count
        origin = state.queues.get(part.origin)
        queue.ready -= part.count
        queue.bytes -= batch.share(part.first, part.count)
        if origin is None or not _takes_back(state, origin, batch):
            batch.parts[part.first] = part
            batch.pinned = True
            stay.append((batch, part.first))
        else:
            state.wait(origin, batch, _redriven(part, origin))
            state.changed(batch)
            rests_on.add(Handle.partition(batch.handle))
            moved += part.count
        steps += 1
        if steps % STEP == 0:
            yield
    for batch, first in stay:
        if state.touched.get(Handle.key(batch.handle)) is not batch:
            continue  # another node leads the partition now
        batch.pinned = False
        part = batch.parts.pop(first)
        if state.by_id.get(queue.id) is queue:
            state.wait(queue, batch, part)
        else:  # the queue was purged or deleted during the redrive
            batch.purged |= message_set.of_range(part.first, part.count)
            state.changed(batch)
    state.answer(to, wire.Done(moved), (), rests_on)


def _takes_back(state: EngineState, origin: QueueState, batch: TouchedBatch) -> bool:
    """False for a queue that was created again as a grouped or ordered one: a message without a
    group, or on another partition, has no place in its order."""
    if origin.settings.grouped:
        return batch.head.group is not None
    place = placement.of_text(origin.name, state.partitions)
    return not origin.settings.ordered or Handle.partition(batch.handle) == place


def _redriven(part: Part, origin: QueueState) -> Part:
    return Part(part.first, part.count, origin.id, waits=part.waits)


def _make(state: EngineState, name: str, settings: Settings) -> None:
    created = 0
    while not created or created in state.by_created:
        seed = state.stamp()
        created = xxhash.xxh3_64_intdigest(name.encode(), seed) & _CREATED_MASK
    queue = QueueState(name, QueueRecord(created, 0, settings), state.describe)
    enter(state, queue)
    _save(state, queue)


def _make_dead_letter(state: EngineState, settings: Settings) -> None:
    if settings.dead_letter and settings.dead_letter not in state.queues:
        # Dead letters of a grouped queue keep their groups, and thereby their order.
        _make(state, settings.dead_letter, Settings(grouped=settings.grouped))


def _check_room(state: EngineState, name: str, settings: Settings) -> None:
    """Runs all checks which may refuse the request, before any change."""
    if settings.dead_letter == name:
        raise InvalidArgument(f"{name} cannot be its own dead letter")
    target = state.queues.get(settings.dead_letter)
    if target is not None and target.settings.grouped and not settings.grouped:
        raise InvalidArgument(
            f"the dead letter queue {target.name} is grouped, and messages of {name} have no "
            "group: name another dead letter queue"
        )
    new = {name, settings.dead_letter} - {""} - set(state.queues)
    for each in new:
        topic.check_free(state, each)
    if new:
        state.check_space()
    if new and len(state.queues) + len(new) > limits.QUEUES_MAX:
        raise Overloaded(
            f"the node has {len(state.queues)} of at most {limits.QUEUES_MAX} queues: delete some"
        )


def _save(state: EngineState, queue: QueueState) -> None:
    state.overlay.put(layout.of_catalogue(queue.name), stored.encode(queue.record()))
