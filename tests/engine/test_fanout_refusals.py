"""Bad input of groups, multicasts and topics: a clear error, and no row of the store changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.rig import Rig, payload_of
from weft import errors, limits
from weft.proto import wire

Act = Callable[[Rig], object]


def multicast(*queues: str, count: int = 1, conflict_key: str | None = None) -> Act:
    request = wire.Multicast(list(queues), 7, 1, count, conflict_key=conflict_key)
    return lambda rig: rig.call(request, payload_of([b"x"] * count))


def calls(request: wire.AnyRequest) -> Act:
    return lambda rig: rig.call(request)


MANY = [f"q{number}" for number in range(limits.MULTICAST_QUEUES_MAX + 1)]

REFUSED: dict[str, tuple[type[errors.WeftError], str, Act]] = {
    "a group on a queue that is not grouped": (
        errors.InvalidArgument, "plain is not grouped",
        lambda rig: rig.push("plain", b"x", group="a"),
    ),
    "a grouped queue without a group": (
        errors.InvalidArgument, "groups is grouped", lambda rig: rig.push("groups", b"x"),
    ),
    "grouped and ordered together": (
        errors.InvalidArgument, "grouped or ordered, not both",
        lambda rig: rig.create("new", grouped=True, ordered=True),
    ),
    "more queues than the limit": (
        errors.InvalidArgument, "queues must be 1 to 256, not 257", multicast(*MANY),
    ),
    "no queue": (errors.InvalidArgument, "queues must be 1 to 256, not 0", multicast()),
    "a queue named twice": (errors.InvalidArgument, "named twice", multicast("plain", "plain")),
    "an unknown queue beside a known one": (
        errors.QueueNotFound, "'nowhere' does not exist", multicast("plain", "nowhere"),
    ),
    "a topic as a destination": (
        errors.QueueNotFound, "t is a topic, not a queue", multicast("plain", "t"),
    ),
    "a full queue beside another one": (errors.QueueFull, "full", multicast("plain", "full")),
    "a grouped queue without a conflict key": (
        errors.InvalidArgument, "conflict_key", multicast("plain", "groups"),
    ),
    "a conflict key that is too long": (
        errors.InvalidArgument, "1 to 256", multicast("groups", conflict_key="k" * 257),
    ),
    "more copies than a batch has messages": (
        errors.TooLarge, "push fewer", multicast("plain", "other", count=limits.BATCH_COUNT_MAX),
    ),
    "a bind to an unknown topic": (
        errors.TopicNotFound, "nothing", calls(wire.Bind("nothing", "plain")),
    ),
    "a bind of an unknown queue": (
        errors.QueueNotFound, "'nowhere' does not exist", calls(wire.Bind("t", "nowhere")),
    ),
    "a bind of a topic": (errors.QueueNotFound, "t is a topic", calls(wire.Bind("t", "t"))),
    "a filter that is too long": (
        errors.InvalidArgument, "bytes of a filter",
        calls(wire.Bind("t", "plain", {"k": "v" * 5_000})),
    ),
    "the delete of a queue that a topic feeds": (
        errors.QueueInUse, "fed is bound to the topic t: unbind it first",
        lambda rig: rig.delete("fed"),
    ),
    "a topic with the name of a queue": (
        errors.InvalidArgument, "plain is a queue", calls(wire.CreateTopic("plain")),
    ),
    "a queue with the name of a topic": (
        errors.InvalidArgument, "t is a topic", lambda rig: rig.create("t"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_refused_and_nothing_is_stored(what: str) -> None:
    error, words, act = REFUSED[what]
    rig = Rig()
    for name in ("plain", "other", "fed"):
        rig.create(name)
    rig.create("groups", grouped=True)
    rig.create("full", max_messages=1)
    rig.push("full", b"x")
    rig.call(wire.CreateTopic("t"))
    rig.call(wire.Bind("t", "fed"))
    before = dict(rig.store._rows)
    with pytest.raises(error, match=words) as caught:
        act(rig)
    assert caught.value.code == error.code
    assert rig.store._rows == before
    assert rig.stats("plain").ready == rig.stats("other").ready == rig.stats("fed").ready == 0


def test_a_topic_has_at_most_as_many_queues_as_a_multicast() -> None:
    rig = Rig()
    rig.call(wire.CreateTopic("t"))
    for name in MANY:
        rig.create(name)
    for name in MANY[:-1]:
        rig.call(wire.Bind("t", name))
    before = dict(rig.store._rows)
    with pytest.raises(errors.InvalidArgument, match="at most 256 queues"):
        rig.call(wire.Bind("t", MANY[-1]))
    assert rig.store._rows == before
    rig.call(wire.Bind("t", MANY[0], {"k": "v"}))  # a new filter of a bound queue needs no room


def test_a_cluster_has_a_limit_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 2)
    rig = Rig()
    for name in ("a", "b"):
        rig.call(wire.CreateTopic(name))
    before = dict(rig.store._rows)
    with pytest.raises(errors.Overloaded, match="the cluster has 2 topics: delete some"):
        rig.call(wire.CreateTopic("c"))
    assert rig.store._rows == before
    assert rig.call(wire.CreateTopic("a")) == wire.Created(False)
