"""`weft pop`: bodies to standard output; what was written and flushed is acked, nothing sooner."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import click

from weft import limits

from . import failure, messages, options, output

if TYPE_CHECKING:
    from weft import Message, Queue

#: Lent at a time: a reader that is slow or goes away holds no more than this.
_BATCH: Final = 1000


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option("-n", "count", type=click.IntRange(min=1), default=1, help="At most so many.")
@click.option(
    "--wait-ms",
    type=click.IntRange(0, limits.DAY_MS),
    default=0,
    help="How long to wait for them, all in all.",
)
@click.option("--no-ack", is_flag=True, help="Leave them leased: they come again.")
@options.everywhere
def pop(name: str, count: int, wait_ms: int, no_ack: bool) -> None:
    """Take messages from a queue and print their bodies.

    Each body is followed by a newline. A message is acked once it was written. With --json each
    message is an object on a line of its own; a body that is not UTF-8 is in body_base64.
    If there was no message the exit code is 3.

    \b
    Examples:
      weft pop orders
      weft pop orders -n 100 --wait-ms 5000
      weft pop orders --json --no-ack
    """
    end = time.monotonic() + wait_ms / 1000
    taken = 0
    with options.connect() as client:
        queue = client.queue(name)
        while taken < count:
            left_ms = max(0, int((end - time.monotonic()) * 1000))
            batch = queue.pop_many(min(count - taken, _BATCH), wait_ms=left_ms)
            if not batch:
                break
            _write(queue, batch)
            if not no_ack:
                queue.ack_many(batch)
            taken += len(batch)
    if not taken:
        if sys.stderr.isatty():
            click.echo(f"{name} has no message to deliver", err=True)
        click.get_current_context().exit(failure.NOTHING_THERE)


def _write(queue: Queue, batch: list[Message]) -> None:
    """Writes all of it, or gives all of it back to the queue."""
    try:
        if options.wants_json():
            for message in batch:
                output.as_json_line(messages.as_json(message))
        else:
            sys.stdout.buffer.write(b"".join(message.body + b"\n" for message in batch))
        sys.stdout.flush()
    except BaseException:
        queue.nack_many(batch, reason="weft pop could not write it")
        raise
