"""A short round: the engine alone, on a node that is its whole cluster and has nothing else to do.

A short round must give the answers and the changes of an ordinary round, and must not run while
another part of the node core has work.
"""

from __future__ import annotations

import itertools

from weft.dht.view import Member
from weft.persistence.memory import MemoryStore
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.core.node_core import NodeCore
from weft.server.core.operation import PeerCaller
from weft.server.core.ready import Ready
from weft.server.core.request_router import SHORT_ROUND
from weft.server.engine.state import Answered

MEMBER = Member("127.0.0.1:1", "00" * 32, "127.0.0.1:2", "127.0.0.1:3", "active")
PAYLOAD = wire.encode(wire.Payload([b"body"]))


class Single:
    """The node core of a node that is its whole cluster."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.store = MemoryStore()
        self.core = NodeCore("n", "cluster", self.store, partitions=4,
                             entropy=itertools.count(1).__next__)  # fmt: skip
        self.core.found(MEMBER, 0)
        self.core.recover(self.now)
        while self.core.leads != 5:
            self.round()
        self.round((0, wire.CreateQueue("q", Settings()), ()))
        while self.core.next_due() <= self.now + 1000:
            self.round()

    def round(self, *requests: tuple[object, wire.AnyRequest, tuple[bytes, ...]]) -> Ready:
        self.now += 1000
        self.core.begin(self.now)
        for to, request, payload in requests:
            self.core.handle(request, payload, to, plain=False)
        return self._written(self.core.end())

    def short(self, *requests: tuple[object, wire.AnyRequest, tuple[bytes, ...]]) -> Ready | None:
        self.now += 1000
        ready = self.core.run_short(self.now, [(*each, None) for each in requests])
        return None if ready is None else self._written(ready)

    def _written(self, ready: Ready) -> Ready:
        self.store.write(ready.writes, sync=True)
        return ready


def push(batch: int) -> tuple[object, wire.AnyRequest, tuple[bytes, ...]]:
    return ("push", batch), wire.Push("q", 7, batch, 1), (PAYLOAD,)


def answers(ready: Ready | None) -> list[Answered]:
    assert ready is not None
    assert ready.sends == []
    return ready.answers


def test_a_short_round_answers_as_an_ordinary_round() -> None:
    short, ordinary = Single(), Single()
    for requests in (
        [push(1), push(2), ("pop", wire.Pop("q", 1), ())],
        [push(2), ("unknown", wire.Pop("none", 1), ()), ("peek", wire.Peek("q", 1), ())],
        [("ack", wire.Ack("q", [wire.Receipt(0, 1, 1)]), ()), ("wait", wire.Pop("q", 2, 50), ())],
        [("put", wire.Put("a", b"1", 7, 1, 5_000), ()), ("get", wire.Lookup("a"), ())],
        [
            ("many", wire.InsertMany([], ["a", "b"], [b"2", b"3"], 7, 2), ()),
            ("append", wire.AppendKey("b", b"4", 7, 3), ()),
            ("swap", wire.SwapKey("a", b"2", None, 7, 4), ()),
        ],
        [
            ("found", wire.LookupMany([], ["a", "b", "c"]), ()),
            ("gone", wire.RemoveMany([], ["b", "c"], 7, 5), ()),
        ],
    ):
        short.core.next_due()
        found, expected = short.short(*requests), ordinary.round(*requests)
        assert answers(found) == expected.answers
        assert found is not None
        assert found.writes == expected.writes


def test_a_key_that_expires_is_due_after_a_short_round() -> None:
    node = Single()
    node.core.next_due()
    assert node.short(("put", wire.Put("a", b"1", 7, 1, 1_000), ())) is not None
    expires = node.now + 1_000_000
    while node.now < expires:
        node.now = max(node.now, node.core.next_due())
        node.round()
    while node.core.next_due() <= node.now:
        node.round()
    assert node.short(("get", wire.Lookup("a"), ())) is not None
    assert node.core.engine.state.table.cached("a") is None


def test_a_short_round_needs_the_time_of_the_next_work() -> None:
    """Without `next_due` since the last round, the node core does not know that it is idle."""
    node = Single()
    node.core.next_due()
    assert node.short(push(1)) is not None
    assert node.short(push(2)) is None
    node.core.next_due()
    assert node.short(push(2)) is not None


def test_no_short_round_when_other_work_is_due() -> None:
    node = Single()
    node.now = node.core.next_due()
    assert node.short(push(1)) is None
    assert node.round(push(1)).answers


def test_a_lease_that_expires_is_due_after_a_short_round() -> None:
    node = Single()
    node.core.next_due()
    assert node.short(push(1), ("pop", wire.Pop("q", 1, 0, 1000), ())) is not None
    for _ in range(100):
        node.now = max(node.now, node.core.next_due())
        node.round()
    popped = node.round(("pop", wire.Pop("q", 1), ())).answers[0].answer
    assert isinstance(popped, wire.Popped)
    assert [one.deliveries for one in popped.lent] == [2]


def test_a_waiting_pop_of_another_node_is_answered_by_a_message() -> None:
    """The other node has left since: the answer must not go to a client."""
    node = Single()
    node.core.engine.begin(node.now)
    node.core.engine.handle(wire.Pop("q", 1, 60_000), (), PeerCaller("other", 5))
    node.core.next_due()
    ready = node.short(push(1))
    assert ready is not None
    assert [to for to, _ in ready.sends] == ["other"]
    assert [answered.to for answered in ready.answers] == [("push", 1)]


def test_requests_of_a_short_round_leave_no_work_to_other_parts() -> None:
    assert {
        wire.Push, wire.Multicast, wire.PushTopic, wire.Pop, wire.Ack, wire.Nack, wire.Extend,
        wire.Peek, wire.Commit, wire.Move,
        wire.Put, wire.RemoveKey, wire.AppendKey, wire.SwapKey, wire.Lookup,
        wire.InsertMany, wire.LookupMany, wire.RemoveMany, wire.GetView,
    } == SHORT_ROUND  # fmt: skip


def test_a_view_is_the_same_answer_until_it_changes() -> None:
    node = Single()
    ask = ("view", wire.GetView(), ())
    node.core.next_due()
    (first,), (again,) = answers(node.short(push(1), ask))[1:], answers(node.round(ask))
    assert isinstance(first.answer, wire.ViewInfo)
    assert first.answer.nodes[0].grpc == MEMBER.grpc
    assert len(first.answer.primaries) == 4
    assert again.answer is first.answer, "an edge keeps the encoded answer of this object"
    node.core.me = Member("127.0.0.1:1", "00" * 32, "127.0.0.1:9", "127.0.0.1:3", "active")
    (moved,) = answers(node.round(ask))
    assert isinstance(moved.answer, wire.ViewInfo)
    assert moved.answer.nodes[0].grpc == "127.0.0.1:9"
