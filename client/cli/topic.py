"""`weft topic`: topics and the queues bound to them."""

from __future__ import annotations

from typing import Any

import click

from weft.proto import wire

from . import options, output
from .multicast import body_of, show_ids
from .push import headers_of


@click.group
def topic() -> None:
    """Create topics and bind queues: a push to a topic reaches every bound queue."""


@topic.command
@click.argument("name", type=options.QUEUE_NAME)
@options.everywhere
def create(name: str) -> None:
    """Create a topic; succeeds if the topic exists.

    \b
    Example:
      weft topic create prices
    """
    with options.connect() as client:
        created = client.create_topic(name)
    if options.wants_json():
        output.as_json({"topic": name, "created": created})
    else:
        click.echo(f"created {name}" if created else f"{name} exists")


@topic.command
@click.argument("name", type=options.QUEUE_NAME)
@click.argument("queue", type=options.QUEUE_NAME)
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="K=V",
    help="Only messages with this header; repeatable, and all must match.",
)  # fmt: skip
@click.option(
    "--prefix", "prefixes", multiple=True, metavar="K=V",
    help="Only messages with the header K that begins with V; repeatable.",
)  # fmt: skip
@options.everywhere
def bind(name: str, queue: str, headers: tuple[str, ...], prefixes: tuple[str, ...]) -> None:
    """Bind a queue to a topic, or replace the filter of a bound queue.

    \b
    Examples:
      weft topic bind prices audit
      weft topic bind prices europe --header region=eu --prefix symbol=EUR
    """
    with options.connect() as client:
        created = client.bind(
            name, queue, headers=headers_of(headers), prefixes=headers_of(prefixes, "--prefix")
        )
    if options.wants_json():
        output.as_json({"topic": name, "queue": queue, "bound": created})
    else:
        click.echo(f"bound {queue} to {name}" if created else f"replaced the filter of {queue}")


@topic.command
@click.argument("name", type=options.QUEUE_NAME)
@click.argument("body")
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="K=V", help="Add a header; repeatable."
)
@click.option("--key", help="Set the message's key.")
@click.option("--delay-ms", type=int, default=0, help="Delay the delivery, in milliseconds.")
@click.option(
    "--conflict-key",
    help="Keep one order among messages with this key; the group in grouped queues.",
)
@options.everywhere
def push(
    name: str,
    body: str,
    headers: tuple[str, ...],
    key: str | None,
    delay_ms: int,
    conflict_key: str | None,
) -> None:
    """Push one message to every bound queue whose filter matches: to all of them, or none.

    The message is durable when the command returns; the command prints its id in each queue, and
    nothing if no queue matches. BODY is the message body, or - to read it from stdin.

    \b
    Example:
      weft topic push prices 1.08 --header region=eu
    """
    with options.connect() as client:
        ids = client.topic(name).push(
            body_of(body),
            headers=headers_of(headers),
            key=key,
            delay_ms=delay_ms,
            conflict_key=conflict_key,
        )
    show_ids(ids)


@topic.command
@click.argument("name", type=options.QUEUE_NAME)
@click.argument("queue", type=options.QUEUE_NAME)
@options.everywhere
def unbind(name: str, queue: str) -> None:
    """Remove a queue from a topic; the queue keeps its messages.

    \b
    Example:
      weft topic unbind prices audit
    """
    with options.connect() as client:
        found = client.unbind(name, queue)
    if options.wants_json():
        output.as_json({"topic": name, "queue": queue, "unbound": found})
    else:
        click.echo(f"unbound {queue} from {name}" if found else f"{queue} was not bound to {name}")


@topic.command("list")
@click.option("--prefix", default="", help="List only topics with names that begin with this.")
@options.everywhere
def list_(prefix: str) -> None:
    """List the topics with their queues.

    \b
    Example:
      weft topic list
    """
    with options.connect() as client:
        found = client.list_topics(prefix)
    if options.wants_json():
        output.as_json([as_json(each) for each in found])
        return
    output.table(
        ("name", "queues"),
        [(each.name, ", ".join(one.queue for one in each.bindings) or "-") for each in found],
    )


@topic.command
@click.argument("name", type=options.QUEUE_NAME)
@options.everywhere
def show(name: str) -> None:
    """Show the queues bound to a topic, and the filter of each.

    \b
    Example:
      weft topic show prices
    """
    with options.connect() as client:
        found = client.topic(name).describe()
    if options.wants_json():
        output.as_json(as_json(found))
        return
    output.table(("queue", "filter"), [(each.queue, _filter(each)) for each in found.bindings])


@topic.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.everywhere
def delete(name: str, yes: bool) -> None:
    """Delete a topic; its queues keep their messages.

    \b
    Example:
      weft topic delete prices --yes
    """
    if not yes:
        click.confirm(f"Delete the topic {name}?", abort=True)
    with options.connect() as client:
        client.delete_topic(name)
    if options.wants_json():
        output.as_json({"topic": name, "deleted": True})
    else:
        click.echo(f"deleted {name}")


def as_json(found: wire.TopicInfo) -> dict[str, Any]:
    return {
        "name": found.name,
        "bindings": [
            {"queue": each.queue, "headers": each.headers, "prefixes": each.prefixes}
            for each in found.bindings
        ],
    }


def _filter(binding: wire.Binding) -> str:
    exact = [f"{name}={value}" for name, value in sorted(binding.headers.items())]
    begin = [f"{name}={value}..." for name, value in sorted(binding.prefixes.items())]
    return ", ".join([*exact, *begin]) or "all messages"
