"""`weft peek`: the next messages, left where they are."""

from __future__ import annotations

import time

import click

from weft import limits

from . import messages, options, output, units


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, limits.POP_COUNT_MAX),
    default=10,
    show_default=True,
    help="At most so many.",
)
@options.everywhere
def peek(name: str, count: int) -> None:
    """Look at a queue's next messages without taking them.

    With --json each message is an object on a line of its own.

    \b
    Examples:
      weft peek orders
      weft peek orders -n 1000 --json | jq -r .body
    """
    with options.connect() as client:
        found = client.queue(name).peek(count)
    if options.wants_json():
        for message in found:
            output.as_json_line(messages.as_json(message))
        return
    now = time.time()
    output.table(
        ("id", "age", "deliveries", "size", "key", "headers", "body"),
        [
            (
                str(message.id),
                units.duration_ms(max(0.0, now - message.pushed_at) * 1000),
                units.count(message.deliveries),
                units.size(len(message.body)),
                message.key or "-",
                " ".join(f"{k}={v}" for k, v in message.headers.items()) or "-",
                output.preview(message.body),
            )
            for message in found
        ],
        right=("age", "deliveries", "size"),
    )
