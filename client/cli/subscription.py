"""`weft subscription`: lists, shows, releases and deletes the subscriptions of a queue."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from . import options, output, units

if TYPE_CHECKING:
    from weft import SubscriptionStats


@click.group
def subscription() -> None:
    """List, show, release and delete subscriptions.

    \b
    Example:
      weft subscription list clicks
    """


@subscription.command("list")
@click.argument("queue", type=options.QUEUE_NAME)
@options.everywhere
def list_(queue: str) -> None:
    """List the subscriptions of a queue with position and reserved messages.

    \b
    Example:
      weft subscription list clicks
    """
    with options.connect() as client:
        found = client.list_subscriptions(queue)
    if options.wants_json():
        output.as_json([as_json(one) for one in found])
        return
    figures = ("acked", "reserved", "messages", "size", "silent for")
    output.table(
        ("subscription", *figures),
        [
            (
                one.subscription,
                units.count(one.acked_through),
                units.count(one.reserved_through),
                units.count(one.reserved_messages),
                units.size(one.reserved_bytes),
                units.duration_ms(one.idle_ms),
            )
            for one in found
        ],
        right=figures,
    )


@subscription.command
@click.argument("queue", type=options.QUEUE_NAME)
@click.argument("name")
@options.everywhere
def show(queue: str, name: str) -> None:
    """Show the position, reservations and backlog of a subscription.

    \b
    Example:
      weft subscription show clicks hits
    """
    with options.connect() as client:
        found = client.subscription(queue, name).stats()
    if options.wants_json():
        output.as_json(as_json(found))
    else:
        output.facts(_rows(found))


@subscription.command
@click.argument("queue", type=options.QUEUE_NAME)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.everywhere
def release(queue: str, name: str, yes: bool) -> None:
    """Return the reserved messages of a subscription to the queue.

    The holder loses the numbers of these reservations, and other consumers may get the messages.

    \b
    Example:
      weft subscription release clicks hits --yes
    """
    _ask(f"Return all messages of {queue} that {name} has reserved to the queue?", yes=yes)
    with options.connect() as client:
        count = client.subscription(queue, name).release_all()
    _say(queue, name, "released", count)


@subscription.command
@click.argument("queue", type=options.QUEUE_NAME)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.everywhere
def delete(queue: str, name: str, yes: bool) -> None:
    """Delete a subscription and return its reserved messages to the queue.

    \b
    Example:
      weft subscription delete clicks hits --yes
    """
    _ask(f"Delete the subscription {name} of {queue}?", yes=yes)
    with options.connect() as client:
        count = client.delete_subscription(queue, name)
    _say(queue, name, "deleted", count)


def as_json(stats: SubscriptionStats) -> dict[str, Any]:
    return asdict(stats) | {"high_water": stats.high_water}


def _say(queue: str, name: str, what: str, count: int) -> None:
    if options.wants_json():
        output.as_json({"queue": queue, "subscription": name, what: True, "messages": count})
    else:
        click.echo(f"{what} {name}: {units.count(count)} messages returned to {queue}")


def _ask(question: str, *, yes: bool) -> None:
    """Asks on a terminal; a non-interactive run must pass --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            "This command takes reserved messages from their reader. To confirm, pass --yes."
        )
    if not click.confirm(question, err=True):
        raise click.ClickException("not confirmed: nothing was changed")


def _rows(found: SubscriptionStats) -> list[tuple[str, str]]:
    return [
        ("queue", found.queue),
        ("subscription", found.subscription),
        ("epoch", str(found.epoch)),
        ("acked through", units.count(found.acked_through)),
        ("reserved through", units.count(found.reserved_through)),
        ("open reservations", units.count(found.reservations)),
        ("reserved messages", units.count(found.reserved_messages)),
        ("reserved size", units.size(found.reserved_bytes)),
        ("silent for", units.duration_ms(found.idle_ms)),
        ("releases after", units.duration_ms(found.ttl_ms)),
        ("backlog", units.count(found.backlog_messages)),
        ("backlog size", units.size(found.backlog_bytes)),
        ("oldest", units.duration_ms(found.oldest_ms)),
    ]
