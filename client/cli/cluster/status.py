"""`weft cluster status`: who is in the cluster, and how its partitions stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from weft.client.cli import output, units
from weft.client.cli.options import everywhere, wants_json
from weft.client.standing import NodeStanding, Standing
from weft.proto import weft_pb2 as pb

from .calls import calls

#: As many digits of a node's id as a person reads; more where two begin alike.
_ID_DIGITS = 8


@click.command
@click.option("--partitions", is_flag=True, help="List every partition.")
@everywhere
def status(partitions: bool) -> None:
    """Show the members, and whether every partition is served and has its copies.

    A partition is served when its primary is active. "In step" means: an acknowledgement waits for
    this copy. A node's share is in partitions; the catalogue of queues counts as one.

    \b
    Examples:
      weft cluster status
      weft cluster status --partitions
      weft cluster status --json | jq .partitions.thin
    """
    standing = Standing.of(calls().places())
    if wants_json():
        output.as_json(as_json(standing, partitions=partitions))
        return
    short = short_ids([each.node.id for each in standing.nodes])
    _show_nodes(standing, short)
    click.echo()
    output.facts(_facts(standing))
    if partitions:
        click.echo()
        _show_partitions(standing, short)


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """The first digits of each id, as many as tell them apart."""
    digits = _ID_DIGITS
    while len({each[:digits] for each in ids}) < len(set(ids)):
        digits += 1
    return {each: each[:digits] for each in ids}


def partition_name(standing: Standing, number: int) -> str:
    return "catalogue" if number == len(standing.places.places) - 1 else str(number)


def _show_nodes(standing: Standing, short: dict[str, str]) -> None:
    output.table(
        ("node", "gRPC", "state", "alive", "votes", "leads", "follows", "learns"),
        [
            (
                short[each.node.id],
                each.node.grpc,
                "witness" if each.node.witness else each.node.state,
                "yes" if each.node.alive else "NO",
                "yes" if each.node.voter else "no",
                units.count(each.leads),
                units.count(each.follows),
                units.count(each.learns),
            )
            for each in standing.nodes
        ],
        right=("leads", "follows", "learns"),
    )


def _facts(standing: Standing) -> list[tuple[str, str]]:
    places, total = standing.places, len(standing.places.places)
    served = total - len(standing.idle)
    roles = ", ".join(
        f"{units.count(many)} {role}" for role, many in sorted(standing.roles.items())
    )
    return [
        ("cluster", f"{places.cluster}, version {places.version} of its view"),
        ("partitions", f"{units.count(max(0, total - 1))} and the catalogue of queues"),
        ("served", f"{units.count(served)} of {units.count(total)}  ({roles})"),
        ("acknowledged", f"on {places.min_sync} disks"),
        ("thin", _numbers(standing, standing.thin, f"all have {standing.wanted} copies in step")),
        ("behind", _numbers(standing, standing.lagging, "no follower")),
        ("verdict", "settled" if standing.settled else "; ".join(standing.troubles)),
    ]


def _numbers(standing: Standing, numbers: list[int], none: str, most: int = 10) -> str:
    """How many, and which ones as long as they are few."""
    if not numbers:
        return none
    names = ", ".join(partition_name(standing, number) for number in numbers[:most])
    return f"{units.count(len(numbers))}: {names}{', ...' if len(numbers) > most else ''}"


def _show_partitions(standing: Standing, short: dict[str, str]) -> None:
    def names(ids: Sequence[str]) -> str:
        return " ".join(short.get(each, each) for each in ids) or "-"

    output.table(
        ("partition", "epoch", "role", "in step, primary first", "learners", "behind"),
        [
            (
                partition_name(standing, number),
                units.count(place.epoch),
                place.role,
                names(place.sync),
                names(place.learners),
                " ".join(f"{short.get(node, node)}:{many}" for node, many in _behind(place).items())
                or "-",
            )
            for number, place in enumerate(standing.places.places)
        ],
        right=("partition", "epoch"),
    )


def _behind(place: pb.Place) -> dict[str, int]:
    return {node: many for node, many in sorted(place.lag.items()) if many}


def as_json(standing: Standing, *, partitions: bool) -> dict[str, Any]:
    places = standing.places
    found: dict[str, Any] = {
        "cluster": places.cluster,
        "version": places.version,
        "min_sync": places.min_sync,
        "settled": standing.settled,
        "troubles": standing.troubles,
        "nodes": [_node_as_json(each) for each in standing.nodes],
        "partitions": {
            "total": len(places.places),
            "roles": standing.roles,
            "not_served": standing.idle,
            "thin": standing.thin,
            "behind": standing.lagging,
        },
    }
    if partitions:
        found["places"] = [
            {
                "partition": partition_name(standing, number),
                "epoch": place.epoch,
                "role": place.role,
                "sync": list(place.sync),
                "learners": list(place.learners),
                "lag": _behind(place),
            }
            for number, place in enumerate(places.places)
        ]
    return found


def _node_as_json(each: NodeStanding) -> dict[str, Any]:
    node = each.node
    return {
        "id": node.id,
        "grpc": node.grpc,
        "zmq": node.zmq,
        "state": node.state,
        "witness": node.witness,
        "voter": node.voter,
        "alive": node.alive,
        "leads": each.leads,
        "follows": each.follows,
        "learns": each.learns,
        "holds": each.holds,
    }
