"""Topics on one node: records, filters, and what a topic refuses."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig, payload_of
from weft import limits
from weft.errors import InvalidArgument, QueueInUse, QueueNotFound, TooLarge, TopicNotFound
from weft.proto import wire
from weft.server.engine.topic import matches, matching

EU = {"region": "eu"}


class TopicRig(Rig):
    """A node, with the verbs of topics."""

    def bind(self, topic: str, queue: str, **filters: dict[str, str]) -> bool:
        answer = self.call(wire.Bind(topic, queue, **filters))
        assert isinstance(answer, wire.Created)
        return answer.created

    def publish(
        self, topic: str, bodies: list[bytes], headers: list[dict[str, str] | None] | None = None
    ) -> wire.Multicasted:
        self._batches += 1
        request = wire.PushTopic(topic, 7, self._batches, len(bodies))
        answer = self.call(request, payload_of(bodies, headers))
        assert isinstance(answer, wire.Multicasted)
        return answer


def rig_of(*queues: str) -> TopicRig:
    rig = TopicRig()
    assert rig.call(wire.CreateTopic("t")) == wire.Created(True)
    for queue in queues:
        rig.create(queue)
    return rig


@pytest.mark.parametrize(
    ("exact", "prefixes", "headers", "expected"),
    [
        ({}, {}, None, True),
        (EU, {}, None, False),
        (EU, {}, {"region": "eu", "x": "y"}, True),
        (EU, {}, {"region": "eur"}, False),
        ({}, EU, {"region": "eur"}, True),
        ({}, EU, {"region": "us"}, False),
        ({}, {"region": ""}, {"region": "us"}, True),
        ({}, {"region": ""}, {}, False),
        (EU, {"x": "y"}, {"region": "eu", "x": "z"}, False),
    ],
)
def test_a_filter_matches(
    exact: dict[str, str], prefixes: dict[str, str], headers: dict[str, str] | None, expected: bool
) -> None:
    assert matches(wire.Binding("q", exact, prefixes), headers) is expected


def test_the_matching_messages_of_a_batch_are_ranges() -> None:
    binding = wire.Binding("q", EU)
    assert matching(binding, [EU, EU, None, EU], 4) == [(0, 2), (3, 1)]
    assert matching(binding, None, 4) == []
    assert matching(wire.Binding("q"), None, 4) == [(0, 4)]


def test_each_queue_gets_its_messages_also_after_a_restart() -> None:
    rig = rig_of("all", "some", "none")
    rig.bind("t", "all")
    rig.bind("t", "some", headers=EU)
    rig.bind("t", "none", headers={"region": "mars"})
    rig.restart()
    done = rig.publish("t", [b"0", b"1", b"2"], [EU, None, EU])
    assert [(copy.queue, copy.ranges) for copy in done.copies] == [
        ("all", [(0, 3)]),
        ("some", [(0, 1), (2, 1)]),
    ]
    rig.restart()
    taken = rig.pop("some", 10)
    assert [each.body for each in taken] == [b"0", b"2"]
    assert [each.index for each in taken] == [3, 5]
    rig.ack("some", *taken)
    assert rig.bodies("all", 10) == [b"0", b"1", b"2"]
    assert rig.bodies("none", 10) == []


def test_a_message_that_no_queue_wants_is_not_stored() -> None:
    rig = rig_of("q")
    assert rig.publish("t", [b"0"]).copies == []
    rig.bind("t", "q", headers=EU)
    assert rig.publish("t", [b"0"]).copies == []
    assert rig.counts("q") == (0, 0, 0)


def test_a_queue_knows_its_topics_and_is_not_deleted() -> None:
    rig = rig_of("q")
    rig.call(wire.CreateTopic("another"))
    rig.bind("t", "q")
    rig.bind("another", "q")
    assert rig.stats("q").topics == ["another", "t"]
    answer = rig.call(wire.ListQueues())
    assert isinstance(answer, wire.Queues)
    assert answer.queues[0].topics == ["another", "t"]
    with pytest.raises(QueueInUse, match="topic unbind another q"):
        rig.delete("q")
    assert rig.call(wire.Unbind("another", "q")) == wire.Done(1)
    assert rig.call(wire.Unbind("another", "q")) == wire.Done(0)
    rig.call(wire.DeleteTopic("t"))
    rig.delete("q")
    rig.restart()
    assert rig.call(wire.ListTopics()) == wire.Topics([wire.TopicInfo("another", [])])


def test_a_bind_again_replaces_the_filter() -> None:
    rig = rig_of("q")
    assert rig.bind("t", "q", headers=EU)
    assert not rig.bind("t", "q")
    assert rig.publish("t", [b"0"]).copies[0].queue == "q"


def test_what_does_not_exist_is_refused() -> None:
    rig = rig_of("q")
    with pytest.raises(TopicNotFound):
        rig.publish("nothing", [b"0"])
    with pytest.raises(TopicNotFound):
        rig.bind("nothing", "q")
    with pytest.raises(QueueNotFound):
        rig.bind("t", "nothing")
    with pytest.raises(TopicNotFound):
        rig.call(wire.DeleteTopic("nothing"))
    with pytest.raises(QueueNotFound, match="t is a topic"):
        rig.push("t", b"0")
    assert rig.call(wire.DescribeTopic("t")) == wire.Topics([wire.TopicInfo("t", [])])


def test_a_name_is_a_queue_or_a_topic() -> None:
    rig = rig_of("q")
    with pytest.raises(InvalidArgument, match="is a queue"):
        rig.call(wire.CreateTopic("q"))
    with pytest.raises(InvalidArgument, match="is a topic"):
        rig.create("t")
    with pytest.raises(InvalidArgument, match="is a topic"):
        rig.create("other", max_deliveries=1, dead_letter="t")
    with pytest.raises(InvalidArgument):
        rig.call(wire.CreateTopic("not a name"))


def test_the_limits_of_a_topic() -> None:
    rig = rig_of("q", "p")
    with pytest.raises(InvalidArgument, match="bytes of a filter"):
        rig.bind("t", "q", headers={"k": "v" * limits.FILTER_BYTES_MAX})
    rig.bind("t", "q")
    rig.bind("t", "p")
    with pytest.raises(TooLarge, match="push fewer at a time"):
        rig.publish("t", [b""] * (limits.BATCH_COUNT_MAX // 2 + 1))
    assert rig.counts("q") == (0, 0, 0)
