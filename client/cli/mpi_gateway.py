"""`weft mpi-gateway`: runs the ranks of an MPI job and a gateway between the ranks and queues.

`weft.mpsc.rank_launcher` does the work. The module is loaded by name, because `client` must not
import `mpsc`.
"""

from __future__ import annotations

import os
from typing import Final

import click

from weft import limits
from weft.errors import MissingExtra, UsageError, WeftError

from . import extras, failure, options, output, units

#: Default of --wait-s: seconds until the program must have called `weft.mpsc.open`.
_WAIT_S: Final = 300.0


@click.command(
    "mpi-gateway",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--queue", "-q", type=options.QUEUE_NAME, help="Ranks send to this queue.")
@click.option("--from", "source", type=options.QUEUE_NAME, help="Ranks receive from this queue.")
@click.option(
    "--idle-ms",
    type=click.IntRange(min=0),
    help="With --from: end the ranks' input after this many milliseconds without a message."
    "  [default: never]",
)
@click.option(
    "--ahead",
    type=int,
    default=64,
    show_default=True,
    help="With --from: maximum number of messages in flight per rank; 1 for long work.",
)
@click.option(
    "--ring-bytes",
    type=int,
    default=8 * limits.MIB,
    show_default=True,
    help="With --from: buffer per rank, in bytes. A larger message is returned to its queue.",
)
@click.option(
    "--item-bytes",
    type=int,
    default=128,
    show_default=True,
    help="With --queue: size of the largest item, in bytes.",
)
@click.option(
    "--ring-cells",
    type=int,
    default=8192,
    show_default=True,
    help="With --queue: maximum number of items per rank that are sent and not yet stored.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["sweepqueue", "slotqueue", "dltqueue2"]),
    default="sweepqueue",
    show_default=True,
    help="With --queue: algorithm of the MPI queue between ranks and gateway.",
)
@click.option(
    "--wait-s",
    type=click.FloatRange(min=0, min_open=True),
    default=_WAIT_S,
    show_default=True,
    help="Seconds in which PROGRAM must call weft.mpsc.open on every rank.",
)
@options.everywhere
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def mpi_gateway(
    context: click.Context,
    queue: str | None,
    source: str | None,
    idle_ms: int | None,
    ahead: int,
    ring_bytes: int,
    item_bytes: int,
    ring_cells: int,
    algorithm: str,
    wait_s: float,
    program: tuple[str, ...],
) -> None:
    """Connect the ranks of an MPI job to queues. Start the command with mpiexec.

    Rank 0 becomes the gateway; every other rank runs PROGRAM. There, weft.mpsc.open() connects to
    the gateway and returns a handle: `sender` sends to the queue, `receiver` receives, `comm` is
    the communicator of the program's own ranks.

    If a rank dies while the gateway is open, the other ranks continue: completely sent items are
    stored, and messages that the dead rank had received go to other ranks.

    Exit code 0: all ranks ended normally; 1: the gateway failed or a rank died; 2: invalid usage;
    otherwise the exit code of the program. mpiexec combines the exit codes of all ranks.

    \b
    Examples:
      mpiexec -n 8 weft mpi-gateway --queue events -- python simulate.py
      mpiexec -n 8 weft mpi-gateway --from jobs --queue results -- python work.py
    """
    if queue is None and source is None:
        raise click.UsageError(
            "Pass --queue for ranks that send, or --from for ranks that receive."
        )
    if idle_ms is not None and source is None:
        raise click.UsageError("--idle-ms requires --from.")
    absent = extras.missing("mpi")
    if absent:
        raise MissingExtra(f"{', '.join(absent)} is not installed: pip install 'weft[mpi]'")
    launch = extras.load("weft.mpsc.rank_launcher")
    agreed = extras.load("weft.mpsc.negotiation").GatewayOptions(
        queue=queue or "",
        source=source or "",
        item_bytes=item_bytes,
        ring_cells=ring_cells,
        ring_bytes=ring_bytes,
        ahead=ahead,
        algorithm=algorithm,
    )
    try:
        at_gateway = launch.place(os.environ).rank == agreed.gateway
    except UsageError as error:
        raise click.UsageError(error.message) from None
    try:
        if not at_gateway:
            context.exit(launch.supervise(program, agreed))
        gateway = launch.join(agreed, options.servers(), options.timeout_ms(), wait_s)
    except WeftError as error:
        # The other ranks block until the gateway rank joins, so end the whole job.
        code = failure.show(error, as_json=options.wants_json())
        launch.end_job(code)
        context.exit(code)
    with gateway:
        totals = gateway.run(None if idle_ms is None else idle_ms / 1000)
    _print_totals(totals.pushed, totals.done, totals.dead, totals.refused)


def _print_totals(pushed: int, done: int, dead: tuple[int, ...], refused: int) -> None:
    """Prints the totals: JSON on stdout, text on stderr, because stdout belongs to the program."""
    if options.wants_json():
        output.as_json({"pushed": pushed, "done": done, "dead": list(dead), "refused": refused})
        return
    text = f"gateway: {units.count(pushed)} sent and stored, {units.count(done)} received and done"
    if dead:
        text += f"; rank {', '.join(map(str, dead))} died"
    if refused:
        text += f"; {units.count(refused)} deliveries refused: larger than --ring-bytes"
    click.echo(text, err=True)
