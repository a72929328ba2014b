"""How a cluster stands: every trouble by itself, and none."""

from __future__ import annotations

from typing import Any

import pytest

from weft.client.standing import Standing
from weft.proto import weft_pb2 as pb

NODES = ("a", "b", "c")


def member(name: str, **other: Any) -> pb.Node:
    fields: dict[str, Any] = {"grpc": f"{name}:7700", "state": "active", "alive": True}
    return pb.Node(id=name, **(fields | other))


def good(*, nodes: tuple[str, ...] = NODES, partitions: int = 6) -> pb.PlacesResponse:
    """A cluster in which nothing is wrong."""
    count = len(nodes)
    places = [
        pb.Place(
            epoch=3,
            sync=[nodes[(number + step) % count] for step in range(min(2, count))],
            learners=[nodes[(number + 2) % count]] if count > 2 else [],
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
    standing = Standing.of(good(nodes=nodes))
    assert standing.troubles == []
    assert standing.settled


def test_who_leads_and_holds_what() -> None:
    found = {each.node.id: each for each in Standing.of(good()).nodes}
    assert [(each.leads, each.follows, each.learns) for each in found.values()] == [
        (3, 2, 2),
        (2, 3, 2),
        (2, 2, 3),
    ]
    assert [each.holds for each in found.values()] == [7, 7, 7]


def test_a_partition_that_is_not_served() -> None:
    places = good()
    places.places[4].role = "sealing"
    standing = Standing.of(places)
    assert standing.idle == [4]
    assert standing.roles == {"active": 6, "sealing": 1}
    assert standing.troubles == ["1 not served"]


def test_a_partition_with_too_few_copies() -> None:
    places = good()
    del places.places[2].sync[1:]
    standing = Standing.of(places)
    assert standing.thin == [2]
    assert standing.troubles == ["1 with fewer than 2 copies in step"]


def test_one_copy_is_enough_where_there_is_one_node() -> None:
    assert Standing.of(good(nodes=("a",))).wanted == 1
    places = good(nodes=("a",))
    places.nodes.append(member("w", witness=True))
    assert Standing.of(places).settled


def test_a_follower_that_is_behind_counts_while_it_is_alive() -> None:
    places = good()
    places.places[0].lag["b"] = 7
    places.places[1].lag["b"] = 0
    assert Standing.of(places).troubles == ["1 with a follower behind"]
    places.nodes[1].alive = False
    assert Standing.of(places).settled


def test_acknowledgements_on_too_few_disks() -> None:
    places = good()
    places.min_sync = 1
    assert Standing.of(places).troubles == ["acknowledged on 1 of 2 copies"]


def test_a_node_that_is_leaving() -> None:
    places = good()
    places.nodes[2].state = "leaving"
    assert Standing.of(places).troubles == ["c leaving"]


def test_an_empty_answer_is_not_settled() -> None:
    assert not Standing.of(pb.PlacesResponse()).settled
