"""`weft subscription`: who reserves messages of a queue, how far it is, and how to end it."""

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
    """List, show, release and delete subscriptions."""


@subscription.command("list")
@click.argument("queue", type=options.QUEUE_NAME)
@options.everywhere
def list_(queue: str) -> None:
    """List the subscriptions of a queue.

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
    """Show how far a subscription is, and what it holds.

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
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.everywhere
def release(queue: str, name: str, yes: bool) -> None:
    """Put what a subscription has reserved back into the queue.

    Whoever reads it cannot go on with those numbers: others may get the messages.

    \b
    Example:
      weft subscription release clicks hits --yes
    """
    _ask(f"Put back what {name} has reserved of {queue}?", yes=yes)
    with options.connect() as client:
        count = client.subscription(queue, name).release_all()
    _say(queue, name, "released", count)


@subscription.command
@click.argument("queue", type=options.QUEUE_NAME)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.everywhere
def delete(queue: str, name: str, yes: bool) -> None:
    """Forget a subscription; what it has reserved goes back to the queue.

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
        click.echo(f"{what} {name}: {units.count(count)} messages went back to {queue}")


def _ask(question: str, *, yes: bool) -> None:
    """On a terminal a person decides; a script has to say --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This takes messages from whoever reads them: say --yes.")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")


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
        ("gives back after", units.duration_ms(found.ttl_ms)),
        ("backlog", units.count(found.backlog_messages)),
        ("backlog size", units.size(found.backlog_bytes)),
        ("oldest", units.duration_ms(found.oldest_ms)),
    ]
