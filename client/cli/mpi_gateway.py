"""`weft mpi-gateway`: the ranks of an MPI job, and a gateway for them, by one command.

What it does is in `weft.mpsc.rank_launcher`, which is loaded by name: the client does not know
`mpsc`.
"""

from __future__ import annotations

import os
from typing import Final

import click

from weft import limits
from weft.errors import MissingExtra, UsageError, WeftError

from . import extras, failure, options, output, units

#: How long the program may compute before it opens the gateway.
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
    help="With --from: tell ranks that no more comes when nothing came for so long."
    "  [default: never]",
)
@click.option(
    "--ahead",
    type=int,
    default=64,
    show_default=True,
    help="With --from: messages that one rank has at once; 1 for long work.",
)
@click.option(
    "--ring-bytes",
    type=int,
    default=8 * limits.MIB,
    show_default=True,
    help="With --from: room for one rank's messages. A larger one is returned to its queue.",
)
@click.option(
    "--item-bytes",
    type=int,
    default=128,
    show_default=True,
    help="With --queue: the largest item.",
)
@click.option(
    "--ring-cells",
    type=int,
    default=8192,
    show_default=True,
    help="With --queue: items that one rank may have sent and not yet stored.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["sweepqueue", "slotqueue", "dltqueue2"]),
    default="sweepqueue",
    show_default=True,
    help="With --queue: the queue between ranks and gateway.",
)
@click.option(
    "--wait-s",
    type=click.FloatRange(min=0, min_open=True),
    default=_WAIT_S,
    show_default=True,
    help="Time for the program to call weft.mpsc.open on every rank.",
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
    """Join the ranks of an MPI job to queues. Start it with mpiexec.

    Rank 0 becomes the gateway; every other rank runs PROGRAM, in which weft.mpsc.open() finds the
    gateway and gives a handle: its `sender` sends to the queue, its `receiver` receives, its `comm`
    has the program's own ranks.

    A rank of the program that dies while it has the gateway open does not stop the others: what it
    sent in full is stored, what it had received goes to them.

    Exit code 0: all ranks left in good order; 1: the gateway failed or a rank died; 2: the command
    was not understood; otherwise that of the program. mpiexec puts those of all ranks together.

    \b
    Examples:
      mpiexec -n 8 weft mpi-gateway --queue events -- python simulate.py
      mpiexec -n 8 weft mpi-gateway --from jobs --queue results -- python work.py
    """
    if queue is None and source is None:
        raise click.UsageError("Name a queue: --queue for ranks that send, --from to receive.")
    if idle_ms is not None and source is None:
        raise click.UsageError("--idle-ms is about --from: it has no meaning without it.")
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
        # The other ranks wait for this one, and it will not come.
        code = failure.show(error, as_json=options.wants_json())
        launch.end_job(code)
        context.exit(code)
    with gateway:
        totals = gateway.run(None if idle_ms is None else idle_ms / 1000)
    _tell(totals.pushed, totals.done, totals.dead, totals.refused)


def _tell(pushed: int, done: int, dead: tuple[int, ...], refused: int) -> None:
    """The totals: as JSON on stdout, or as a line on stderr, because stdout is the program's."""
    if options.wants_json():
        output.as_json({"pushed": pushed, "done": done, "dead": list(dead), "refused": refused})
        return
    told = f"gateway: {units.count(pushed)} sent and stored, {units.count(done)} received and done"
    if dead:
        told += f"; rank {', '.join(map(str, dead))} died"
    if refused:
        told += f"; {units.count(refused)} deliveries refused, larger than --ring-bytes allows"
    click.echo(told, err=True)
