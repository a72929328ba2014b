"""`weft cluster leave`: a node hands over what it holds, and is a member no longer.

The command refuses what would leave the cluster's data on one disk, because nobody types that on
purpose; with --force it is done after two questions. What cannot be done at all, it says at once:
the last node has nobody to hand over to.
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

_LOOK_S: Final = 0.5
WAIT_MS_DEFAULT: Final = 3600 * SECOND_MS


@click.command
@click.argument("node")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Even if only one copy of the data would be left.")
@click.option(
    "--wait-ms",
    type=click.IntRange(min=0),
    default=WAIT_MS_DEFAULT,
    show_default=True,
    help="How long to watch the node hand over; it goes on by itself.",
)
@everywhere
def leave(node: str, yes: bool, force: bool, wait_ms: int) -> None:
    """Take NODE (an id, the beginning of one, or a gRPC address) out of the cluster.

    What it holds is handed over first; the command shows how far that is, and ends when the node
    holds nothing. Then its process can be stopped and its data directory removed.

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
    # The one that leaves is asked last: once it is out it knows nothing any more.
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
            f"{found.node.id} has left: {units.count(handed)} partitions were handed over. "
            "Its process can be stopped now"
        )


def find(cluster_health: ClusterHealth, wanted: str) -> NodeHealth:
    """The member that the user means."""
    exact = [each for each in cluster_health.nodes if wanted in (each.node.id, each.node.grpc)]
    found = exact or [each for each in cluster_health.nodes if each.node.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    members = ", ".join(f"{each.node.id} ({each.node.grpc})" for each in cluster_health.nodes)
    what = "is the beginning of several ids" if found else "is no member"
    raise InvalidArgument(f"{wanted} {what}: there are {members}")


def check(cluster_health: ClusterHealth, found: NodeHealth, *, force: bool) -> None:
    """Refuses what loses data, or cannot end."""
    node = found.node
    if node.witness:
        return
    left = [each for each in data_nodes(cluster_health.places) if each.id != node.id]
    if not left:
        raise InvalidArgument(
            f"{node.id} is the only node that can hold data: nobody could take over from it"
        )
    alone = _alone(cluster_health, node)
    if alone:
        raise InvalidArgument(
            f"{node.id} is not alive and has the only copy of {units.count(alone)} partitions: "
            "nobody could hand them over. Start it again; if its disk is lost, see "
            "`weft cluster recover`"
        )
    if len(left) < COPIES and not force:
        raise InvalidArgument(
            f"without {node.id} there would be {len(left)} node to hold data, and so one copy of "
            "everything. Let another node join first; or say --force"
        )


def _alone(cluster_health: ClusterHealth, node: pb.Node) -> int:
    """Partitions of a node that does not answer of which no live node is a member."""
    if node.alive:
        return 0
    live = {each.node.id for each in cluster_health.nodes if each.node.alive}
    places = [place.sync for place in cluster_health.places.places]
    return sum(node.id in sync and live.isdisjoint(sync) for sync in places)


def _ask(cluster_health: ClusterHealth, found: NodeHealth, *, yes: bool, force: bool) -> None:
    """On a terminal a person decides; a script has to say --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This takes a node out of the cluster: say --yes.")
    node = found.node
    left = len([each for each in data_nodes(cluster_health.places) if each.id != node.id])
    questions = [
        f"Take {node.id} ({node.grpc}), which holds {units.count(found.holds)} partitions, out?"
    ]
    if force and not node.witness and left < COPIES:
        risk = "There will be one copy of everything: if that disk fails, every message is lost."
        questions.append(f"{risk} Really?")
    for question in questions:
        if not click.confirm(question, err=True):
            raise click.ClickException("nothing was changed")


def _watch(asked: ClusterCalls, found: NodeHealth, wait_ms: int) -> int:
    """Until the node holds nothing; says how many partitions it held."""
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
                f"{found.node.id} still holds {units.count(held)} partitions; it goes on handing "
                "over: look with `weft cluster status`"
            )
        time.sleep(_LOOK_S)


def _held(places: pb.PlacesResponse, node: str) -> int:
    """In how many partitions the node still has a part."""
    return sum(node in place.sync or node in place.learners for place in places.places)


def _say(text: str) -> None:
    """One line that changes on a terminal; a line for each change elsewhere."""
    if wants_json():
        return
    if sys.stderr.isatty():
        click.echo(f"\r{text}\033[K", nl=False, err=True)
    else:
        click.echo(text, err=True)
