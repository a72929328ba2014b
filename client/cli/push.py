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

#: Between two updates of the progress line.
_TELL_S: Final = 0.2


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.argument("body", required=False)
@click.option(
    "--lines", type=click.File("rb"), metavar="FILE", help="Push each line of a file; -: of stdin."
)
@click.option("--header", "-H", "headers", multiple=True, metavar="K=V", help="May be repeated.")
@click.option("--key", help="The message's key.")
@click.option("--delay-ms", type=int, default=0, help="Deliver it no sooner than this.")
@click.option("--priority", type=int, default=0, help="0 to 9; 9 is served first.")
@click.option("--dedup-key", help="The same key again within the window stores nothing.")
@options.everywhere
def push(
    name: str,
    body: str | None,
    lines: IO[bytes] | None,
    headers: tuple[str, ...],
    key: str | None,
    delay_ms: int,
    priority: int,
    dedup_key: str | None,
) -> None:
    """Put messages into a queue. They are durable when this returns.

    BODY is the message itself, or - to read one message from stdin.

    \b
    Examples:
      weft push orders 'hello'
      weft push orders - < picture.png
      weft push orders 'later' --delay-ms 60000 --header kind=reminder
      tail -f app.log | weft push log --lines -
    """
    if (body is None) == (lines is None):
        raise click.UsageError("Give one of BODY, - and --lines FILE.")
    common: dict[str, Any] = {"headers": _headers(headers), "key": key}
    common |= {"delay_ms": delay_ms, "priority": priority}
    if lines is not None:
        if dedup_key is not None:
            raise click.UsageError("--dedup-key names one message: it does not go with --lines.")
        _push_lines(name, lines, common)
        return
    assert body is not None
    data = sys.stdin.buffer.read(limits.BODY_BYTES_MAX + 1) if body == "-" else os.fsencode(body)
    with options.connect() as client:
        made = client.queue(name).push(data, dedup_key=dedup_key, **common)
    if options.wants_json():
        output.as_json({"queue": name, "id": str(made)})
    else:
        click.echo(str(made))


def _push_lines(name: str, lines: IO[bytes], common: dict[str, Any]) -> None:
    with (
        options.connect() as client,
        client.queue(name).producer() as producer,
        _progress() as tell,
    ):
        count = _send_lines(producer, lines, common, tell)
        producer.flush()
    if options.wants_json():
        output.as_json({"queue": name, "pushed": count})
    else:
        click.echo(f"pushed {units.count(count)} messages to {name}")


def _send_lines(producer: Producer, lines: IO[bytes], common: dict[str, Any], tell: Any) -> int:
    count = 0
    # A line that never ends must not fill the memory; one that is too long is refused.
    while line := lines.readline(limits.BODY_BYTES_MAX + 2):
        producer.send(line.removesuffix(b"\n"), **common)
        count += 1
        tell(count)
    return count


@contextmanager
def _progress() -> Iterator[Any]:
    """A counting line on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    next_s = 0.0

    def tell(count: int) -> None:
        nonlocal next_s
        if count % 1000 == 0 or time.monotonic() >= next_s:
            next_s = time.monotonic() + _TELL_S
            click.echo(f"\r{count:,} sent", nl=False, err=True)

    try:
        yield tell
    finally:
        click.echo("\r\033[K", nl=False, err=True)


def _headers(pairs: tuple[str, ...]) -> dict[str, str] | None:
    made = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not K=V.", param_hint="--header")
        made[name] = value
    return made or None
