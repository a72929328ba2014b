"""`weft pop`: writes bodies to standard output and acks each batch only after the flush."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import click

from weft import limits

from . import failure, messages, options, output

if TYPE_CHECKING:
    from weft import Message, Queue

#: Messages leased per batch: bounds how many stay leased if the reader of stdout is slow or exits.
_BATCH: Final = 1000


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.option(
    "-n", "count", type=click.IntRange(min=1), default=1, help="Maximum number of messages."
)
@click.option(
    "--wait-ms",
    type=click.IntRange(0, limits.DAY_MS),
    default=0,
    help="Wait up to this many milliseconds in total for messages.",
)
@click.option(
    "--no-ack", is_flag=True, help="Do not ack: the messages are delivered again after the lease."
)
@options.everywhere
def pop(name: str, count: int, wait_ms: int, no_ack: bool) -> None:
    """Pop messages from a queue, print the bodies and ack the messages.

    A newline follows each body. Messages are acked after they were written. With --json each line
    is one message as an object; a body that is not UTF-8 is in body_base64. Exit code 3 means that
    the queue had no message.

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
    """Writes the whole batch; if that fails, nacks the whole batch."""
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
