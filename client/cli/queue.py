"""`weft queue`: everything about queues but their messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from . import options, output, partial, units

if TYPE_CHECKING:
    from weft import QueueStats
    from weft.proto.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = {
    "lease-ms": (int, "How long a pop lends a message before it is delivered again."),
    "max-deliveries": (int, "Deliveries before a message moves to its dead letter; 0: no limit."),
    "dead-letter": (str, "The queue for what was delivered too often; made if it is not there."),
    "retention-ms": (int, "Messages older than this are dropped; 0: kept until acked."),
    "dedup-window-ms": (int, "How long a push is remembered, so that a repeat is recognised."),
    "max-messages": (int, "More than this many are refused; 0: no limit."),
}


def _settings(function: F) -> F:
    """An option for each setting; one that is not given is left to the node."""
    for name, (kind, text) in reversed(_SETTINGS.items()):
        function = click.option(f"--{name}", type=kind, help=text)(function)
    return function


@click.group
def queue() -> None:
    """Create, list, show, change and empty queues."""


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@_settings
@click.option(
    "--ordered", is_flag=True, default=None, help="First in, first out; cannot be changed later."
)
@click.option("--update", is_flag=True, help="If it exists with other settings, change those.")
@options.everywhere
def create(name: str, update: bool, **settings: Any) -> None:
    """Make a queue; one that is there with these settings is fine.

    One that is there with other settings is an error, or, with --update, gets those that are named;
    the others stay.

    \b
    Examples:
      weft queue create orders
      weft queue create orders --lease-ms 60000 --max-deliveries 5 --dead-letter orders.dead
      weft queue create events --ordered
      weft queue create orders --lease-ms 120000 --update
    """
    with options.connect() as client:
        created = client.create_queue(name, update=update, **_given(settings))
    if options.wants_json():
        output.as_json({"queue": name, "created": created})
    else:
        click.echo(f"created {name}" if created else f"{name} was there; it has these settings now")


@queue.command("list")
@click.option("--prefix", default="", help="Only queues whose name begins with this.")
@options.everywhere
def list_(prefix: str) -> None:
    """List the queues.

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
    """Show a queue's settings and figures.

    \b
    Example:
      weft queue show orders
    """
    with options.connect() as client:
        found = client.queue(name).stats()
    if options.wants_json():
        output.as_json(as_json(found))
    else:
        output.facts([("name", found.name), *_setting_rows(found.settings), *_figure_rows(found)])
        partial.warn([found])


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@_settings
@options.everywhere
def update(name: str, **settings: Any) -> None:
    """Change a queue's settings; those that are not named stay.

    \b
    Example:
      weft queue update orders --lease-ms 120000
    """
    changes = _given(settings)
    if not changes:
        raise click.UsageError("Name at least one setting to change, as --lease-ms 60000.")
    with options.connect() as client:
        client.update_queue(name, **changes)
    if options.wants_json():
        output.as_json({"queue": name, "updated": changes})
    else:
        click.echo(f"updated {name}")


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.everywhere
def delete(name: str, yes: bool) -> None:
    """Drop a queue with all its messages.

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
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.everywhere
def purge(name: str, yes: bool) -> None:
    """Drop all messages of a queue, leased ones too.

    \b
    Example:
      weft queue purge orders --yes
    """
    _ask(f"Drop all messages of {name}?", yes=yes)
    with options.connect() as client:
        count = client.queue(name).purge()
    _say(name, "purged", count, f"purged {units.count(count)} messages from {name}")


@queue.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; 0: all.")
@options.everywhere
def redrive(name: str, limit: int) -> None:
    """Send a dead letter queue's messages back to where they came from.

    \b
    Example:
      weft queue redrive orders.dead --limit 100
    """
    with options.connect() as client:
        count = client.queue(name).redrive(limit)
    _say(name, "redriven", count, f"sent {units.count(count)} messages of {name} back")


def as_json(stats: QueueStats) -> dict[str, Any]:
    settings = msgspec.structs.asdict(stats.settings)
    return asdict(stats) | {"settings": settings, "partial": stats.partial}


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _say(name: str, what: str, count: int, text: str) -> None:
    if options.wants_json():
        output.as_json({"queue": name, what: count})
    else:
        click.echo(text)


def _ask(question: str, *, yes: bool) -> None:
    """On a terminal a person decides; a script has to say --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This drops messages for good: say --yes.")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")


def _setting_rows(settings: Settings) -> list[tuple[str, str]]:
    unlimited = "no limit"
    return [
        ("ordered", "yes" if settings.ordered else "no"),
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
    ]


def _figure_rows(stats: QueueStats) -> list[tuple[str, str]]:
    return [
        ("ready", units.count(stats.ready)),
        ("leased", units.count(stats.leased)),
        ("delayed", units.count(stats.delayed)),
        ("size", units.size(stats.bytes)),
        ("oldest", units.duration_ms(stats.oldest_ms)),
        ("reserved", units.count(stats.reserved)),
        ("staged", units.count(stats.staged)),
        ("waiting pops", units.count(stats.waiting_pops)),
        ("pushed", f"{units.count(stats.pushed)} (this and the next: since the node started)"),
        ("delivered", units.count(stats.delivered)),
        ("acked", units.count(stats.acked)),
        ("dead lettered", units.count(stats.dead_lettered)),
        ("expired leases", units.count(stats.expired_leases)),
        ("duplicates", units.count(stats.duplicates)),
    ]
