"""`weft cancel`: removes one message that was not delivered yet."""

from __future__ import annotations

import click

from . import failure, options, output


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.argument("message_id", metavar="ID")
@options.everywhere
def cancel(name: str, message_id: str) -> None:
    """Remove a message that is ready or delayed, so that it is never delivered.

    ID is what `weft push` printed, or `weft peek` shows. A message that a consumer holds is not
    removed (exit code 1). If the queue has no such message (any more) the exit code is 3: the
    message is not delivered, and a cancel that is repeated after a lost answer ends so, too.

    \b
    Examples:
      weft peek orders --delayed
      weft cancel orders 00000000000000000000000000000000
    """
    with options.connect() as client:
        cancelled = client.queue(name).cancel(message_id)
    if options.wants_json():
        output.as_json({"queue": name, "id": message_id, "cancelled": cancelled})
    elif cancelled:
        click.echo(f"cancelled {message_id}")
    else:
        reasons = "it was acked, dropped or cancelled before, or is another queue's"
        click.echo(f"{name} has no message {message_id}: {reasons}", err=True)
    if not cancelled:
        click.get_current_context().exit(failure.NOTHING_THERE)
