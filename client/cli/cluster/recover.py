"""`weft cluster recover`: go on after disks are lost for good.

A partition whose whole sync set is lost is offline, because nobody else is known to have all of it.
This command names what would be lost and goes on with the best copies that live nodes have. It
needs three things that nobody types by accident: the lost nodes by name, --accept-data-loss, and a
yes to its question.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import click

from weft.client.admin.cluster_health import ClusterHealth
from weft.client.cli import output, units
from weft.client.cli.options import everywhere, servers, wants_json
from weft.client.routing.discovery import parse_servers
from weft.proto import weft_pb2 as pb

from .calls import calls
from .leave import find

_UNKNOWN = (
    "Unknown: what the lost nodes acknowledged in the last moments before they failed and the "
    "copies do not have."
)


@click.command
@click.option("--lost", multiple=True, metavar="NODE", help="A node whose disk is lost; repeat it.")
@click.option("--accept-data-loss", is_flag=True, help="Go on without what only those nodes had.")
@click.option(
    "--force-voters",
    is_flag=True,
    help="A majority of the voters is lost: the one node named by -s decides alone.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@everywhere
def recover(lost: tuple[str, ...], accept_data_loss: bool, force_voters: bool, yes: bool) -> None:
    """Go on without nodes whose disks are lost for good.

    Without --accept-data-loss it only reports: the partitions of which no live node is a member,
    and the messages that are left in the copies of live nodes. With it those partitions go on from
    these copies, or empty; what only the lost nodes had is gone. The lost nodes never come back
    with their old data directories. If you can start one of them again, do that instead.

    \b
    Examples:
      weft cluster recover
      weft cluster recover --lost 3f2a --lost 77b1 --accept-data-loss
    """
    if accept_data_loss and not lost:
        raise click.UsageError("Name the nodes whose disks are lost: --lost NODE.")
    if force_voters and len(parse_servers(servers())) != 1:
        raise click.UsageError("--force-voters: name the one node that decides, with -s.")
    asked = calls()
    cluster_health = ClusterHealth.of(asked.places())
    ids = [find(cluster_health, node).node.id for node in lost]
    report = asked.recover(ids)
    if accept_data_loss:
        if not wants_json():
            _tell(cluster_health, report)
        _ask(report, yes=yes)
        partitions = [place.partition for place in report.places]
        report = asked.recover(ids, partitions=partitions, execute=True, force_voters=force_voters)
    if wants_json():
        output.as_json(_as_json(report))
    elif not report.done:
        _tell(cluster_health, report)
        _advise(report)
    else:
        click.echo(
            f"{len(report.lost)} nodes are out, {units.count(len(report.places))} partitions were "
            "founded anew. It is in the audit log of the node that was asked. Do not start the "
            "lost nodes again with their old data; let new ones join, and see `weft cluster status`"
        )


def _ask(report: pb.RecoverResponse, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This gives up messages for good: say --yes.")
    question = f"Give up {', '.join(report.lost)} and everything that only they had, for good?"
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")


def _tell(cluster_health: ClusterHealth, report: pb.RecoverResponse) -> None:
    names = {each.node.id: f"{each.node.id} ({each.node.grpc})" for each in cluster_health.nodes}
    kept = _kept(report)
    empty = [place for place in report.places if not place.base]
    total = len(cluster_health.places.places)
    output.facts(
        [
            ("do not answer", ", ".join(names.get(n, n) for n in report.unreachable) or "none"),
            ("lost", ", ".join(names.get(n, n) for n in report.lost) or "none"),
            ("offline", f"{units.count(len(report.places))} of {units.count(total)} partitions"),
            ("votes", "a majority is left" if report.quorum else "NO majority is left"),
        ]
    )
    if not report.places:
        return
    rows = [
        (_name(place, report), place.base or "no copy", _messages(place)) for place in report.places
    ]
    click.echo()
    output.table(["partition", "goes on from", "messages in that copy"], rows)
    left = ", ".join(
        f"{name or 'unknown queues'}: {count:,}" for name, count in sorted(kept.items())
    )
    click.echo(f"\nLeft in the copies: {left or 'no messages'}.")
    if empty:
        click.echo(
            f"Lost as a whole, and how much is unknown: {len(empty)} partitions without a copy."
        )
    click.echo(_UNKNOWN)


def _advise(report: pb.RecoverResponse) -> None:
    if not report.places and report.quorum:
        click.echo("Nothing to recover: every partition has a live member.")
        return
    flags = " ".join(f"--lost {node}" for node in report.lost)
    force = "" if report.quorum else " --force-voters"
    click.echo(
        "If one of the nodes can be started again, start it: nothing is lost then. If their disks "
        f"are gone for good:\n  weft cluster recover {flags} --accept-data-loss{force}"
    )


def _name(place: pb.LostPlace, report: pb.RecoverResponse) -> str:
    return "the queues' records" if place.partition == report.catalogue else str(place.partition)


def _messages(place: pb.LostPlace) -> str:
    if not place.base:
        return "unknown"
    counts = ", ".join(f"{name or '?'}: {n:,}" for name, n in sorted(place.messages.items()))
    return (counts or "none") + (" and more" if place.more else "")


def _kept(report: pb.RecoverResponse) -> Counter[str]:
    kept: Counter[str] = Counter()
    for place in report.places:
        kept.update(dict(place.messages))
    return kept


def _as_json(report: pb.RecoverResponse) -> dict[str, Any]:
    return {
        "done": report.done,
        "lost": list(report.lost),
        "unreachable": list(report.unreachable),
        "quorum": report.quorum,
        "messages_kept": dict(_kept(report)),
        "partitions": [
            {
                "partition": place.partition,
                "catalogue": place.partition == report.catalogue,
                "members": list(place.sync),
                "base": place.base or None,
                "messages": dict(place.messages) if place.base else None,
                "all_counted": not place.more,
            }
            for place in report.places
        ],
    }
