"""`weft bench`: measures the node that answers, or one of its own when none does."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final, NoReturn

import click

from weft import limits
from weft.client.cli import options, output
from weft.errors import ConnectionLost

from . import plot, rounds
from .machine import Machine
from .own_node import OwnNode
from .plan import SAMPLES_DEFAULT, BenchPlan
from .progress import Live
from .report import Report

_PROBE_MS: Final = 500
_MESSAGES_MAX: Final = 1_000_000_000

_EPILOG: Final = """\b
Examples:
  weft bench                                       the node at 127.0.0.1:7700, or an own one
  weft bench --own --durability os                 what the fsync costs
  weft bench --own --memory --json > result.json
  weft bench -s 10.0.0.5:7700 --size 1024 --plot bench.png
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--messages",
    type=click.IntRange(1, _MESSAGES_MAX),
    default=1_000_000,
    show_default=True,
    help="Messages of one throughput run.",
)
@click.option(
    "--size",
    type=click.IntRange(0, limits.BODY_BYTES_MAX),
    default=128,
    show_default=True,
    help="Bytes of a body.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, limits.BATCH_COUNT_MAX),
    default=1000,
    show_default=True,
    help="Messages sent, popped and acked together.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Rounds; the result is their medians.",
)
@click.option(
    "--samples",
    type=click.IntRange(10, 1_000_000),
    default=SAMPLES_DEFAULT,
    show_default=True,
    help="Timed calls in a round, for each latency and each floor.",
)
@click.option(
    "--memory",
    "ready",
    type=click.IntRange(1, _MESSAGES_MAX),
    is_flag=False,
    flag_value=1_000_000,
    default=None,
    metavar="[N]",
    help="Also the node's memory with N (1,000,000) waiting messages and, with --own, the time "
    "of a restart with them.",
)
@click.option("--own", is_flag=True, help="Start a node for this run, under this directory.")
@click.option(
    "--durability",
    type=click.Choice(["disk", "os"]),
    help="Of the own node: acknowledge after fsync, or in the page cache.  [default: disk]",
)
@click.option(
    "--plot",
    "picture",
    metavar="FILE.png",
    type=click.Path(writable=True, dir_okay=False),
    help="Draw the result into a file; needs matplotlib.",
)
@options.everywhere
def bench(
    messages: int,
    size: int,
    batch: int,
    repeat: int,
    samples: int,
    ready: int | None,
    own: bool,
    durability: str | None,
    picture: str | None,
) -> None:
    """Measure this node, now: floors, throughput, latency, memory.

    Without a node at the default address it starts one of its own and stops it afterwards. Queues
    that it makes are named weft-bench-... and dropped at the end.
    """
    if picture is not None:
        plot.check()
    if own and options.servers() is not None:
        raise click.UsageError("--own starts a node: leave out --servers (and WEFT_SERVERS).")
    plan = BenchPlan(messages, size, batch, repeat, samples, ready or 0)
    with _ended_by_signals():
        report = _measure(plan, own=own, durability=durability)
    if picture is not None:
        plot.draw(report, picture)
    if options.wants_json():
        output.as_json(report.as_json())
    else:
        report.show()


def _measure(plan: BenchPlan, *, own: bool, durability: str | None) -> Report:
    machine = Machine.here()
    with ExitStack() as stack:
        node: OwnNode | None = None
        if own or not _answers():
            node = stack.enter_context(OwnNode(durability or "disk"))
        elif durability is not None:
            raise click.UsageError("--durability is for --own: a running node has its own.")
        servers = node.servers if node else options.servers() or "127.0.0.1:7700"
        client = stack.enter_context(options.connect(servers))
        status = client.status()
        watcher = stack.enter_context(Live())
        result = rounds.run(plan, client, servers, node, watcher)
        return Report(plan, machine, status, node is not None, servers, result)


def _answers() -> bool:
    """Whether a node is there. One that was named and is not there is an error."""
    try:
        options.connect(within_ms=_PROBE_MS if options.servers() is None else None).close()
    except ConnectionLost:
        if options.servers() is not None:
            raise
        click.echo("no node at 127.0.0.1:7700: measuring one of its own", err=True)
        return False
    return True


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A hang-up or SIGTERM ends the run as Ctrl-C does: with everything cleaned up."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
