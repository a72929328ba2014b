"""Commits in a cluster with nodes of several versions, and the delivery of their effects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_fanout import Two, asked
from weft.errors import UsageError
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.core import catalogue_operations, membership
from weft.server.core.commit_members import CommitMembers
from weft.server.core.operation import SILENT, Pause
from weft.server.core.outbox_delivery import OutboxDelivery

COMMIT = wire.Commit(0, 1, 1, [], [], [wire.Put("k", b"v", 0, 0)])


class Effects:
    """The engine's part, as the operations see it."""

    def __init__(self) -> None:
        self.know: bool | None = None
        self.left = {0: {1: [5, 7], 0: [5]}}
        self.closed: list[tuple[int, int]] = []
        self.refusing: set[int] = set()

    def set_peers_know_commits(self, know: bool) -> None:
        self.know = know

    @property
    def owing(self) -> list[int]:
        return [source for source in self.left if self.left[source]]

    def owes(self, source: int) -> bool:
        return bool(self.left[source])

    def set_refusing(self, source: int, destinations: set[int]) -> None:
        self.refusing = set(destinations)

    def close(self, source: int, channel: int, destination: int, number: int) -> None:
        self.closed.append((destination, number))
        self.left[source].pop(destination, None)


def ended(operation: Any, answers: list[list[wire.AnyAnswer]]) -> wire.AnyAnswer:
    said: Any = None
    while True:
        try:
            step = operation.send(said)
        except StopIteration as end:
            answer: wire.AnyAnswer = end.value[0]
            return answer
        said = [] if isinstance(step, Pause) else [(each, ()) for each in answers.pop(0)]
        assert isinstance(step, Pause) or len(step) == len(said)


def test_the_first_commit_asks_every_live_member_once() -> None:
    effects = Effects()
    members = CommitMembers(SimpleNamespace(commits=effects))  # type: ignore[arg-type]
    cluster = Two()
    assert members.unsure(cluster) == ["a", "b"], "a witness holds no messages"
    assert not members.confirmed(cluster)
    done = wire.Committed(False, [])
    assert ended(members.asked(cluster, COMMIT, ()), [[wire.Done()] * 2, [done]]) == done
    assert effects.know is True
    assert members.confirmed(cluster)


def test_a_member_that_does_not_understand_the_question_forbids_effects_elsewhere() -> None:
    effects = Effects()
    members = CommitMembers(SimpleNamespace(commits=effects))  # type: ignore[arg-type]
    cluster = Two()
    said: list[list[wire.AnyAnswer]] = [[wire.Done(), SILENT], [wire.Committed(False, [])]]
    ended(members.asked(cluster, COMMIT, ()), said)
    assert effects.know is False
    assert members.unsure(cluster) == ["b"]
    cluster.alive = lambda node: node != "b"  # type: ignore[method-assign]
    assert members.confirmed(cluster), "a dead member is not waited for"
    assert effects.know is True


def test_a_node_of_an_older_version_does_not_join_once_commits_were_used() -> None:
    engine = SimpleNamespace(grouped_queue="", commits=SimpleNamespace(used=True))
    host = SimpleNamespace(core=None, cluster="c", engine=engine)
    join = membership.join(host, wire.Join("n", "", "", "peer", "key"))
    with pytest.raises(UsageError, match="without commits"):
        next(join)


def test_a_queue_keeps_leases_when_every_member_knows_how() -> None:
    request = wire.CreateKeptQueue("q", Settings(keep_leases=True))
    create = catalogue_operations.create_queue_with_features(Two(), request, ())
    answers = [wire.Done(), wire.Created(True), wire.Done(7), wire.Done(0)]
    assert asked(create, answers) == [["a", "b"], ["a"], ["a"], ["a", "b"]]


def outbox_of(effects: Effects) -> tuple[OutboxDelivery, list[Any]]:
    started: list[Any] = []
    host: Any = Two()
    host.engine = SimpleNamespace(commits=effects)
    host.run_operation = started.append
    return OutboxDelivery(host), started


def page(effects: Effects) -> wire.Outbox:
    left = effects.left[0]
    entries = [[(number, b"") for number in numbers] for numbers in left.values()]
    return wire.Outbox(9, list(left), [0] * len(left), entries, [[] for _ in left])


def test_one_request_goes_to_each_node_and_what_was_taken_is_closed() -> None:
    effects = Effects()
    delivery, started = outbox_of(effects)
    assert delivery.due
    delivery.work()
    delivery.work()
    (operation,) = started
    assert not delivery.due, "the source has its operation"
    first = operation.send(None)
    assert [type(each.request) for each in first] == [wire.ReadOutbox]
    second = operation.send([(page(effects), ())])
    assert [each.node for each in second] == ["a"]
    assert second[0].request.partitions == [1, 0]
    with pytest.raises(StopIteration):
        operation.send([(wire.Taken([7, 5]), ())])
    assert effects.closed == [(1, 7), (0, 5)]
    assert not delivery.due


def test_after_a_failure_each_destination_is_asked_on_its_own() -> None:
    effects = Effects()
    delivery, started = outbox_of(effects)
    delivery.work()
    (operation,) = started
    operation.send(None)
    operation.send([(page(effects), ())])
    full = wire.Failure("STORAGE_FULL", "", True)
    singles = operation.send([(full, ())])
    assert [each.request.partitions for each in singles] == [[1], [0]]
    (again,) = operation.send([(full, ()), (wire.Taken([5]), ())])
    assert isinstance(again.request, wire.ReadOutbox)
    assert (effects.closed, effects.refusing) == ([(0, 5)], {1})
    waits = operation.send([(wire.Outbox(9, [], [], [], []), ())])
    assert isinstance(waits, Pause)
    operation.close()
    assert delivery.due, "the next round starts another operation"
