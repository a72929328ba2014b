"""`weft cluster recover`: resumes service after the permanent loss of disks.

A partition whose whole sync set is lost is offline, because no other node is known to have every
acknowledged entry. The command reports which messages may be lost, then restarts these partitions
from the most complete copies on live nodes. Three deliberate inputs guard against accidents: the
ids of the lost nodes, --accept-data-loss, and a confirmation (or --yes).
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
    "Unknown: messages that the lost nodes acknowledged in the last moments before the failure and "
    "that are in no copy."
)
_OUTDATED = (
    "The lost nodes were a majority: if they went on without this node before they failed, "
    "messages that they acknowledged since are missing too, also in partitions that are not listed."
)


@click.command
@click.option(
    "--lost", multiple=True, metavar="NODE", help="Id of a node with a lost disk; repeatable."
)
@click.option(
    "--accept-data-loss", is_flag=True, help="Give up messages that only the lost nodes had."
)
@click.option(
    "--force-voters",
    is_flag=True,
    help="If a majority of the voters is lost: the one node named by -s decides alone.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@everywhere
def recover(lost: tuple[str, ...], accept_data_loss: bool, force_voters: bool, yes: bool) -> None:
    """Resume service without nodes that lost their disks permanently.

    Without --accept-data-loss the command only reports: the partitions without a live member, and
    the messages in copies on live nodes. With --accept-data-loss these partitions restart from the
    copies, or empty; messages that only the lost nodes had are gone. The lost nodes must never be
    started again with their old data directories. If a lost node can be started, start it instead:
    then no message is lost.

    \b
    Examples:
      weft cluster recover
      weft cluster recover --lost 3f2a --lost 77b1 --accept-data-loss
    """
    if accept_data_loss and not lost:
        raise click.UsageError("Pass the nodes with lost disks: --lost NODE.")
    if force_voters and len(parse_servers(servers())) != 1:
        raise click.UsageError("--force-voters requires exactly one deciding node: -s HOST:PORT.")
    asked = calls()
    cluster_health = ClusterHealth.of(asked.places())
    ids = [find(cluster_health, node).node.id for node in lost]
    report = asked.recover(ids)
    if accept_data_loss:
        if not wants_json():
            _print_report(cluster_health, report)
        _ask(report, yes=yes)
        partitions = [place.partition for place in report.places]
        report = asked.recover(ids, partitions=partitions, execute=True, force_voters=force_voters)
    if wants_json():
        output.as_json(_as_json(report))
    elif not report.done:
        _print_report(cluster_health, report)
        _advise(report)
    else:
        click.echo(
            f"removed {len(report.lost)} lost nodes and restarted "
            f"{units.count(len(report.places))} partitions from the remaining copies; the audit "
            "log of the contacted node has the details. Do not start the lost nodes again with "
            "their old data. Start new nodes, and check `weft cluster status`"
        )


def _ask(report: pb.RecoverResponse, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            "This command gives up messages permanently. To confirm, pass --yes."
        )
    question = f"Permanently give up {', '.join(report.lost)} and all messages only they had?"
    if not click.confirm(question, err=True):
        raise click.ClickException("not confirmed: nothing was changed")


def _print_report(cluster_health: ClusterHealth, report: pb.RecoverResponse) -> None:
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
    click.echo()
    output.table(["partition", "restarts from", "messages in that copy"], _rows(report))
    left = ", ".join(
        f"{name or 'unknown queues'}: {count:,}" for name, count in sorted(kept.items())
    )
    click.echo(f"\nLeft in the copies: {left or 'no messages'}.")
    if empty:
        click.echo(
            f"Lost completely, with an unknown number of messages: {len(empty)} partitions "
            "without a copy."
        )
    click.echo(_UNKNOWN)
    if not report.quorum:
        click.echo(_OUTDATED)


def _rows(report: pb.RecoverResponse) -> list[tuple[str, str, str]]:
    """One row for each run of adjacent partitions with equal words: a node loses dozens at once."""
    runs: list[tuple[str, str, tuple[str, str]]] = []
    before = -2
    for place in report.places:
        name = _name(place, report)
        words = (place.base or "no copy", _messages(place))
        adjacent = place.partition == before + 1 and place.partition != report.catalogue
        if adjacent and runs[-1][2] == words and not place.messages:
            runs[-1] = (runs[-1][0], name, words)
        else:
            runs.append((name, name, words))
        before = place.partition
    return [
        (first if first == last else f"{first} to {last}", *words) for first, last, words in runs
    ]


def _advise(report: pb.RecoverResponse) -> None:
    if not report.places and report.quorum:
        silent = sorted(set(report.unreachable) - set(report.lost))
        if silent:
            click.echo(
                "Nothing to recover without these nodes alone. Start the others that do not "
                f"answer, or name them with --lost if their disks are lost: {', '.join(silent)}"
            )
        else:
            click.echo("Nothing to recover: every partition has a live member.")
        return
    flags = " ".join(f"--lost {node}" for node in report.lost)
    force = "" if report.quorum else " --force-voters"
    click.echo(
        "If one of these nodes can be started again, start it: then no message is lost. If the "
        f"disks are lost permanently:\n  weft cluster recover {flags} --accept-data-loss{force}"
    )


def _name(place: pb.LostPlace, report: pb.RecoverResponse) -> str:
    return "catalogue" if place.partition == report.catalogue else str(place.partition)


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
