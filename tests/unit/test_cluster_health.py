"""Cluster health: every field that a node reports affects the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from weft.client.admin.cluster_health import ClusterHealth
from weft.proto import weft_pb2 as pb

NODES = ("a", "b", "c")


def member(name: str, **other: Any) -> pb.Node:
    fields: dict[str, Any] = {"grpc": f"{name}:7700", "state": "active", "alive": True}
    return pb.Node(id=name, **(fields | other))


def _learners(nodes: tuple[str, ...], number: int, *, catalogue: bool) -> list[str]:
    """One learner; for the catalogue, every node that is not in its sync set."""
    rest = [nodes[(number + step) % len(nodes)] for step in range(2, len(nodes))]
    return rest if catalogue else rest[:1]


def good(*, nodes: tuple[str, ...] = NODES, partitions: int = 6) -> pb.PlacesResponse:
    """A healthy cluster."""
    count = len(nodes)
    places = [
        pb.Place(
            epoch=3,
            sync=[nodes[(number + step) % count] for step in range(min(2, count))],
            learners=_learners(nodes, number, catalogue=number == partitions),
            role="active",
        )
        for number in range(partitions + 1)
    ]
    return pb.PlacesResponse(
        cluster="ab" * 16,
        version=9,
        min_sync=min(2, count),
        voters=nodes,
        nodes=map(member, nodes),
        places=places,
    )


@pytest.mark.parametrize("nodes", [("a",), ("a", "b"), NODES])
def test_nothing_is_wrong(nodes: tuple[str, ...]) -> None:
    health = ClusterHealth.of(good(nodes=nodes))
    assert health.troubles == []
    assert health.settled


def test_who_leads_and_holds_what() -> None:
    found = {each.node.id: each for each in ClusterHealth.of(good()).nodes}
    assert [(each.leads, each.follows, each.learns) for each in found.values()] == [
        (3, 2, 2),
        (2, 3, 2),
        (2, 2, 3),
    ]
    assert [each.holds for each in found.values()] == [7, 7, 7]


def test_a_partition_that_is_not_served() -> None:
    places = good()
    places.places[4].role = "sealing"
    health = ClusterHealth.of(places)
    assert health.verdict.unserved == (4,)
    assert health.roles == {"active": 6, "sealing": 1}
    assert health.verdict.state == "unavailable"
    assert health.troubles == ["1 partition not served for the moment: a failover is under way"]


def test_what_a_node_reports_reaches_the_verdict() -> None:
    """Every field on which the verdict depends."""
    for change, word in (
        (lambda p: p.places[2].sync.pop(), "fewer than 2 copies"),
        (lambda p: p.places[0].lag.update({"b": 7}), "a follower behind"),
        (lambda p: setattr(p, "min_sync", 1), "acknowledged on 1 of 2 copies"),
        (lambda p: setattr(p.nodes[2], "state", "leaving"), "c (c:7700): leaving"),
        (lambda p: setattr(p.nodes[2], "alive", False), "1 of 3 members is down: c (c:7700)"),
        (lambda p: p.joining.append("a"), "the voters are being replaced"),
        (lambda p: p.voters.pop(), "the voters are being replaced"),
        (lambda p: setattr(p, "learners", 0), "not on the planned nodes yet"),
    ):
        places = good()
        change(places)
        health = ClusterHealth.of(places)
        assert not health.settled
        assert any(word in trouble for trouble in health.troubles), (word, health.troubles)


def test_a_node_that_hears_few_others_says_so() -> None:
    places = good()
    places.observer = "a"
    for node in places.nodes[1:]:
        node.alive = False
    assert any(
        "a (a:7700) reaches 1 of 3 members" in each for each in ClusterHealth.of(places).troubles
    )


def test_one_copy_is_enough_where_there_is_one_node() -> None:
    assert ClusterHealth.of(good(nodes=("a",))).verdict.copies == 1
    places = good(nodes=("a",))
    places.nodes.append(member("w", witness=True))
    places.voters.append("w")
    assert ClusterHealth.of(places).settled


def test_an_empty_answer_is_not_settled() -> None:
    assert not ClusterHealth.of(pb.PlacesResponse()).settled
