"""`weft push`: one message, or a stream of lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

import click

from weft import limits

from . import options, output, units

if TYPE_CHECKING:
    from weft import Producer

#: Seconds between two updates of the progress line.
_TELL_S: Final = 0.2


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.argument("body", required=False)
@click.option(
    "--lines",
    type=click.File("rb"),
    metavar="FILE",
    help="Push each line of FILE as one message; - reads stdin.",
)
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="K=V", help="Add a header; repeatable."
)
@click.option("--key", help="Set the message's key.")
@click.option("--group", help="Set the message's group, in a grouped queue.")
@click.option("--tenant", help="Set the message's tenant: consumers serve tenants in fair turns.")
@click.option("--delay-ms", type=int, default=0, help="Delay the delivery, in milliseconds.")
@click.option("--priority", type=int, default=0, help="0 to 9; messages with 9 come first.")
@click.option(
    "--dedup-key", help="Store nothing if this key was pushed within the queue's dedup window."
)
@options.everywhere
def push(
    name: str,
    body: str | None,
    lines: IO[bytes] | None,
    headers: tuple[str, ...],
    key: str | None,
    group: str | None,
    tenant: str | None,
    delay_ms: int,
    priority: int,
    dedup_key: str | None,
) -> None:
    """Push messages to a queue, and print the id of a single message.

    The messages are durable when the command returns. BODY is the message body, or - to read one
    body from stdin.

    \b
    Examples:
      weft push orders 'hello'
      weft push orders - < picture.png
      weft push orders 'later' --delay-ms 60000 --header kind=reminder
      weft push payments 'refund' --group customer-7
      weft push mails 'welcome' --tenant customer-7
      tail -f app.log | weft push log --lines -
    """
    if (body is None) == (lines is None):
        raise click.UsageError("Pass exactly one of BODY, - and --lines FILE.")
    common: dict[str, Any] = {"headers": headers_of(headers), "key": key, "group": group}
    common |= {"delay_ms": delay_ms, "priority": priority}
    if lines is not None:
        if dedup_key is not None:
            raise click.UsageError(
                "--dedup-key identifies one message and cannot be combined with --lines."
            )
        if tenant is not None:
            raise click.UsageError("--tenant cannot be combined with --lines.")
        _push_lines(name, lines, common)
        return
    assert body is not None
    data = sys.stdin.buffer.read(limits.BODY_BYTES_MAX + 1) if body == "-" else os.fsencode(body)
    with options.connect() as client:
        made = client.queue(name).push(data, dedup_key=dedup_key, tenant=tenant, **common)
    if options.wants_json():
        output.as_json({"queue": name, "id": str(made)})
    else:
        click.echo(str(made))


def _push_lines(name: str, lines: IO[bytes], common: dict[str, Any]) -> None:
    with (
        options.connect() as client,
        client.queue(name).producer() as producer,
        _progress() as show,
    ):
        count = _send_lines(producer, lines, common, show)
        producer.flush()
    if options.wants_json():
        output.as_json({"queue": name, "pushed": count})
    else:
        click.echo(f"pushed {units.count(count)} messages to {name}")


def _send_lines(producer: Producer, lines: IO[bytes], common: dict[str, Any], show: Any) -> int:
    count = 0
    # Bound the read: input without newlines must not fill memory. `send` rejects a longer line.
    while line := lines.readline(limits.BODY_BYTES_MAX + 2):
        producer.send(line.removesuffix(b"\n"), **common)
        count += 1
        show(count)
    return count


@contextmanager
def _progress() -> Iterator[Any]:
    """A progress line with a count on a terminal; no output otherwise."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    next_s = 0.0

    def show(count: int) -> None:
        nonlocal next_s
        if count % 1000 == 0 or time.monotonic() >= next_s:
            next_s = time.monotonic() + _TELL_S
            click.echo(f"\r{count:,} sent", nl=False, err=True)

    try:
        yield show
    finally:
        click.echo("\r\033[K", nl=False, err=True)


def headers_of(pairs: tuple[str, ...], option: str = "--header") -> dict[str, str] | None:
    """The pairs K=V of a repeated option."""
    made = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not of the form K=V.", param_hint=option)
        made[name] = value
    return made or None
