"""`weft cluster leave`: a node hands its partitions over to other nodes and leaves the cluster.

The command refuses a departure that would leave one copy of the data, because that is usually a
mistake; with --force two confirmations are required. A departure that can never complete (no other
data node, or the only copy is on a dead node) is refused before any change.
"""

from __future__ import annotations

import sys
import time
from typing import Final

import click

from weft.client.admin.cluster import ClusterCalls
from weft.client.admin.cluster_health import COPIES, ClusterHealth, NodeHealth, data_nodes
from weft.client.cli import output, units
from weft.client.cli.options import everywhere, wants_json
from weft.errors import InvalidArgument, Unavailable
from weft.limits import SECOND_MS
from weft.proto import weft_pb2 as pb

from .calls import calls

_POLL_S: Final = 0.5
WAIT_MS_DEFAULT: Final = 3600 * SECOND_MS


@click.command
@click.argument("node")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Leave even if only one copy of the data remains.")
@click.option(
    "--wait-ms",
    type=click.IntRange(min=0),
    default=WAIT_MS_DEFAULT,
    show_default=True,
    help="Milliseconds to wait for the handover, which continues without the command.",
)
@everywhere
def leave(node: str, yes: bool, force: bool, wait_ms: int) -> None:
    """Remove NODE (an id, the beginning of an id, or a gRPC address) from the cluster.

    The node first hands over its partitions; the command shows the progress and ends when the node
    holds no partition. Then stop the node's process and remove its data directory.

    \b
    Examples:
      weft cluster leave 3f2a
      weft cluster leave 10.0.0.7:7700 --yes
    """
    asked = calls()
    cluster_health = ClusterHealth.of(asked.places())
    found = find(cluster_health, node)
    check(cluster_health, found, force=force)
    _ask(cluster_health, found, yes=yes, force=force)
    # Query the leaving node last: after its departure it has no current view of the cluster.
    others = [
        each.node.grpc for each in cluster_health.nodes if each.node.alive and each is not found
    ]
    asked.prefer([*others, found.node.grpc])
    asked.leave(found.node.id, force=force)
    handed = _watch(asked, found, wait_ms)
    if wants_json():
        output.as_json({"node": found.node.id, "handed_over": handed})
    else:
        click.echo(
            f"{found.node.id} has left the cluster and handed over {units.count(handed)} "
            "partitions. Now stop its process"
        )


def find(cluster_health: ClusterHealth, wanted: str) -> NodeHealth:
    """The member with this id, id prefix or gRPC address; raises InvalidArgument otherwise."""
    exact = [each for each in cluster_health.nodes if wanted in (each.node.id, each.node.grpc)]
    found = exact or [each for each in cluster_health.nodes if each.node.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    members = ", ".join(f"{each.node.id} ({each.node.grpc})" for each in cluster_health.nodes)
    problem = "is the beginning of several ids" if found else "is no member"
    raise InvalidArgument(f"{wanted} {problem} of the cluster: the members are {members}")


def check(cluster_health: ClusterHealth, found: NodeHealth, *, force: bool) -> None:
    """Raises InvalidArgument if the departure would lose data or could never complete."""
    node = found.node
    if node.witness:
        return
    left = [each for each in data_nodes(cluster_health.places) if each.id != node.id]
    if not left:
        raise InvalidArgument(
            f"{node.id} is the only node that can hold data: no other node can take over its "
            "partitions. Start another node first"
        )
    alone = _alone(cluster_health, node)
    if alone:
        raise InvalidArgument(
            f"{node.id} is not alive and has the only copy of {units.count(alone)} partitions, "
            "which no node can hand over. Start the node again; if its disk is lost, see "
            "`weft cluster recover`"
        )
    if len(left) < COPIES and not force:
        raise InvalidArgument(
            f"without {node.id} only {len(left)} data node remains, with one copy of every "
            "message. Start another node first, or pass --force"
        )


def _alone(cluster_health: ClusterHealth, node: pb.Node) -> int:
    """Number of partitions of a dead node whose sync set has no live member."""
    if node.alive:
        return 0
    live = {each.node.id for each in cluster_health.nodes if each.node.alive}
    places = [place.sync for place in cluster_health.places.places]
    return sum(node.id in sync and live.isdisjoint(sync) for sync in places)


def _ask(cluster_health: ClusterHealth, found: NodeHealth, *, yes: bool, force: bool) -> None:
    """Asks on a terminal; a non-interactive run must pass --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            "This command removes a node from the cluster. To confirm, pass --yes."
        )
    node = found.node
    left = len([each for each in data_nodes(cluster_health.places) if each.id != node.id])
    questions = [
        f"Remove {node.id} ({node.grpc}), which holds {units.count(found.holds)} partitions?"
    ]
    if force and not node.witness and left < COPIES:
        risk = "One copy of every message will remain: if that disk fails, all messages are lost."
        questions.append(f"{risk} Continue?")
    for question in questions:
        if not click.confirm(question, err=True):
            raise click.ClickException("not confirmed: nothing was changed")


def _watch(asked: ClusterCalls, found: NodeHealth, wait_ms: int) -> int:
    """Polls until the node holds no partition; returns the number of partitions handed over."""
    end = time.monotonic() + wait_ms / 1000
    last = -1
    while True:
        held = _held(asked.places(), found.node.id)
        if held != last:
            last = held
            _say(f"{units.count(held)} of {units.count(found.holds)} partitions to hand over")
        if not held:
            if sys.stderr.isatty() and not wants_json():
                click.echo(err=True)
            return found.holds
        if time.monotonic() > end:
            raise Unavailable(
                f"{found.node.id} still holds {units.count(held)} partitions; the handover "
                "continues: check with `weft cluster status`"
            )
        time.sleep(_POLL_S)


def _held(places: pb.PlacesResponse, node: str) -> int:
    """Number of partitions with the node in the sync set or among the learners."""
    return sum(node in place.sync or node in place.learners for place in places.places)


def _say(text: str) -> None:
    """Prints progress: a terminal gets one rewritten line, a pipe gets one line per change."""
    if wants_json():
        return
    if sys.stderr.isatty():
        click.echo(f"\r{text}\033[K", nl=False, err=True)
    else:
        click.echo(text, err=True)
