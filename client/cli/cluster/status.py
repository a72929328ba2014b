"""`weft cluster status`: the members, the partitions, and the verdict on the cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import click

from weft.client.admin.cluster import ClusterCalls
from weft.client.admin.cluster_health import ClusterHealth, NodeHealth
from weft.client.cli import output, units
from weft.client.cli.options import everywhere, wants_json
from weft.dht.safety import SETTLED
from weft.errors import Unavailable
from weft.proto import weft_pb2 as pb

from .calls import calls

#: Digits of a node id in tables; more if two ids share the prefix.
_ID_DIGITS: Final = 8
WAIT_S_DEFAULT: Final = 300.0
#: Seconds between two polls of `--wait`.
_POLL_S: Final = 0.5


@click.command
@click.option("--partitions", is_flag=True, help="List every partition.")
@click.option(
    "--wait", "wanted", type=click.Choice([SETTLED]),
    help="Wait until the cluster is settled; exit code 1 after --timeout-s.",
)  # fmt: skip
@click.option(
    "--timeout-s", type=click.FloatRange(min=0), default=WAIT_S_DEFAULT, show_default=True,
    help="Timeout of --wait, in seconds.",
)  # fmt: skip
@everywhere
def status(partitions: bool, wanted: str | None, timeout_s: float) -> None:
    """Show the members, the partitions, and which failures the cluster survives now.

    The verdict is one of: settled (every member is alive and every partition is in place), degraded
    (any one node may still fail), at risk (one more failure may stop service or lose messages),
    unavailable (some partitions are not served).

    A partition is served when its primary is active. "In step" means that acknowledgements wait for
    this copy. Counts of a node are partitions; the catalogue of queues counts as one.

    \b
    Examples:
      weft cluster status
      weft cluster status --wait settled --timeout-s 120
      weft cluster status --partitions
      weft cluster status --json | jq .verdict.state
    """
    asked = calls()
    cluster_health = (
        _await_settled(asked, timeout_s) if wanted else ClusterHealth.of(asked.places())
    )
    if wants_json():
        output.as_json(as_json(cluster_health, partitions=partitions))
        return
    short = short_ids([each.node.id for each in cluster_health.nodes])
    _show_nodes(cluster_health, short)
    click.echo()
    output.facts(_facts(cluster_health))
    if partitions:
        click.echo()
        _show_partitions(cluster_health, short)


def _await_settled(asked: ClusterCalls, timeout_s: float) -> ClusterHealth:
    """Polls until the verdict is settled; raises Unavailable after ``timeout_s`` seconds."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            cluster_health = ClusterHealth.of(asked.places())
            if cluster_health.settled:
                return cluster_health
            reasons = f"{cluster_health.verdict.state}: {'; '.join(cluster_health.verdict.reasons)}"
        except Unavailable as error:
            reasons = error.message
        if time.monotonic() >= end:
            raise Unavailable(f"the cluster is not settled after {timeout_s:g} s: {reasons}")
        time.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """The shortest common prefix length that keeps all ids distinct, applied to each id."""
    digits = _ID_DIGITS
    while len({each[:digits] for each in ids}) < len(set(ids)):
        digits += 1
    return {each: each[:digits] for each in ids}


def partition_name(cluster_health: ClusterHealth, number: int) -> str:
    return "catalogue" if number == len(cluster_health.places.places) - 1 else str(number)


def _show_nodes(cluster_health: ClusterHealth, short: dict[str, str]) -> None:
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
            for each in cluster_health.nodes
        ],
        right=("leads", "follows", "learns"),
    )


def _facts(cluster_health: ClusterHealth) -> list[tuple[str, str]]:
    places, verdict, total = (
        cluster_health.places,
        cluster_health.verdict,
        len(cluster_health.places.places),
    )
    served = total - len(verdict.unserved)
    roles = ", ".join(
        f"{units.count(many)} {role}" for role, many in sorted(cluster_health.roles.items())
    )
    return [
        ("cluster", f"{places.cluster}, version {places.version} of its view"),
        ("partitions", f"{units.count(max(0, total - 1))} and the catalogue of queues"),
        ("served", f"{units.count(served)} of {units.count(total)}  ({roles})"),
        ("acknowledged", f"on {places.min_sync} disk{'s' if places.min_sync != 1 else ''}"),
        (
            "thin",
            _numbers(cluster_health, verdict.thin, f"all have {_copies(verdict.copies)} in step"),
        ),
        ("behind", _numbers(cluster_health, verdict.lagging, "no follower")),
        ("failures", verdict.outlook),
        ("verdict", verdict.state),
        *(("because", reason) for reason in verdict.reasons),
        *(("try", advice) for advice in verdict.advice),
    ]


def _copies(count: int) -> str:
    return f"{count} cop{'ies' if count != 1 else 'y'}"


def _numbers(
    cluster_health: ClusterHealth, numbers: Sequence[int], none: str, most: int = 10
) -> str:
    """The count and the first ``most`` partition names; ``none`` if there are none."""
    if not numbers:
        return none
    names = ", ".join(partition_name(cluster_health, number) for number in numbers[:most])
    return f"{units.count(len(numbers))}: {names}{', ...' if len(numbers) > most else ''}"


def _show_partitions(cluster_health: ClusterHealth, short: dict[str, str]) -> None:
    def names(ids: Sequence[str]) -> str:
        return " ".join(short.get(each, each) for each in ids) or "-"

    output.table(
        ("partition", "epoch", "role", "in step, primary first", "learners", "behind"),
        [
            (
                partition_name(cluster_health, number),
                units.count(place.epoch),
                place.role,
                names(place.sync),
                names(place.learners),
                " ".join(f"{short.get(node, node)}:{many}" for node, many in _behind(place).items())
                or "-",
            )
            for number, place in enumerate(cluster_health.places.places)
        ],
        right=("partition", "epoch"),
    )


def _behind(place: pb.Place) -> dict[str, int]:
    return {node: many for node, many in sorted(place.lag.items()) if many}


def as_json(cluster_health: ClusterHealth, *, partitions: bool) -> dict[str, Any]:
    places, verdict = cluster_health.places, cluster_health.verdict
    found: dict[str, Any] = {
        "cluster": places.cluster,
        "version": places.version,
        "min_sync": places.min_sync,
        "observer": places.observer,
        "settled": verdict.settled,
        "troubles": list(verdict.reasons),
        "verdict": {
            "state": verdict.state,
            "reasons": list(verdict.reasons),
            "advice": list(verdict.advice),
            "outlook": verdict.outlook,
            "can_lose_without_losing_service": verdict.service,
            "can_lose_without_losing_messages": verdict.data,
            "may_fail": list(verdict.may_fail),
            "sole_copies": list(verdict.sole_copies),
            "down": list(verdict.down),
            "quorum": verdict.quorum,
        },
        "nodes": [_node_as_json(each) for each in cluster_health.nodes],
        "partitions": {
            "total": len(places.places),
            "roles": cluster_health.roles,
            "not_served": list(verdict.unserved),
            "blocked": list(verdict.blocked),
            "stranded": list(verdict.stranded),
            "thin": list(verdict.thin),
            "behind": list(verdict.lagging),
        },
    }
    if partitions:
        found["places"] = [
            {
                "partition": partition_name(cluster_health, number),
                "epoch": place.epoch,
                "role": place.role,
                "sync": list(place.sync),
                "learners": list(place.learners),
                "lag": _behind(place),
            }
            for number, place in enumerate(places.places)
        ]
    return found


def _node_as_json(each: NodeHealth) -> dict[str, Any]:
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
