"""`weft queue`: creates, lists, shows, updates, purges, redrives and deletes queues."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from weft.proto.settings import ACCESS, SHARE_WHOLE, STOCHASTIC

from . import options, output, partial, shares, units

if TYPE_CHECKING:
    from weft import QueueStats
    from weft.proto.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = {
    "lease-ms": (int, "Duration of a lease in milliseconds; then the message is redelivered."),
    "max-deliveries": (
        int,
        "Deliveries before a message moves to the dead-letter queue; 0: no limit.",
    ),
    "dead-letter": (str, "Name of the dead-letter queue; created if it does not exist."),
    "retention-ms": (int, "Drop messages older than this, in milliseconds; 0: keep until acked."),
    "dedup-window-ms": (
        int,
        "Recognise a repeated push for this long, in milliseconds.",
    ),
    "max-messages": (int, "Refuse pushes beyond this number of messages; 0: no limit."),
    "buffers": (int, "Of a stochastic queue: ready messages that each node holds, at most."),
    "max-hops": (int, "Of a stochastic queue: nodes that a pop probes; it waits at the last."),
    "access": (
        click.Choice(ACCESS),
        "Of a stochastic queue: how a pop chooses nodes: all alike, by measured production rates, "
        "or nodes of its own zone first.",
    ),
    "expire-idle-ms": (
        int,
        "Delete the queue when no client has used it for this long, in milliseconds; 0: never.",
    ),
    "share": (
        float,
        "Part of each node's time while queues compete, 0 to 1; 0: an equal part of the rest.",
    ),
    "rate-limit": (int, "Deliver at most this many messages per second; 0: no limit."),
    "max-in-flight": (int, "Lease at most this many messages at once; 0: no limit."),
}


def _settings(function: F) -> F:
    """Adds one option per queue setting; the node keeps or defaults settings without an option."""
    for name, (kind, text) in reversed(_SETTINGS.items()):
        function = click.option(f"--{name}", type=kind, help=text)(function)
    return click.option(
        "--graphs",
        is_flag=True,
        default=None,
        help="Take tasks of graphs, which wait for other tasks; cannot be switched off later.",
    )(function)


@click.group
def queue() -> None:
    """Create, list, show, update, purge and delete queues.

    \b
    Example:
      weft queue create orders
    """


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@_settings
@click.option(
    "--ordered", is_flag=True, default=None, help="First in, first out; cannot be changed later."
)
@click.option(
    "--grouped",
    is_flag=True,
    default=None,
    help="First in, first out within each group; cannot be changed later.",
)
@click.option(
    "--keep-leases",
    is_flag=True,
    default=None,
    help="Leases survive a failover, and a pop costs a replicated write; cannot be changed later.",
)
@click.option(
    "--kind",
    type=click.Choice([STOCHASTIC]),
    help="Keep each message on the node that takes it, in a bounded buffer; cannot be changed "
    "later.",
)
@click.option("--update", is_flag=True, help="Update the settings if the queue exists.")
@options.everywhere
def create(name: str, update: bool, **settings: Any) -> None:
    """Create a queue; succeeds if the queue exists with the same settings.

    If the queue exists with other settings, the command fails; with --update it changes the given
    settings and keeps the others.

    \b
    Examples:
      weft queue create orders
      weft queue create orders --lease-ms 60000 --max-deliveries 5 --dead-letter orders.dead
      weft queue create events --ordered
      weft queue create payments --grouped
      weft queue create builds --keep-leases
      weft queue create clicks --kind stochastic --buffers 1000 --max-hops 3 --access rates
      weft queue create orders --lease-ms 120000 --update
    """
    with options.connect() as client:
        created = client.create_queue(name, update=update, **_given(settings))
        total = shares.total(client) if settings["share"] else 0.0
    if options.wants_json():
        output.as_json({"queue": name, "created": created})
    else:
        state = "has these settings now" if update else "exists with these settings"
        click.echo(f"created {name}" if created else f"{name} {state}")
        shares.warn(settings["share"] or 0.0, total)


@queue.command("list")
@click.option("--prefix", default="", help="List only queues with names that begin with this.")
@options.everywhere
def list_(prefix: str) -> None:
    """List the queues with message counts, size and age of the oldest message.

    \b
    Examples:
      weft queue list
      weft queue list --prefix orders. --json
    """
    with options.connect() as client:
        found = client.list_queues(prefix)
    if options.wants_json():
        output.as_json([as_json(one) for one in found])
        return
    output.table(
        ("name", "ready", "leased", "delayed", "size", "oldest", "waiting pops"),
        [
            (
                one.name,
                units.count(one.ready),
                units.count(one.leased),
                units.count(one.delayed),
                units.size(one.bytes),
                units.duration_ms(one.oldest_ms) if one.oldest_ms else "-",
                units.count(one.waiting_pops),
            )
            for one in found
        ],
        right=("ready", "leased", "delayed", "size", "oldest", "waiting pops"),
    )
    partial.warn(found)


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@options.everywhere
def show(name: str) -> None:
    """Show a queue's settings, message counts and totals.

    \b
    Example:
      weft queue show orders
    """
    with options.connect() as client:
        found = client.queue(name).stats()
        total = shares.total(client) if found.settings.share else 0.0
    if options.wants_json():
        output.as_json(as_json(found))
    else:
        topics = [("topics", ", ".join(found.topics))] if found.topics else []
        settings = [*_setting_rows(found.settings), *shares.rows(found, total)]
        output.facts([("name", found.name), *settings, *topics, *_figure_rows(found)])
        partial.warn([found])


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@_settings
@options.everywhere
def update(name: str, **settings: Any) -> None:
    """Change a queue's settings; settings without an option stay.

    \b
    Example:
      weft queue update orders --lease-ms 120000
      weft queue update orders --share 0.3
    """
    changes = _given(settings)
    if not changes:
        raise click.UsageError("Pass at least one setting to change, for example --lease-ms 60000.")
    with options.connect() as client:
        client.update_queue(name, **changes)
        total = shares.total(client) if changes.get("share") else 0.0
    if options.wants_json():
        output.as_json({"queue": name, "updated": changes})
    else:
        click.echo(f"updated {name}")
        shares.warn(changes.get("share", 0.0), total)


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.everywhere
def delete(name: str, yes: bool) -> None:
    """Delete a queue with all its messages.

    \b
    Example:
      weft queue delete orders --yes
    """
    _ask(f"Delete the queue {name} with all its messages?", yes=yes)
    with options.connect() as client:
        count = client.delete_queue(name)
    _say(name, "deleted", count, f"deleted {name} with {units.count(count)} messages")


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.everywhere
def purge(name: str, yes: bool) -> None:
    """Delete all messages of a queue, including leased messages; the queue stays.

    \b
    Example:
      weft queue purge orders --yes
    """
    _ask(f"Delete all messages of the queue {name}?", yes=yes)
    with options.connect() as client:
        count = client.queue(name).purge()
    _say(name, "purged", count, f"purged {units.count(count)} messages from {name}")


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option(
    "--limit", type=click.IntRange(min=0), default=0, help="Maximum number of messages; 0: all."
)
@options.everywhere
def redrive(name: str, limit: int) -> None:
    """Move the messages of a dead-letter queue back to their original queues.

    \b
    Example:
      weft queue redrive orders.dead --limit 100
    """
    with options.connect() as client:
        count = client.queue(name).redrive(limit)
    text = f"moved {units.count(count)} messages of {name} back to their original queues"
    _say(name, "redriven", count, text)


def as_json(stats: QueueStats) -> dict[str, Any]:
    settings = msgspec.structs.asdict(stats.settings)
    settings["share"] /= SHARE_WHOLE
    more = {"settings": settings, "share_got": stats.share_got, "partial": stats.partial}
    return asdict(stats) | more


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _say(name: str, what: str, count: int, text: str) -> None:
    if options.wants_json():
        output.as_json({"queue": name, what: count})
    else:
        click.echo(text)


def _ask(question: str, *, yes: bool) -> None:
    """Asks on a terminal; a non-interactive run must pass --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This command deletes messages. To confirm, pass --yes.")
    if not click.confirm(question, err=True):
        raise click.ClickException("not confirmed: nothing was changed")


def _setting_rows(settings: Settings) -> list[tuple[str, str]]:
    unlimited = "no limit"
    return [
        ("ordered", "yes" if settings.ordered else "no"),
        ("grouped", "yes" if settings.grouped else "no"),
        ("graphs", "yes" if settings.graphs else "no"),
        ("keeps leases", "yes" if settings.keep_leases else "no"),
        ("lease", units.duration_ms(settings.lease_ms)),
        (
            "max deliveries",
            units.count(settings.max_deliveries) if settings.max_deliveries else unlimited,
        ),
        ("dead letter", settings.dead_letter or "none"),
        (
            "retention",
            units.duration_ms(settings.retention_ms) if settings.retention_ms else unlimited,
        ),
        ("dedup window", units.duration_ms(settings.dedup_window_ms)),
        (
            "max messages",
            units.count(settings.max_messages) if settings.max_messages else unlimited,
        ),
        (
            "rate limit",
            f"{units.count(settings.rate_limit)}/s" if settings.rate_limit else unlimited,
        ),
        (
            "max in flight",
            units.count(settings.max_in_flight) if settings.max_in_flight else unlimited,
        ),
        (
            "expires",
            f"after {units.duration_ms(settings.expire_idle_ms)} without use"
            if settings.expire_idle_ms
            else "no",
        ),
        *_kind_rows(settings),
    ]


def _kind_rows(settings: Settings) -> list[tuple[str, str]]:
    if not settings.stochastic:
        return []
    return [
        ("kind", settings.kind),
        ("buffers", f"{units.count(settings.buffers)} ready messages on each node"),
        ("max hops", units.count(settings.max_hops)),
        ("access", settings.access),
    ]


def _figure_rows(stats: QueueStats) -> list[tuple[str, str]]:
    return [
        ("ready", units.count(stats.ready)),
        ("leased", units.count(stats.leased)),
        ("delayed", units.count(stats.delayed)),
        ("waiting for other tasks", units.count(stats.waiting)),
        ("size", units.size(stats.bytes)),
        ("oldest", units.duration_ms(stats.oldest_ms)),
        ("reserved", units.count(stats.reserved)),
        ("staged", units.count(stats.staged)),
        ("waiting pops", units.count(stats.waiting_pops)),
        ("pushed", f"{units.count(stats.pushed)} (this and the following: since the node started)"),
        ("delivered", units.count(stats.delivered)),
        ("acked", units.count(stats.acked)),
        ("dead lettered", units.count(stats.dead_lettered)),
        ("expired leases", units.count(stats.expired_leases)),
        ("duplicates", units.count(stats.duplicates)),
        *_probe_rows(stats),
    ]


def _probe_rows(stats: QueueStats) -> list[tuple[str, str]]:
    if not stats.settings.stochastic:
        return []
    found = max(1, stats.probes - stats.empty_probes)
    return [
        ("probes", units.count(stats.probes)),
        ("empty probes", units.count(stats.empty_probes)),
        ("probes per find", f"{stats.probes / found:.2f}"),
        ("blocked pops", units.count(stats.blocked_pops)),
        ("blocked time", units.duration_ms(stats.blocked_us // 1000)),
        ("full buffers", f"{units.count(stats.full_buffers)} pushes refused"),
        ("room waits", units.duration_ms(stats.room_wait_us // 1000)),
    ]
