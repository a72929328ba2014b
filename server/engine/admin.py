"""The verbs on queues: create, update, delete, list, describe, purge, redrive."""

from __future__ import annotations

from collections.abc import Generator

import msgspec
import xxhash

from weft import limits
from weft.errors import InvalidArgument, Overloaded, QueueExists, QueueInUse
from weft.persistence import layout
from weft.proto import wire
from weft.proto.settings import Settings

from . import handle, message_set
from . import queue as stored
from .batch import TouchedBatch, split
from .catalogue import drop, enter, renew, settle
from .cleanup import STEP
from .handlers import handles
from .head import Part
from .message_id_queue import IdEntry
from .queue import GENERATION_BITS, QueueRecord, QueueState
from .state import EngineState

_CREATED_MASK = (1 << 47) - 1


@handles(wire.CreateQueue)
def create_queue(state: EngineState, request: wire.CreateQueue, to: object) -> None:
    limits.check_queue_name(request.queue)
    request.settings.check()
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


@handles(wire.UpdateQueue)
def update_queue(state: EngineState, request: wire.UpdateQueue, to: object) -> None:
    queue = state.queue(request.queue)
    unknown = set(request.changes) - set(Settings.__struct_fields__)
    if unknown:
        raise InvalidArgument(
            f"no such setting: {', '.join(sorted(unknown))}; there are "
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
    if changed.ordered != queue.settings.ordered:
        raise InvalidArgument("ordered is decided when a queue is made: make another one")
    _check_room(state, request.queue, changed)
    settle(queue, QueueRecord(queue.created, queue.generation, changed))
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
    drop(state, queue)
    state.overlay.delete(layout.queue(queue.name))
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
    page = [state.queues[name].info(state.now) for name in names[: request.limit]]
    state.answer(to, wire.Queues(page, len(names) > request.limit, _counted(state)))


@handles(wire.DescribeQueue)
def describe_queue(state: EngineState, request: wire.DescribeQueue, to: object) -> None:
    info = state.queue(request.queue).info(state.now)
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
    """Returns dead letters to their origin queues; dead letters without an origin stay."""
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
        if origin is None:
            batch.parts[part.first] = part
            stay.append((batch, part.first))
        else:
            state.wait(origin, batch, Part(part.first, part.count, origin.id))
            state.changed(batch)
            rests_on.add(handle.partition(batch.handle))
            moved += part.count
        steps += 1
        if steps % STEP == 0:
            yield
    for batch, first in stay:
        if state.touched.get(handle.key(batch.handle)) is not batch:
            continue  # another node leads the partition now
        part = batch.parts.pop(first)
        if state.by_id.get(queue.id) is queue:
            state.wait(queue, batch, part)
        else:  # the queue was purged or deleted during the redrive
            batch.purged |= message_set.of_range(part.first, part.count)
            state.changed(batch)
    state.answer(to, wire.Done(moved), (), rests_on)


def _make(state: EngineState, name: str, settings: Settings) -> None:
    created = 0
    while not created or created in state.by_created:
        seed = state.stamp()
        created = xxhash.xxh3_64_intdigest(name.encode(), seed) & _CREATED_MASK
    queue = QueueState(name, QueueRecord(created, 0, settings))
    enter(state, queue)
    _save(state, queue)


def _make_dead_letter(state: EngineState, settings: Settings) -> None:
    if settings.dead_letter and settings.dead_letter not in state.queues:
        _make(state, settings.dead_letter, Settings())


def _check_room(state: EngineState, name: str, settings: Settings) -> None:
    """Runs all checks which may refuse the request, before any change."""
    if settings.dead_letter == name:
        raise InvalidArgument(f"{name} cannot be its own dead letter")
    new = {name, settings.dead_letter} - {""} - set(state.queues)
    if new:
        state.check_space()
    if new and len(state.queues) + len(new) > limits.QUEUES_MAX:
        raise Overloaded(f"there are {len(state.queues)} queues of {limits.QUEUES_MAX} allowed")


def _save(state: EngineState, queue: QueueState) -> None:
    state.overlay.put(layout.queue(queue.name), stored.encode(queue.record()))
