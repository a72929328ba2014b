"""Operations over all nodes: which nodes they ask."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from weft.dht import placement
from weft.dht.view import Member, ReplicaSet, View
from weft.errors import InvalidArgument, UsageError
from weft.ids import partition_of
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.core import (
    catalogue_operations,
    fanout,
    membership,
    primary_operations,
    topic_operations,
)
from weft.server.core.operation import SILENT, Pause, Question
from weft.server.core.remote_pop import RemotePop
from weft.server.engine.destinations import Destinations


class Two:
    """Two nodes and a witness, as seen by an operation."""

    node = "a"
    now = 0
    view = View(
        1, ("a", "b", "w"), (),
        {"a": Member("1"), "b": Member("2"), "w": Member("3", witness=True)},
        (ReplicaSet(1, ("a", "b")), ReplicaSet(1, ("a", "b"))), 1,
    )  # fmt: skip

    def alive(self, node: str) -> bool:
        return True

    def random(self, below: int) -> int:
        return 0

    def is_unordered(self, queue: str) -> bool:
        return self.is_ordered(queue) is False

    def is_ordered(self, queue: str) -> bool | None:
        return {"line": True, "q": False}.get(queue)

    destinations = cast(Destinations, None)

    def probe(self, queue: str) -> wire.ProbeReport | None:
        return None

    def outage(self, number: int | None = None) -> str:
        return ""


def asked(operation: Any, answers: list[Any]) -> list[list[str]]:
    """The nodes of each step, when every asked node gives the next of these answers."""
    steps: list[list[str]] = []
    said: Any = None
    try:
        while True:
            step = operation.send(said)
            if isinstance(step, Pause):
                said = []
                continue
            steps.append([cast(Question, question).node for question in step])
            said = [(answers[len(steps) - 1], ())] * len(step)
    except StopIteration:
        return steps


def test_a_witness_is_not_asked_for_what_it_never_holds() -> None:
    """A witness does not follow the catalogue: waiting until it knows a queue would never end."""
    create = catalogue_operations.catalogue(Two(), wire.CreateQueue("q", Settings()), ())
    answers = [wire.Done(1), wire.Done(7), wire.Done(0)]
    assert asked(create, answers) == [["a"], ["a"], ["a", "b"]]
    assert asked(fanout.peek(Two(), wire.Peek("q", 1), ()), [wire.Peeked([])]) == [["a", "b"]]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "CONNECTION_LOST", "NOT_PRIMARY"])
def test_a_cancel_is_repeated_until_the_primary_answers(code: str) -> None:
    failure = wire.Failure(code, "it may or may not have been done", True)
    cancel = primary_operations.cancel(Two(), wire.Cancel("q", 0, 1, 1, 0), ())
    assert asked(cancel, [failure, failure, wire.Done(0)]) == [["a"], ["a"], ["a"]]


@pytest.mark.parametrize(
    ("first", "told"),
    [("UNAVAILABLE", "UNAVAILABLE"), ("CONNECTION_LOST", "UNAVAILABLE"),
     ("NOT_PRIMARY", "MESSAGE_LEASED"), ("SHUTTING_DOWN", "MESSAGE_LEASED")],
)  # fmt: skip
def test_a_refused_cancel_is_final_only_without_an_attempt_in_doubt(first: str, told: str) -> None:
    """The attempt in doubt may still arrive, and remove the message."""
    cancel = primary_operations.cancel(Two(), wire.Cancel("q", 0, 1, 1, 0), ())
    next(cancel)
    assert isinstance(cancel.send([(wire.Failure(first, "", True), ())]), Pause)
    cancel.send([])
    with pytest.raises(StopIteration) as end:
        cancel.send([(wire.Failure("MESSAGE_LEASED", "leased", False), ())])
    answer, _ = end.value.value
    assert isinstance(answer, wire.Failure)
    assert answer.code == told


def test_a_grouped_queue_is_created_when_every_member_that_holds_messages_knows_groups() -> None:
    create = catalogue_operations.create_queue_with_features(
        Two(), wire.CreateGroupedQueue("q", Settings(grouped=True)), ()
    )
    answers = [wire.Done(), wire.Created(True), wire.Done(7), wire.Done(0)]
    assert asked(create, answers) == [["a", "b"], ["a"], ["a"], ["a", "b"]]


def _ended(create: Any, cluster: Two, know: set[str]) -> wire.AnyAnswer:
    """The answer of the operation, when only the nodes in `know` answer its questions."""
    said: Any = None
    while True:
        try:
            step = create.send(said)
        except StopIteration as end:
            return cast(wire.AnyAnswer, end.value[0])
        if isinstance(step, Pause):
            said = []
            continue
        questions = wire.KnowsGroups | wire.KnowsMulticast | wire.KnowsStochastic | wire.KnowsLimits
        questions |= wire.KnowsGraphs
        assert all(isinstance(each.request, questions) for each in step)
        cluster.now += 1_000_000
        said = [(wire.Done() if each.node in know else SILENT, ()) for each in step]


def test_a_member_of_an_older_version_prevents_a_grouped_queue() -> None:
    """An older node does not know the question, and stays silent."""
    cluster = Two()
    create = catalogue_operations.create_queue_with_features(
        cluster, wire.CreateGroupedQueue("q", Settings(grouped=True)), ()
    )
    answer = _ended(create, cluster, {"a"})
    assert isinstance(answer, wire.Failure)
    assert answer.code == "INVALID_ARGUMENT"
    assert "b did not confirm that it knows message groups" in answer.message


STOCHASTIC = Settings(kind="stochastic", buffers=9, max_hops=3, access="even")


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (wire.CreateStochasticQueue("q", STOCHASTIC), "stochastic queues"),
        (wire.CreateLimitedQueue("q", Settings(share=100)), "shares and limits"),
        (wire.CreateLimitedQueue("q", Settings(rate_limit=5)), "shares and limits"),
        (wire.UpdateQueue("q", {"share": 100}), "shares and limits"),
    ],
)
def test_a_member_of_an_older_version_prevents_stochastic_queues_and_shares(
    request_: wire.CreateQueue | wire.UpdateQueue, told: str
) -> None:
    """The operation asks and ends: no request that changes anything was sent."""
    cluster = Two()
    creates = isinstance(request_, wire.CreateQueue)
    operation: Any = (
        catalogue_operations.create_queue_with_features
        if creates
        else catalogue_operations.update_queue
    )
    answer = _ended(operation(cluster, request_, ()), cluster, {"a"})
    assert isinstance(answer, wire.Failure)
    assert answer.code == "INVALID_ARGUMENT"
    assert f"b did not confirm that it knows {told}" in answer.message


class NewToMulticast(Two):
    """The cluster has no topic or multicast yet."""

    destinations = cast(Destinations, SimpleNamespace(enabled=False, are_known=lambda _: True))


@pytest.mark.parametrize("request_", [wire.CreateTopic("t"), wire.Multicast(["q"], 1, 1, 1)])
def test_a_member_of_an_older_version_prevents_topics_and_multicasts(
    request_: wire.CreateTopic | wire.Multicast,
) -> None:
    cluster = NewToMulticast()
    topics = isinstance(request_, wire.CreateTopic)
    operation: Any = topic_operations.change_topic if topics else topic_operations.multicast
    answer = _ended(operation(cluster, request_, ()), cluster, {"a"})
    assert isinstance(answer, wire.Failure)
    assert answer.code == "INVALID_ARGUMENT"
    assert "nothing was stored: b did not confirm" in answer.message


def test_a_topic_is_created_when_every_member_that_holds_messages_knows_topics() -> None:
    create = topic_operations.change_topic(NewToMulticast(), wire.CreateTopic("t"), ())
    enabled = [wire.Done(), wire.Done(), wire.Done(7), wire.Done(0)]
    created = [wire.Created(True), wire.Done(7), wire.Done(0)]
    assert asked(create, enabled + created) == [
        *(["a", "b"], ["a"], ["a"], ["a", "b"]),
        *(["a"], ["a"], ["a", "b"]),
    ]


def test_a_node_of_an_older_version_does_not_join_a_cluster_with_multicasts() -> None:
    engine = SimpleNamespace(
        grouped_queue="", destinations=SimpleNamespace(enabled=True),
        commits=SimpleNamespace(used=False), ready=SimpleNamespace(stochastic={}),
        shares=SimpleNamespace(limited_queue=""), graph_queue="",
    )  # fmt: skip
    host = SimpleNamespace(core=None, cluster="c", engine=engine)
    join = membership.join(host, wire.Join("n", "", "", "peer", "key", knows_groups=True))
    with pytest.raises(UsageError, match="uses topics or multicasts"):
        next(join)


def test_a_node_of_an_older_version_does_not_join_a_cluster_with_stochastic_queues() -> None:
    engine = SimpleNamespace(
        grouped_queue="", destinations=SimpleNamespace(enabled=False, ordered_enabled=False),
        commits=SimpleNamespace(used=False), ready=SimpleNamespace(stochastic={"events": None}),
        shares=SimpleNamespace(limited_queue=""), graph_queue="",
    )  # fmt: skip
    host = SimpleNamespace(core=None, cluster="c", engine=engine)
    asked = wire.Join("n", "", "", "peer", "key", knows_groups=True, knows_multicast=True)
    with pytest.raises(UsageError, match="has the stochastic queue events"):
        next(membership.join(host, asked))
    bad = structs.replace(asked, knows_stochastic=True, zone="a b")
    with pytest.raises(InvalidArgument, match="a zone is"):
        next(membership.join(host, bad))


def test_a_member_of_an_older_version_prevents_stochastic_queues() -> None:
    settings = Settings(kind="stochastic", buffers=5, max_hops=2, access="even")
    cluster, request = Two(), wire.CreateStochasticQueue("q", settings)
    operation = catalogue_operations.create_queue_with_features(cluster, request, ())
    answer = _ended(operation, cluster, {"a"})
    assert isinstance(answer, wire.Failure)
    assert answer.code == "INVALID_ARGUMENT"
    assert "b did not confirm that it knows stochastic queues" in answer.message


def test_a_node_of_an_older_version_does_not_join_a_cluster_with_grouped_queues() -> None:
    engine = SimpleNamespace(grouped_queue="orders")
    host = SimpleNamespace(core=None, cluster="c", engine=engine)
    join = membership.join(host, wire.Join("n", "", "", "peer", "key"))
    with pytest.raises(UsageError, match="has the grouped queue orders"):
        next(join)


def test_a_cancel_outside_the_cluster_s_partitions_asks_nobody() -> None:
    assert asked(primary_operations.cancel(Two(), wire.Cancel("q", 1, 1, 1, 0), ()), []) == []


def test_the_state_of_the_cluster_is_asked_of_a_witness_too() -> None:
    nothing = wire.Failure("UNAVAILABLE", "", True)
    status = fanout.status(Two(), wire.ClusterStatus(), ())
    assert asked(status, [nothing]) == [["a", "b", "w"]]


def test_a_push_to_a_queue_that_is_not_known_here_finds_its_partition() -> None:
    """A witness cannot tell whether a queue is ordered: a wrong node refuses."""

    class Many(Two):
        view = View(
            1, ("a", "b"), (), {"a": Member("1"), "b": Member("2")},
            (ReplicaSet(1, ("a", "b")), ReplicaSet(1, ("b", "a")), ReplicaSet(1, ("a", "b"))), 1,
        )  # fmt: skip

    wrong = wire.Failure("NOT_PRIMARY", "", True)
    done = wire.Pushed(0, 1, 1, 1, False, "disk")
    nodes = "ab"
    for name in ("unknown", "line", "q"):
        for batch in range(8):
            request = wire.Push(name, 1, batch, 1)
            hashed = nodes[partition_of(1, batch, 2)]
            named = nodes[placement.of_text(name, 2)]
            expected = {"unknown": [hashed, named, hashed], "line": [named] * 3, "q": [hashed] * 3}
            steps = asked(primary_operations.push(Many(), request, [b""]), [wrong, wrong, done])
            assert [node for (node,) in steps] == expected[name]


def test_of_a_queue_that_is_not_known_here_nothing_is_stolen() -> None:
    """The queue may be ordered: then the whole lot is for one consumer."""
    limits = {}
    for name in ("q", "line", "unknown"):
        popping = RemotePop(Two())
        popping.prefetched.consumed(name, 0, 100, Two.now)
        operation: Any = popping.pop(wire.Pop(name, 3), ())
        step = operation.send(None)
        while not (isinstance(step, list) and step[0].node == "b"):
            asks_where = isinstance(step[0].request, wire.Where)
            step = operation.send([(wire.Nodes(["b"]) if asks_where else wire.Popped([]), ())])
        limits[name] = step[0].request.limit
    assert limits == {"q": 3 + 50, "line": 3, "unknown": 3}


def test_a_node_that_does_not_know_yet_does_not_say_that_there_is_no_queue() -> None:
    late = wire.Failure("UNAVAILABLE", "a node did not answer in time", True)
    operation = catalogue_operations.refreshed(Two(), wire.Pop("q", 1), ())
    operation.send(cast(Any, None))
    operation.send([(wire.Done(7), ())])
    with pytest.raises(StopIteration) as ended:
        operation.send([(late, ())])
    assert ended.value.value == (late, ())


@pytest.mark.parametrize("verb", ["create", "update"])
def test_a_member_of_an_older_version_prevents_graphs(verb: str) -> None:
    cluster = Two()
    operation = (
        catalogue_operations.create_queue_with_features(
            cluster, wire.CreateGraphQueue("q", Settings(graphs=True)), ()
        )
        if verb == "create"
        else catalogue_operations.update_queue(cluster, wire.UpdateQueue("q", {"graphs": True}), ())
    )
    answer = _ended(operation, cluster, {"a"})
    assert isinstance(answer, wire.Failure)
    assert "b did not confirm that it knows task graphs" in answer.message


def test_a_node_of_an_older_version_does_not_join_a_cluster_with_graphs() -> None:
    engine = SimpleNamespace(
        grouped_queue="", commits=SimpleNamespace(used=False),
        shares=SimpleNamespace(limited_queue=""), graph_queue="tasks",
    )  # fmt: skip
    host = SimpleNamespace(core=None, cluster="c", engine=engine)
    asked = wire.Join("n", "", "", "peer", "key", knows_groups=True, knows_limits=True)
    with pytest.raises(UsageError, match="the queue tasks of this cluster takes task graphs"):
        next(membership.join(host, asked))


@pytest.mark.parametrize("verb", ["create", "update"])
def test_a_member_of_an_older_version_prevents_shares(verb: str) -> None:
    cluster = Two()
    operation = (
        catalogue_operations.create_queue_with_features(
            cluster, wire.CreateLimitedQueue("q", Settings(share=300)), ()
        )
        if verb == "create"
        else catalogue_operations.update_queue(cluster, wire.UpdateQueue("q", {"share": 300}), ())
    )
    answer = _ended(operation, cluster, {"a"})
    assert isinstance(answer, wire.Failure)
    assert answer.code == "INVALID_ARGUMENT"
    assert "b did not confirm that it knows shares and limits" in answer.message


@pytest.mark.parametrize("setting", ["lease_ms", "share"])
def test_an_update_without_a_share_asks_no_member(setting: str) -> None:
    request = wire.UpdateQueue("q", {setting: 0})
    update = catalogue_operations.update_queue(Two(), request, ())
    answers = [wire.Done(), wire.Done(7), wire.Done(0)]
    assert asked(update, answers) == [["a"], ["a"], ["a", "b"]]
