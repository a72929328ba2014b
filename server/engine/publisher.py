"""An app publishing in batches: the app's closed stages and last published batch.

The record of an app is on the partition of the app's name (`home`), replicated like all state.
Tasks stage messages on any partition (``stage``) and then close their stage here. The home first
decides a publish: the tokens of the winners of one batch, final. Then every partition reveals
the winners and drops the other stages; the primary of the home retries until all partitions are
done. Then the batch is the last published batch. Batches are published one after the other.

The state of a stage is decided only here:

| state    | meaning                                                               |
|----------|-----------------------------------------------------------------------|
| open     | not closed yet                                                        |
| closed   | may become a winner                                                   |
| given up | aborted, or not published within the stage's ttl; never a winner      |
| decided  | the batch has a decision: winners are revealed, other stages dropped  |

Invariant: a stage given up is never a winner, so no partition drops a stage revealed by another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft import limits
from weft.dht import placement
from weft.errors import Fenced, InvalidArgument, Overloaded
from weft.persistence import layout
from weft.proto import pipelines, wire

from .handlers import handles
from .hold import AppKey

if TYPE_CHECKING:
    from .state import EngineState


class PendingPublish(msgspec.Struct, array_like=True, frozen=True):
    """A decision in progress on the partitions."""

    batch: int
    tokens: list[int]
    messages: int


class PublisherRecord(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of an app."""

    #: The last published batch, and its messages; -1: none.
    last: int = -1
    messages: int = 0
    pending: PendingPublish | None = None


class ClosedStage(msgspec.Struct, array_like=True, frozen=True):
    """A closed stage, or a stage given up."""

    part: int
    attempt: int
    count: int
    stamp: int
    given_up: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PublisherRecord).decode
_decode_closed = msgspec.msgpack.Decoder(ClosedStage).decode


class Publisher:
    def __init__(self, partition: int, queue: int, name: str, record: PublisherRecord) -> None:
        self.partition = partition
        self.queue = queue  # created of the queue
        self.name = name
        self.record = record
        self.closed: dict[tuple[int, int], ClosedStage] = {}  # (batch, token)

    @property
    def key(self) -> AppKey:
        return self.queue, self.name

    @property
    def decided(self) -> int:
        """The last batch with a decision; every batch up to here is closed for stages."""
        pending = self.record.pending
        return pending.batch if pending is not None else self.record.last

    def save(self, state: EngineState, record: PublisherRecord) -> None:
        self.record = record
        place = layout.named(layout.APP, self.partition, self.queue, self.name)
        state.overlay.put(place, _encode(record))
        if record.pending is not None:
            state.publishing.add(self.key)
        else:
            state.publishing.discard(self.key)

    def enter(self, state: EngineState, batch: int, token: int, closed: ClosedStage) -> None:
        self.closed[batch, token] = closed
        place = layout.closed(self.partition, self.queue, self.name, batch, token)
        state.overlay.put(place, _encode(closed))

    def strike(self, state: EngineState, batch: int, token: int) -> None:
        del self.closed[batch, token]
        place = layout.closed(self.partition, self.queue, self.name, batch, token)
        state.overlay.delete(place)


def home(queue: str, app: str, partitions: int) -> int:
    """The partition of an app's record."""
    return placement.of_text(f"{queue}/{app}/app", partitions)


def load(state: EngineState, partition: int) -> None:
    """Loads the apps of an adopted partition."""
    ranges = layout.partition_range
    for key, data in state.overlay.scan(*ranges(layout.APP, partition)):
        created, name = layout.unpack_named(key)
        app = Publisher(partition, created, name, _decode(data))
        state.apps[app.key] = app
        if app.record.pending is not None:
            state.publishing.add(app.key)
    for key, data in state.overlay.scan(*ranges(layout.CLOSED, partition)):
        created, name, batch, token = layout.unpack_closed(key)
        if (created, name) not in state.apps:  # an app with no publish yet
            state.apps[created, name] = Publisher(partition, created, name, PublisherRecord())
        state.apps[created, name].closed[batch, token] = _decode_closed(data)


def forget(state: EngineState, partitions: set[int]) -> None:
    for app in [each for each in state.apps.values() if each.partition in partitions]:
        del state.apps[app.key]
        state.publishing.discard(app.key)


def drop(state: EngineState, app: Publisher) -> None:
    """Deletes an app after its queue was deleted."""
    for batch, token in list(app.closed):
        app.strike(state, batch, token)
    state.overlay.delete(layout.named(layout.APP, app.partition, app.queue, app.name))
    del state.apps[app.key]
    state.publishing.discard(app.key)


# --- the verbs, at the home -------------------------------------------------------------------


@handles(pipelines.CloseStage)
def close_stage(state: EngineState, request: pipelines.CloseStage, to: object) -> None:
    app = _of(state, request.queue, request.app)
    check_numbers(request.batch, request.part, request.attempt)
    limits.check_range("token", request.token, 1, limits.NUMBER_MAX)
    limits.check_range("count", request.count, 0, limits.NUMBER_MAX)
    known = app.closed.get((request.batch, request.token))
    if known is not None and known.given_up:
        raise Fenced(
            f"this stage of batch {request.batch} of {app.name} was discarded: the batch was "
            f"aborted, or the stage was silent for {limits.STAGE_TTL_MS} ms"
        )
    if known is None:
        if request.batch <= app.decided:
            raise already(app.name, request.batch)
        if len(app.closed) >= limits.STAGES_MAX:
            raise Overloaded(
                f"{limits.STAGES_MAX} stages of {app.name} are closed and not published"
            )
        closed = ClosedStage(request.part, request.attempt, request.count, state.stamp())
        app.enter(state, request.batch, request.token, closed)
    state.answer(to, wire.Done(request.count), (), {app.partition})


@handles(pipelines.Decide)
def decide(state: EngineState, request: pipelines.Decide, to: object) -> None:
    app = _of(state, request.queue, request.app)
    check_numbers(request.batch, 0, 0)
    record, pending = app.record, app.record.pending
    answer: wire.AnyAnswer
    if pending is not None and request.batch >= pending.batch:
        answer = pipelines.Decision(pending.batch, pending.tokens, pending.messages)
    elif request.batch <= app.decided:
        messages = record.messages if request.batch == record.last else 0
        answer = pipelines.PublishResult(messages, True)
    else:
        winners = _winners(app, request)
        messages = sum(app.closed[request.batch, token].count for token in winners)
        decided = PendingPublish(request.batch, winners, messages)
        app.save(state, PublisherRecord(record.last, record.messages, decided))
        answer = pipelines.Decision(request.batch, winners, messages)
    state.answer(to, answer, (), {app.partition}, sure=True)


@handles(pipelines.Decided)
def decided(state: EngineState, request: pipelines.Decided, to: object) -> None:
    app = _of(state, request.queue, request.app)
    pending = app.record.pending
    if pending is not None and pending.batch == request.batch:
        app.save(state, PublisherRecord(pending.batch, pending.messages))
        for batch, token in [each for each in app.closed if each[0] <= pending.batch]:
            app.strike(state, batch, token)
    state.answer(to, wire.Done(), (), {app.partition}, sure=True)


@handles(pipelines.GiveUpStages)
def give_up_stages(state: EngineState, request: pipelines.GiveUpStages, to: object) -> None:
    app = _of(state, request.queue, request.app)
    dead = [
        position
        for position, (batch, token) in enumerate(request.stages)
        if _is_dead(state, app, batch, token, expire=request.expire)
    ]
    state.answer(to, pipelines.Judged(dead), (), {app.partition}, sure=True)


@handles(pipelines.LastPublished)
def last_published(state: EngineState, request: pipelines.LastPublished, to: object) -> None:
    app = _of(state, request.queue, request.app)
    last = app.record.last
    answer = pipelines.LastBatch(last if last >= 0 else None)
    state.answer(to, answer, (), {app.partition}, sure=True)


# --- inside -----------------------------------------------------------------------------------


def _of(state: EngineState, queue: str, name: str) -> Publisher:
    """The app. An unknown app has published nothing, and is stored with its first publish."""
    limits.check_name("an app", name)
    created = state.queue(queue).created
    found = state.apps.get((created, name))
    if found is None:
        if len(state.apps) >= limits.APPS_MAX:
            raise Overloaded(f"{limits.APPS_MAX} apps publish from this node")
        found = Publisher(home(queue, name, state.partitions), created, name, PublisherRecord())
        state.apps[found.key] = found
    return found


def check_numbers(batch: int, part: int, attempt: int) -> None:
    limits.check_range("batch", batch, 0, limits.NUMBER_MAX)
    limits.check_range("partition", part, 0, limits.NUMBER_MAX)
    limits.check_range("attempt", attempt, 0, limits.NUMBER_MAX)


def already(app: str, batch: int) -> Fenced:
    return Fenced(f"batch {batch} of {app} is published already: an attempt at it must stop")


def _winners(app: Publisher, request: pipelines.Decide) -> list[int]:
    """The tokens of the winners; every winner must be closed and not given up."""
    if len(request.winners) > limits.STAGES_MAX:
        raise InvalidArgument(f"a publish has at most {limits.STAGES_MAX} winners")
    latest: dict[tuple[int, int], tuple[int, int]] = {}
    named: set[tuple[int, int, int]] = set()
    for (batch, token), closed in app.closed.items():
        if batch == request.batch and not closed.given_up:
            place = closed.part, closed.attempt
            latest[place] = max(latest.get(place, (0, 0)), (closed.stamp, token))
            named.add((*place, token))
    tokens: list[int] = []
    parts: set[int] = set()
    for part, attempt, token in request.winners:
        if part in parts:
            raise InvalidArgument(f"partition {part} has two winners")
        parts.add(part)
        if not token and (part, attempt) in latest:
            token = latest[part, attempt][1]
        if (part, attempt, token) not in named:
            raise InvalidArgument(
                f"no closed stage of batch {request.batch} of {app.name} is attempt {attempt} at "
                f"partition {part}: the stage was never closed, or was discarded"
            )
        tokens.append(token)
    return tokens


def _is_dead(state: EngineState, app: Publisher, batch: int, token: int, *, expire: bool) -> bool:
    """True if a stage will never be published; `expire` gives up an undecided stage."""
    if batch <= app.record.last:
        return True
    if batch <= app.decided:
        return False  # `reveal` publishes the winners and drops the other stages
    known = app.closed.get((batch, token))
    if known is not None and known.given_up:
        return True
    if expire:
        stamp = state.stamp()
        given_up = ClosedStage(0, 0, 0, stamp, True) if known is None else ClosedStage(
            known.part, known.attempt, known.count, stamp, True
        )  # fmt: skip
        app.enter(state, batch, token, given_up)
    return expire
