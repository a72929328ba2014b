"""`weft bench`: measures a running node or, if none answers, a node started for the run.

With `--kv` the hash table is measured, otherwise a queue.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

import click

from weft import limits
from weft.client.cli import options, output
from weft.errors import ConnectionLost

from . import plot, rounds, table_rounds
from .machine import Machine
from .own_node import OwnNode
from .plan import SAMPLES_DEFAULT, BenchPlan
from .progress import Live
from .report import Report
from .table_report import TableReport

if TYPE_CHECKING:
    from weft import Client
    from weft.proto import wire

_PROBE_MS: Final = 500
_MESSAGES_MAX: Final = 1_000_000_000
_MESSAGES_DEFAULT: Final = 1_000_000
#: So many rows of the default size are in a node's memory, as in other key-value servers.
_KEYS_DEFAULT: Final = 100_000

_EPILOG: Final = """\b
Examples:
  weft bench                                       the node at 127.0.0.1:7700, or a temporary one
  weft bench --own --durability os                 without fsync, to compare
  weft bench --own --memory --json > result.json
  weft bench --kv --own                            the hash table instead of a queue
  weft bench -s 10.0.0.5:7700 --size 1024 --plot bench.png
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--kv",
    "table",
    is_flag=True,
    help="Measure the hash table: batches and single calls from two client processes.",
)
@click.option(
    "--messages",
    type=click.IntRange(1, _MESSAGES_MAX),
    help="Messages per throughput run; keys with --kv.  "
    f"[default: {_MESSAGES_DEFAULT:,}; with --kv {_KEYS_DEFAULT:,}]",
)
@click.option(
    "--size",
    type=click.IntRange(0, limits.BODY_BYTES_MAX),
    default=128,
    show_default=True,
    help="Size of a body or a value, in bytes.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, limits.BATCH_COUNT_MAX),
    default=1000,
    show_default=True,
    help="Messages per batch of pushes, pops and acks; keys per batch with --kv.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Number of rounds; results are medians over the rounds.",
)
@click.option(
    "--samples",
    type=click.IntRange(10, 1_000_000),
    default=SAMPLES_DEFAULT,
    show_default=True,
    help="Timed calls per round, for each latency and each floor.",
)
@click.option(
    "--memory",
    "ready",
    type=click.IntRange(1, _MESSAGES_MAX),
    is_flag=False,
    flag_value=1_000_000,
    default=None,
    metavar="[N]",
    help="Also measure the node's memory with N (1,000,000) waiting messages and, with --own, the "
    "time of a restart with these messages.",
)
@click.option(
    "--own", is_flag=True, help="Start a node for this run, with data under the current directory."
)
@click.option(
    "--durability",
    type=click.Choice(["disk", "os"]),
    help="With --own: acknowledge after fsync (disk), or from the page cache (os).  "
    "[default: disk]",
)
@click.option(
    "--plot",
    "picture",
    metavar="FILE.png",
    type=click.Path(writable=True, dir_okay=False),
    help="Plot the result to a file; requires matplotlib.",
)
@options.everywhere
def bench(
    table: bool,
    messages: int | None,
    size: int,
    batch: int,
    repeat: int,
    samples: int,
    ready: int | None,
    own: bool,
    durability: str | None,
    picture: str | None,
) -> None:
    """Measure throughput, latency and memory of a node, and the floors of the machine.

    If no node answers at the default address, the command starts a node and stops it afterwards.
    The queues and keys of the benchmark are named weft-bench-... and deleted at the end.
    """
    if picture is not None:
        plot.check()
    if own and options.servers() is not None:
        raise click.UsageError("--own starts a node: leave --servers (and WEFT_SERVERS) out.")
    if table and ready is not None:
        raise click.UsageError("--memory measures waiting messages: leave it out with --kv.")
    if messages is None:
        messages = _KEYS_DEFAULT if table else _MESSAGES_DEFAULT
    plan = BenchPlan(messages, size, batch, repeat, samples, ready or 0)
    report: Report | TableReport
    with _ended_by_signals(), _measured(own=own, durability=durability) as measured:
        if table:
            report = TableReport(*measured.setting(plan), table_rounds.run(plan, *measured.target))
        else:
            report = Report(*measured.setting(plan), rounds.run(plan, *measured.target))
    if picture is not None:
        report.draw(picture)
    if options.wants_json():
        output.as_json(report.as_json())
    else:
        report.show()


@dataclass(frozen=True)
class _Measured:
    """The node of a run, and a client of it."""

    client: Client
    servers: str
    node: OwnNode | None
    watcher: Live
    machine: Machine
    status: wire.StatusInfo

    @property
    def target(self) -> tuple[Client, str, OwnNode | None, Live]:
        return self.client, self.servers, self.node, self.watcher

    def setting(self, plan: BenchPlan) -> tuple[BenchPlan, Machine, wire.StatusInfo, bool, str]:
        return plan, self.machine, self.status, self.node is not None, self.servers


@contextmanager
def _measured(*, own: bool, durability: str | None) -> Iterator[_Measured]:
    machine = Machine.here()
    with ExitStack() as stack:
        node: OwnNode | None = None
        if own or not _answers():
            node = stack.enter_context(OwnNode(durability or "disk"))
        elif durability is not None:
            raise click.UsageError(
                "--durability requires --own: it cannot change the durability of a running node."
            )
        servers = node.servers if node else options.servers() or "127.0.0.1:7700"
        client = stack.enter_context(options.connect(servers))
        watcher = stack.enter_context(Live())
        yield _Measured(client, servers, node, watcher, machine, client.status())


def _answers() -> bool:
    """True if a node answers; raises ConnectionLost if a node named by --servers does not."""
    try:
        options.connect(within_ms=_PROBE_MS if options.servers() is None else None).close()
    except ConnectionLost:
        if options.servers() is not None:
            raise
        click.echo("no node at 127.0.0.1:7700: starting a temporary node", err=True)
        return False
    return True


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Handles SIGHUP and SIGTERM like Ctrl-C, so that the run cleans up."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
