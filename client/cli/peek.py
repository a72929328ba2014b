"""`weft peek`: shows the next messages of a queue without leasing them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from weft import limits

from . import messages, options, output, units

if TYPE_CHECKING:
    from weft import Message


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, limits.POP_COUNT_MAX),
    default=10,
    show_default=True,
    help="Maximum number of messages.",
)
@click.option("--delayed", is_flag=True, help="Show delayed messages, the earliest due first.")
@options.everywhere
def peek(name: str, count: int, delayed: bool) -> None:
    """Show a queue's next messages without leasing them.

    A dead letter is shown with its original queue, the number of deliveries there and the reason.
    With --json each line is one message as an object.

    \b
    Examples:
      weft peek orders
      weft peek orders --delayed
      weft peek orders.dead
      weft peek orders -n 1000 --json | jq -r .body
    """
    with options.connect() as client:
        found = client.queue(name).peek(count, delayed=delayed)
    if options.wants_json():
        for message in found:
            output.as_json_line(messages.as_json(message))
        return
    now = time.time()
    columns: dict[str, Callable[[Message], str]] = {
        "id": lambda message: str(message.id),
        "age": lambda message: units.duration_ms(max(0.0, now - message.pushed_at) * 1000),
        "deliveries": lambda message: units.count(message.deliveries),
        "size": lambda message: units.size(len(message.body)),
        "key": lambda message: message.key or "-",
        "headers": lambda message: " ".join(f"{k}={v}" for k, v in message.headers.items()) or "-",
    }
    if delayed:
        columns["due in"] = lambda message: units.duration_ms(
            max(0.0, (message.due_at or now) - now) * 1000
        )
    if any(message.dead_reason for message in found):
        columns["came from"] = lambda message: message.dead_origin or "-"
        columns["deliveries there"] = lambda message: units.count(message.dead_deliveries)
        columns["reason"] = lambda message: output.preview(message.dead_reason.encode(), 80) or "-"
    columns["body"] = lambda message: output.preview(message.body)
    output.table(
        tuple(columns),
        [tuple(show(message) for show in columns.values()) for message in found],
        right=("age", "deliveries", "size", "due in", "deliveries there"),
    )
