"""`weft multicast`: one message to several queues."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import click

from weft import limits
from weft.ids import MessageId

from . import options, output
from .push import headers_of


@click.command
@click.argument("queues", metavar="QUEUE[,QUEUE...]")
@click.argument("body")
@click.option(
    "--conflict-key",
    help="Keep one order among messages with this key; the group in grouped queues.",
)
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="K=V", help="Add a header; repeatable."
)
@click.option("--key", help="Set the message's key.")
@click.option("--delay-ms", type=int, default=0, help="Delay the delivery, in milliseconds.")
@click.option("--priority", type=int, default=0, help="0 to 9; messages with 9 come first.")
@click.option("--dedup-key", help="Skip each queue that got this key within its dedup window.")
@options.everywhere
def multicast(
    queues: str,
    body: str,
    conflict_key: str | None,
    headers: tuple[str, ...],
    key: str | None,
    delay_ms: int,
    priority: int,
    dedup_key: str | None,
) -> None:
    """Push one message to several queues: all of them store it, or none.

    The message is durable when the command returns; the command prints its id in each queue. BODY
    is the message body, or - to read it from stdin.

    \b
    Examples:
      weft multicast billing,audit 'order 17'
      weft multicast payments,ledger 'refund' --conflict-key customer-7
    """
    with options.connect() as client:
        ids = client.multicast(
            body_of(body),
            queues=queues.split(","),
            headers=headers_of(headers),
            key=key,
            delay_ms=delay_ms,
            priority=priority,
            dedup_key=dedup_key,
            conflict_key=conflict_key,
        )
    show_ids(ids)


def body_of(argument: str) -> bytes:
    """The body that BODY names: the text, or all of stdin for -."""
    if argument == "-":
        return sys.stdin.buffer.read(limits.BODY_BYTES_MAX + 1)
    return os.fsencode(argument)


def show_ids(ids: Mapping[str, MessageId]) -> None:
    """Prints the id of the message in each queue."""
    if options.wants_json():
        output.as_json({"ids": {queue: str(each) for queue, each in ids.items()}})
    else:
        output.facts([(queue, str(each)) for queue, each in ids.items()])
