"""Authorization: the table of verbs, and patterns."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InvalidArgument, PermissionDenied, Unauthenticated
from weft.proto import pipelines, wire
from weft.proto.settings import Settings
from weft.proto.verbs import INTERNAL
from weft.server.security import access
from weft.server.security.access import PERMISSIONS, Access, Grant, Principal, allow

VERBS: tuple[type, ...] = get_args(wire.AnyRequest)
PUSH = (
    wire.Push, wire.PushGroup, wire.PushTenant, wire.Multicast, wire.PushTopic,
    pipelines.StageBatch, pipelines.CloseStage, pipelines.Publish,
    pipelines.Abort, pipelines.LastPublished, wire.Room, wire.PushWaiting,
)  # fmt: skip
CONSUME = (
    wire.Pop, wire.Peek, wire.Ack, wire.Nack, wire.Extend, wire.Cancel,
    pipelines.OpenSubscription, pipelines.Reserve, pipelines.DescribeReservation,
    pipelines.ReadReserved, pipelines.AckThrough, pipelines.Heartbeat,
)  # fmt: skip
ADMIN = (
    wire.CreateQueue, wire.CreateGroupedQueue, wire.CreateKeptQueue,
    wire.CreateLimitedQueue, wire.UpdateQueue,
    wire.DeleteQueue, wire.PurgeQueue,
    wire.Redrive, wire.Snapshot, wire.Restore, pipelines.ReleaseAll, pipelines.DeleteSubscription,
    wire.CreateTopic, wire.DeleteTopic, wire.Bind, wire.Unbind, wire.CreateExpiringQueue,
    wire.CreateStochasticQueue, wire.CreateGraphQueue, wire.RestoreWaiting,
)  # fmt: skip
#: Requests between nodes only.
INNER = INTERNAL
TABLE = (
    wire.Insert, wire.Lookup, wire.Remove, wire.Append, wire.CompareAndSwap, wire.Put,
    wire.RemoveKey, wire.AppendKey, wire.SwapKey, wire.InsertMany, wire.LookupMany,
    wire.RemoveMany,
)  # fmt: skip


def who(*grants: str) -> Principal:
    return Principal("somebody", tuple(map(Grant.parse, grants)))


def allowed(principal: Principal, name: str) -> set[type]:
    return {verb for verb in VERBS if allow(principal, verb, name)}


FOR_ALL = {wire.GetView, wire.Status, wire.ClusterStatus, wire.StopWaiting}
ABOUT = {
    wire.DescribeQueue, wire.DescribeTopic, wire.Where, pipelines.DescribeSubscription,
    pipelines.ListSubscriptions,
}  # fmt: skip


@pytest.mark.parametrize(
    ("grant", "verbs"),
    [
        ("push:orders", {*PUSH} | ABOUT),
        ("consume:orders", {*CONSUME} | ABOUT),
        ("admin:orders", {*ADMIN} | ABOUT),
        ("watch:orders", ABOUT),
        ("table:orders", {*TABLE}),
        (
            "admin:*",
            {*ADMIN, wire.ListQueues, wire.ListTopics, wire.Join, wire.Leave, wire.Recover} | ABOUT,
        ),
        ("watch:*", {wire.ListQueues, wire.ListTopics} | ABOUT),
    ],
)
def test_a_grant_lets_this_and_no_more(grant: str, verbs: set[type]) -> None:
    assert allowed(who(grant), "orders") == verbs | FOR_ALL


def test_only_a_consumer_says_that_a_node_has_nothing_left() -> None:
    class Known:
        def __init__(self, *grants: str) -> None:
            self._known = who(*grants)

        def principal(self, token: str) -> Principal:
            return self._known

    asks, tells = wire.Where("orders"), wire.Where("orders", 0, {"a": (1, 1)})
    Access(Known("push:orders")).check("t", asks)
    with pytest.raises(PermissionDenied):
        Access(Known("push:orders")).check("t", tells)
    Access(Known("consume:orders")).check("t", tells)


def test_without_a_grant_only_the_cluster_is_seen() -> None:
    assert allowed(who(), "orders") == FOR_ALL


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_another_queue_is_another_queue(permission: str) -> None:
    assert allowed(who(f"{permission}:orders"), "orders2") == FOR_ALL


def test_an_unknown_verb_is_denied() -> None:
    everything = who(*(f"{permission}:*" for permission in PERMISSIONS))
    # A commit or a move has no permission of its own: each of its effects has one.
    composed = {wire.Commit, wire.CommitGraph, wire.Move}
    assert allowed(everything, "q") == set(VERBS) - INNER - composed
    assert not allow(everything, type("Unheard", (wire.Request,), {}), "q")


@pytest.mark.parametrize(
    ("pattern", "names", "not_names"),
    [
        ("orders", ["orders"], ["Orders", "orders.eu", "order", ""]),
        ("orders.*", ["orders.", "orders.eu", "orders.eu.1"], ["orders", "xorders.eu"]),
        ("*.dead", ["a.dead", ".dead"], ["a.dead2"]),
        ("a*c", ["ac", "abc", "axxc"], ["ab", "acb"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_patterns(pattern: str, names: list[str], not_names: list[str]) -> None:
    grant = Grant("push", pattern)
    assert all(map(grant.names, names))
    assert not any(map(grant.names, not_names))


@pytest.mark.parametrize(
    ("pattern", "prefix", "covers"),
    [("*", "", True), ("a.*", "a.", True), ("a.*", "a.b", True), ("a.*", "", False),
     ("a.*", "a", False), ("a", "a", False), ("*x", "a", False)],
)  # fmt: skip
def test_a_list_is_for_who_may_see_all_of_it(pattern: str, prefix: str, covers: bool) -> None:
    assert allow(who(f"watch:{pattern}"), wire.ListQueues, prefix) is covers


@given(st.text(max_size=30))
def test_a_grant_is_read_or_refused(text: str) -> None:
    try:
        grant = Grant.parse(text)
    except InvalidArgument:
        return
    assert str(grant) == text


@pytest.mark.parametrize("wrong", ["push", "push:", "read:x", "push:a b", "push:[a]", "push:?"])
def test_a_wrong_grant_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match="PERMISSION:PATTERN"):
        Grant.parse(wrong)


class Fixed:
    def __init__(self, *grants: str) -> None:
        self._principal = who(*grants)

    def become(self, *grants: str) -> None:
        self._principal = who(*grants)

    def principal(self, token: str) -> Principal | None:
        return self._principal if token == "good" else None


def test_no_token_and_a_wrong_one_are_told_apart_from_a_weak_one() -> None:
    door = Access(Fixed("push:orders"))
    door.check("good", wire.Push("orders", 1, 1, 1))
    for token in ("", "bad"):
        with pytest.raises(Unauthenticated):
            door.check(token, wire.GetView())
    with pytest.raises(PermissionDenied, match="somebody may not Pop 'orders'"):
        door.check("good", wire.Pop("orders", 1))


def test_what_was_allowed_is_asked_for_once_and_nothing_else_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[type, str]] = []

    def counted(principal: Principal, verb: type, name: str) -> bool:
        asked.append((verb, name))
        return allow(principal, verb, name)

    monkeypatch.setattr(access, "allow", counted)
    door = Access(Fixed("push:orders", "consume:orders"))
    for _ in range(3):
        door.check("good", wire.Push("orders", 1, 1, 1))
        door.check("good", wire.Pop("orders", 1))
    assert asked == [(wire.Push, "orders"), (wire.Pop, "orders")]
    for _ in range(2):  # refusals are not cached; a grant covers no other queue or verb
        for request in (wire.Push("others", 1, 1, 1), wire.PurgeQueue("orders")):
            with pytest.raises(PermissionDenied):
                door.check("good", request)
    with pytest.raises(Unauthenticated):
        door.check("bad", wire.Push("orders", 1, 1, 1))


def test_other_grants_count_at_once() -> None:
    fixed = Fixed("push:orders")
    door = Access(fixed)
    door.check("good", wire.Push("orders", 1, 1, 1))
    fixed.become("push:others")
    with pytest.raises(PermissionDenied):
        door.check("good", wire.Push("orders", 1, 1, 1))
    door.check("good", wire.Push("others", 1, 1, 1))


def test_what_is_remembered_is_bounded() -> None:
    door = Access(Fixed("push:*"))
    for number in range(2 * access.ALLOWED_MAX + 10):
        door.check("good", wire.Push(f"q{number}", 1, 1, 1))
        assert len(door._allowed) <= access.ALLOWED_MAX


def test_a_dead_letter_queue_is_written_to_so_it_must_be_allowed() -> None:
    door = Access(Fixed("admin:mine.*"))
    door.check("good", wire.CreateQueue("mine.a", Settings(dead_letter="mine.dead")))
    for request in (
        wire.CreateQueue("mine.a", Settings(dead_letter="theirs")),
        wire.UpdateQueue("mine.a", {"dead_letter": "theirs"}),
    ):
        with pytest.raises(PermissionDenied, match="theirs"):
            door.check("good", request)


def test_figures_are_for_watchers() -> None:
    Access(Fixed("watch:*")).check_figures("good")
    with pytest.raises(PermissionDenied, match="watch"):
        Access(Fixed("push:*")).check_figures("good")
