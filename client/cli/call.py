"""`weft call` asks a question and waits for the answer; `weft reply` answers questions."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import click

from weft import limits

from . import failure, options, output
from .multicast import body_of
from .push import headers_of

if TYPE_CHECKING:
    from weft import Message
    from weft.client.sync_queue import Queue


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.argument("body")
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="K=V", help="Add a header; repeatable."
)
@click.option("--key", help="Set the question's key.")
@click.option("--group", help="Set the question's group, in a grouped queue.")
@options.everywhere
def call(
    name: str, body: str, headers: tuple[str, ...], key: str | None, group: str | None
) -> None:
    """Push a question to a queue, wait for the answer, and print it.

    BODY is the question, or - to read it from stdin. --timeout-ms limits the wait. A program that
    consumes the queue answers, or `weft reply`.

    \b
    Examples:
      weft call rates 'EURUSD' --timeout-ms 5000
      weft call thumbnails - < picture.png > small.png
    """
    given = headers_of(headers)
    with options.connect() as client:
        answer = client.queue(name).call(
            body_of(body), headers=given, key=key, group=group, timeout_ms=options.timeout_ms()
        )
    if options.wants_json():
        output.as_json({**output.bytes_field("body", answer.body), "headers": answer.headers})
        return
    sys.stdout.buffer.write(answer.body + b"\n" if sys.stdout.isatty() else answer.body)
    sys.stdout.flush()


@click.command
@click.argument("name", type=options.QUEUE_NAME)
@click.argument("body", required=False)
@click.option(
    "--exec", "program", metavar="COMMAND",
    help="Answer with the output of this shell command, which reads the question from stdin.",
)  # fmt: skip
@click.option("-n", "count", type=click.IntRange(min=1), help="End after this many answers.")
@click.option(
    "--idle-ms",
    type=click.IntRange(0, limits.DAY_MS),
    help="End when no question came for this many milliseconds.",
)
@click.option(
    "--concurrency", type=click.IntRange(1, 1000), default=1, help="Answer so many at once."
)
@options.everywhere
def reply(
    name: str,
    body: str | None,
    program: str | None,
    count: int | None,
    idle_ms: int | None,
    concurrency: int,
) -> None:
    """Answer the questions of a queue with BODY, or with the output of a command.

    The command runs until it is interrupted, or as long as -n and --idle-ms say. A question is
    acknowledged together with its answer. If the shell command fails, its question is delivered
    again later. A message that is not a question becomes a dead letter. Exit code 3 means that no
    question came.

    \b
    Examples:
      weft reply health 'ok'
      weft reply words --exec 'wc -w' --concurrency 4
    """
    if (body is None) == (program is None):
        raise click.UsageError("Pass exactly one of BODY and --exec COMMAND.")
    with options.connect() as client:
        queue = client.queue(name)
        responder = _Responder(queue, None if body is None else os.fsencode(body), program, count)
        responder.run(concurrency, idle_ms)
    if options.wants_json():
        output.as_json({"queue": name, "answered": responder.answered, "failed": responder.failed})
    if responder.failed:
        raise failure.CommandFailed
    if not responder.answered:
        click.get_current_context().exit(failure.NOTHING_THERE)


class _Responder:
    """Answers questions in the threads of a worker."""

    def __init__(
        self, queue: Queue, body: bytes | None, program: str | None, count: int | None
    ) -> None:
        self._queue = queue
        self._body = body
        self._program = program
        self._count = count
        self._lock = threading.Lock()
        self.answered = self.failed = 0

    def run(self, concurrency: int, idle_ms: int | None) -> None:
        if self._count is not None:
            concurrency = min(concurrency, self._count)
        self._worker = self._queue.worker(
            self._answer,
            concurrency=concurrency,
            prefetch=1,
            idle_ms=idle_ms,
            on_error=self._report,
        )
        self._worker.run()

    def _answer(self, message: Message) -> None:
        import weft

        if message.reply_to is None:
            raise weft.Reject("not a question: it has no reply queue")
        try:
            message.reply(self._body_for(message), ack=True)
        except weft.CallerGone:
            message.ack(confirm=True)
            click.echo(f"{message.id}: no caller waits for the answer any more", err=True)
            return
        with self._lock:
            self.answered += 1
            if self.answered == self._count:
                self._worker.stop()

    def _body_for(self, message: Message) -> bytes:
        if self._program is None:
            assert self._body is not None
            return self._body
        done = subprocess.run(
            self._program, shell=True, input=message.body, stdout=subprocess.PIPE, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the command ended with exit status {done.returncode}")
        return done.stdout

    def _report(self, message: Message, error: BaseException) -> None:
        with self._lock:
            self.failed += 1
        click.echo(f"{message.id}: {error}", err=True)
