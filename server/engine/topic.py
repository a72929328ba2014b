"""Topics: names that stand for the queues bound to them, each with a filter on headers.

A topic is a record of the catalogue, like a queue. The catalogue's primary changes it in the verbs
below; other nodes apply the change in ``catalogue``. A topic has no messages: a push to the topic
is a multicast to the queues bound at that moment (``multicast``).

Invariants:
- A bound queue exists: a bind of an unknown queue, and the delete of a bound queue, are refused.
- A name is a queue or a topic, not both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from weft import limits
from weft.errors import InvalidArgument, Overloaded, QueueInUse, Unavailable
from weft.persistence import layout
from weft.proto import wire

from . import message_set
from .handlers import handles
from .state import EngineState

#: The feature of a cluster whose members all know topics and multicasts.
MULTICAST = "multicast"

Headers = Mapping[str, str] | None


class TopicRecord(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of a topic, under the topic's name."""

    bindings: list[wire.Binding]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(TopicRecord).decode


class TopicState:
    __slots__ = ("bindings", "filters", "name")

    def __init__(self, name: str, record: TopicRecord) -> None:
        self.name = name
        self.bindings = {each.queue: each for each in record.bindings}
        #: True if a binding looks at headers; otherwise no payload is decoded.
        self.filters = any(each.headers or each.prefixes for each in record.bindings)

    def info(self) -> wire.TopicInfo:
        return wire.TopicInfo(self.name, list(self.bindings.values()))


def matches(binding: wire.Binding, headers: Headers) -> bool:
    """True if a message has all headers of a binding's filter."""
    have = headers or {}
    return all(have.get(name) == value for name, value in binding.headers.items()) and all(
        name in have and have[name].startswith(value) for name, value in binding.prefixes.items()
    )


def matching(
    binding: wire.Binding, column: list[dict[str, str] | None] | None, count: int
) -> list[tuple[int, int]]:
    """(first, count) of the messages of a batch that match; `column`: the batch's headers."""
    if not binding.headers and not binding.prefixes:
        return [(0, count)]
    if column is None:
        return []
    bits = sum(1 << index for index, each in enumerate(column) if matches(binding, each))
    return list(message_set.runs(bits))


def feeding(state: EngineState, queue: str) -> list[str]:
    """The topics to which a queue is bound."""
    return by_queue(state).get(queue, [])


def by_queue(state: EngineState) -> dict[str, list[str]]:
    """The topics of each bound queue."""
    found: dict[str, list[str]] = {}
    for name, topic in sorted(state.topics.items()):
        for queue in topic.bindings:
            found.setdefault(queue, []).append(name)
    return found


def check_unfed(state: EngineState, queue: str) -> None:
    """Refuses to delete a queue that a topic feeds."""
    if topics := feeding(state, queue):
        raise QueueInUse(
            f"{queue} is bound to the topic {', '.join(topics[:5])}: unbind it first "
            f"(weft topic unbind {topics[0]} {queue})"
        )


def check_free(state: EngineState, name: str) -> None:
    """Refuses a queue with the name of a topic."""
    if name in state.topics:
        raise InvalidArgument(f"{name} is a topic: choose another name for the queue")


def enable(state: EngineState, feature: str = MULTICAST) -> None:
    """Records that a feature is in use, so that no member without it may join.

    A node that leads the catalogue does so itself. The operation of another node has asked all
    members before (``core.topic_operations``).
    """
    if feature in state.features:
        return
    if state.catalogue not in state.led:
        raise Unavailable("this node has not learned yet that the cluster uses multicasts: retry")
    state.features.add(feature)
    state.overlay.put(layout.of_catalogue(feature, layout.FEATURE), b"")


@handles(wire.EnableMulticast)
def enable_multicast(state: EngineState, request: wire.EnableMulticast, to: object) -> None:
    enable(state)
    state.answer(to, wire.Done(), (), {state.catalogue})


@handles(wire.CreateTopic)
def create_topic(state: EngineState, request: wire.CreateTopic, to: object) -> None:
    limits.check_queue_name(request.topic)
    if request.topic in state.queues:
        raise InvalidArgument(f"{request.topic} is a queue: choose another name for the topic")
    new = request.topic not in state.topics
    if new:
        state.check_space()
        if len(state.topics) >= limits.TOPICS_MAX:
            raise Overloaded(f"the cluster has {limits.TOPICS_MAX} topics: delete some")
        enable(state)
        _save(state, request.topic, ())
    state.answer(to, wire.Created(new), (), {state.catalogue})


@handles(wire.DeleteTopic)
def delete_topic(state: EngineState, request: wire.DeleteTopic, to: object) -> None:
    topic = state.topic(request.topic)
    del state.topics[topic.name]
    state.overlay.delete(layout.of_catalogue(topic.name, layout.TOPIC))
    state.answer(to, wire.Done(), (), {state.catalogue})


@handles(wire.Bind)
def bind(state: EngineState, request: wire.Bind, to: object) -> None:
    topic, queue = state.topic(request.topic), state.queue(request.queue)
    _check_filter(request)
    new = queue.name not in topic.bindings
    if new and len(topic.bindings) >= limits.MULTICAST_QUEUES_MAX:
        raise InvalidArgument(f"a topic has at most {limits.MULTICAST_QUEUES_MAX} queues")
    binding = wire.Binding(queue.name, request.headers, request.prefixes)
    state.check_space()
    # A bound queue keeps its place, so a resent push is answered with the same ids.
    _save(state, topic.name, (topic.bindings | {queue.name: binding}).values())
    state.answer(to, wire.Created(new), (), {state.catalogue})


@handles(wire.Unbind)
def unbind(state: EngineState, request: wire.Unbind, to: object) -> None:
    topic = state.topic(request.topic)
    kept = [each for each in topic.bindings.values() if each.queue != request.queue]
    found = len(topic.bindings) - len(kept)
    if found:
        _save(state, topic.name, kept)
    state.answer(to, wire.Done(found), (), {state.catalogue})


@handles(wire.ListTopics)
def list_topics(state: EngineState, request: wire.ListTopics, to: object) -> None:
    limits.check_range("limit", request.limit, 1, limits.POP_COUNT_MAX)
    names = sorted(
        name for name in state.topics if name.startswith(request.prefix) and name > request.after
    )
    page = [state.topics[name].info() for name in names[: request.limit]]
    state.answer(to, wire.Topics(page, len(names) > len(page)), (), {state.catalogue}, sure=True)


@handles(wire.DescribeTopic)
def describe_topic(state: EngineState, request: wire.DescribeTopic, to: object) -> None:
    info = state.topic(request.topic).info()
    state.answer(to, wire.Topics([info]), (), {state.catalogue}, sure=True)


def learn(state: EngineState, name: str, record: TopicRecord | None) -> None:
    """Applies a record from the store; None: the topic was deleted."""
    if record is None:
        state.topics.pop(name, None)
    else:
        state.topics[name] = TopicState(name, record)


def _check_filter(request: wire.Bind) -> None:
    wanted = [*request.headers.items(), *request.prefixes.items()]
    size = sum(len(name.encode()) + len(value.encode()) for name, value in wanted)
    limits.check_range("bytes of a filter", size, 0, limits.FILTER_BYTES_MAX)


def _save(state: EngineState, name: str, bindings: Iterable[wire.Binding]) -> None:
    record = TopicRecord(list(bindings))
    learn(state, name, record)
    state.overlay.put(layout.of_catalogue(name, layout.TOPIC), encode(record))
