"""An app that publishes in batches: which of its stages are closed, and which batch is out.

It is kept on the partition of its name (`home`), replicated as everything is. Tasks stage messages
on any partition (``stage``) and then close their stage here. A publish is decided here first: the
tokens of the winners of one batch, for good. Then every partition is told to reveal those and to
drop the others, again and again until all have done it; then the batch is the last one published.
Batches are carried out one after the other.

Every stage's fate is decided here and only here: it is open, or closed, or given up (an abort, or
nobody published it for its ttl), or decided about. What was given up can be no winner, so that no
partition ever drops what another one reveals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft import limits
from weft.dht import placement
from weft.errors import Fenced, InvalidArgument, Overloaded
from weft.persistence import layout
from weft.proto import streams, wire

from .hold import AppKey

if TYPE_CHECKING:
    from .state import State


class Pending(msgspec.Struct, array_like=True, frozen=True):
    """A decision that is being carried out."""

    batch: int
    tokens: list[int]
    messages: int


class AppRecord(msgspec.Struct, array_like=True, frozen=True):
    """An app as it is stored."""

    #: The last batch that was published, and its messages; -1: none was.
    last: int = -1
    messages: int = 0
    pending: Pending | None = None


class Closed(msgspec.Struct, array_like=True, frozen=True):
    """A stage that was closed, or given up."""

    part: int
    attempt: int
    count: int
    stamp: int
    given_up: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AppRecord).decode
_decode_closed = msgspec.msgpack.Decoder(Closed).decode


class App:
    def __init__(self, partition: int, queue: int, name: str, record: AppRecord) -> None:
        self.partition = partition
        self.queue = queue  # created of the queue
        self.name = name
        self.record = record
        self.closed: dict[tuple[int, int], Closed] = {}  # (batch, token)

    @property
    def key(self) -> AppKey:
        return self.queue, self.name

    @property
    def decided(self) -> int:
        """No batch up to this one is open any more."""
        pending = self.record.pending
        return pending.batch if pending is not None else self.record.last

    def save(self, state: State, record: AppRecord) -> None:
        self.record = record
        place = layout.named(layout.APP, self.partition, self.queue, self.name)
        state.overlay.put(place, _encode(record))
        if record.pending is not None:
            state.publishing.add(self.key)
        else:
            state.publishing.discard(self.key)

    def enter(self, state: State, batch: int, token: int, closed: Closed) -> None:
        self.closed[batch, token] = closed
        place = layout.closed(self.partition, self.queue, self.name, batch, token)
        state.overlay.put(place, _encode(closed))

    def strike(self, state: State, batch: int, token: int) -> None:
        del self.closed[batch, token]
        place = layout.closed(self.partition, self.queue, self.name, batch, token)
        state.overlay.delete(place)


def home(queue: str, app: str, partitions: int) -> int:
    """The partition of an app's record."""
    return placement.of_text(f"{queue}/{app}/app", partitions)


def load(state: State, partition: int) -> None:
    """The apps of a partition that is adopted."""
    ranges = layout.partition_range
    for key, data in state.overlay.scan(*ranges(layout.APP, partition)):
        created, name = layout.unpack_named(key)
        app = App(partition, created, name, _decode(data))
        state.apps[app.key] = app
        if app.record.pending is not None:
            state.publishing.add(app.key)
    for key, data in state.overlay.scan(*ranges(layout.CLOSED, partition)):
        created, name, batch, token = layout.unpack_closed(key)
        if (created, name) not in state.apps:  # one that has published nothing yet
            state.apps[created, name] = App(partition, created, name, AppRecord())
        state.apps[created, name].closed[batch, token] = _decode_closed(data)


def forget(state: State, partitions: set[int]) -> None:
    for app in [each for each in state.apps.values() if each.partition in partitions]:
        del state.apps[app.key]
        state.publishing.discard(app.key)


def drop(state: State, app: App) -> None:
    """Its queue is no more."""
    for batch, token in list(app.closed):
        app.strike(state, batch, token)
    state.overlay.delete(layout.named(layout.APP, app.partition, app.queue, app.name))
    del state.apps[app.key]
    state.publishing.discard(app.key)


# --- the verbs, at the home -------------------------------------------------------------------


def close_stage(state: State, request: streams.CloseStage, to: object) -> None:
    app = _of(state, request.queue, request.app)
    check_numbers(request.batch, request.part, request.attempt)
    limits.check_range("token", request.token, 1, limits.NUMBER_MAX)
    limits.check_range("count", request.count, 0, limits.NUMBER_MAX)
    known = app.closed.get((request.batch, request.token))
    if known is not None and known.given_up:
        raise Fenced(
            f"this stage of batch {request.batch} of {app.name} was given up: the batch was "
            f"aborted, or the stage was silent for {limits.STAGE_TTL_MS} ms"
        )
    if known is None:
        if request.batch <= app.decided:
            raise already(app.name, request.batch)
        if len(app.closed) >= limits.STAGES_MAX:
            raise Overloaded(
                f"{limits.STAGES_MAX} stages of {app.name} are closed and not published"
            )
        closed = Closed(request.part, request.attempt, request.count, state.stamp())
        app.enter(state, request.batch, request.token, closed)
    state.answer(to, wire.Done(request.count), (), {app.partition})


def decide(state: State, request: streams.Decide, to: object) -> None:
    app = _of(state, request.queue, request.app)
    check_numbers(request.batch, 0, 0)
    record, pending = app.record, app.record.pending
    answer: wire.AnyAnswer
    if pending is not None and request.batch >= pending.batch:
        answer = streams.Decision(pending.batch, pending.tokens, pending.messages)
    elif request.batch <= app.decided:
        messages = record.messages if request.batch == record.last else 0
        answer = streams.Published(messages, True)
    else:
        winners = _winners(app, request)
        messages = sum(app.closed[request.batch, token].count for token in winners)
        decided = Pending(request.batch, winners, messages)
        app.save(state, AppRecord(record.last, record.messages, decided))
        answer = streams.Decision(request.batch, winners, messages)
    state.answer(to, answer, (), {app.partition}, sure=True)


def decided(state: State, request: streams.Decided, to: object) -> None:
    app = _of(state, request.queue, request.app)
    pending = app.record.pending
    if pending is not None and pending.batch == request.batch:
        app.save(state, AppRecord(pending.batch, pending.messages))
        for batch, token in [each for each in app.closed if each[0] <= pending.batch]:
            app.strike(state, batch, token)
    state.answer(to, wire.Done(), (), {app.partition}, sure=True)


def give_up_stages(state: State, request: streams.GiveUpStages, to: object) -> None:
    app = _of(state, request.queue, request.app)
    dead = [
        position
        for position, (batch, token) in enumerate(request.stages)
        if _is_dead(state, app, batch, token, expire=request.expire)
    ]
    state.answer(to, streams.Judged(dead), (), {app.partition}, sure=True)


def last_published(state: State, request: streams.LastPublished, to: object) -> None:
    app = _of(state, request.queue, request.app)
    last = app.record.last
    answer = streams.LastBatch(last if last >= 0 else None)
    state.answer(to, answer, (), {app.partition}, sure=True)


# --- inside -----------------------------------------------------------------------------------


def _of(state: State, queue: str, name: str) -> App:
    """The app; one that is not known has published nothing, and is written when it has."""
    limits.check_name("an app", name)
    created = state.queue(queue).created
    found = state.apps.get((created, name))
    if found is None:
        if len(state.apps) >= limits.APPS_MAX:
            raise Overloaded(f"{limits.APPS_MAX} apps publish from this node")
        found = App(home(queue, name, state.partitions), created, name, AppRecord())
        state.apps[found.key] = found
    return found


def check_numbers(batch: int, part: int, attempt: int) -> None:
    limits.check_range("batch", batch, 0, limits.NUMBER_MAX)
    limits.check_range("partition", part, 0, limits.NUMBER_MAX)
    limits.check_range("attempt", attempt, 0, limits.NUMBER_MAX)


def already(app: str, batch: int) -> Fenced:
    return Fenced(f"batch {batch} of {app} is published already: an attempt at it must stop")


def _winners(app: App, request: streams.Decide) -> list[int]:
    """The tokens of the winners, which must all be closed and not given up."""
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
                f"partition {part}: it was never closed, or it was given up"
            )
        tokens.append(token)
    return tokens


def _is_dead(state: State, app: App, batch: int, token: int, *, expire: bool) -> bool:
    """Whether a stage will never be published; with `expire` one that is open is given up."""
    if batch <= app.record.last:
        return True
    if batch <= app.decided:
        return False  # what reveals the winners drops the others
    known = app.closed.get((batch, token))
    if known is not None and known.given_up:
        return True
    if expire:
        stamp = state.stamp()
        given_up = Closed(0, 0, 0, stamp, True) if known is None else Closed(
            known.part, known.attempt, known.count, stamp, True
        )  # fmt: skip
        app.enter(state, batch, token, given_up)
    return expire
