"""`weft cancel`: removes one message that was not delivered yet."""

from __future__ import annotations

import click

from . import failure, options, output


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.argument("message_id", metavar="ID")
@options.everywhere
def cancel(name: str, message_id: str) -> None:
    """Remove a ready or delayed message, so that the message is never delivered.

    ID is the id printed by `weft push` or `weft peek`. A leased message is not removed (exit code
    1). Exit code 3 means that the queue has no such message: it was acked, dropped or cancelled
    before, for example by an earlier cancel with a lost answer.

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
        reasons = "it was acked, dropped or cancelled before, or is in another queue"
        click.echo(f"{name} has no message {message_id}: {reasons}", err=True)
    if not cancelled:
        click.get_current_context().exit(failure.NOTHING_THERE)
