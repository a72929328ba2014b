"""The gateway between the ranks of an MPI job and durable Weft queues.

    with weft.mpsc.open(MPI.COMM_WORLD, queue="events") as gateway:
        if gateway.sender is None:
            gateway.run()                        # this rank works until all others have closed
        else:
            gateway.sender.send(b"...")          # a few microseconds, not durable yet
            gateway.sender.flush()               # returns when all that was sent is on disk

Senders enqueue into a Sweepqueue (or another queue, see ``open``); the gateway's rank sweeps the
queue and pushes the items. After a push is acknowledged, and so is as durable as the cluster's
setting says, the gateway writes to every sender the number of its stored items: the watermark
(``sender.py``). With ``source="jobs"`` the gateway hands the messages of the source queue to the
ranks (``fanout.py``); ``gateway_loop.py`` describes the order of the steps.

Memory is never called durable: an item that was sent and is not yet covered by the watermark is
lost if the gateway dies. If a push fails, the gateway reports the failure to all ranks at once, and
``run`` raises. An acknowledged push is not repeated.

The gateway abandons a rank that dies (``liveness.py`` detects the death): items enqueued in full
are stored, and unfinished messages of the rank go to others. After a death no rank waits in a
collective call (``abort.py``).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final

from weft.client.routing.session import TIMEOUT_MS
from weft.client.sync_client import Client, connect
from weft.errors import DeadlineExceeded, MissingExtra, RankLost

from .abort import RankExit
from .fanout import Fanout
from .fanout_ring import FAILED, FanReader, FanWriter, segment_bytes
from .gateway_loop import Drain, GatewayLoop, Totals
from .job import Job, create
from .liveness import GatewayLiveness, RankLiveness
from .negotiation import GatewayOptions, agree, resolve
from .receiver import Receiver
from .sender import Sender

if TYPE_CHECKING:
    from mpi4py import MPI

    from .mpi import MpiWindow

#: Room for the gateway's host name, port and token.
_ADDRESS_BYTES: Final = 512


class Gateway:
    """One rank's part. On the gateway's own rank, ``sender`` and ``receiver`` are None."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        options: GatewayOptions,
        servers: str | Sequence[str] | None,
        timeout_ms: int,
        hosts: Sequence[str],
    ) -> None:
        self.options = options
        self._all = comm
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._rank = comm.Get_rank()
        self.is_gateway = self._rank == options.gateway
        #: The ranks of the program: all but the gateway, which has a communicator of its own.
        self.comm = comm.Split(int(self.is_gateway), self._rank)
        self.sender: Sender | None = None
        self.receiver: Receiver | None = None
        self._job = _sweepqueue(comm, options) if options.queue else None
        self._fan = _fan_window(comm, options) if options.source else None
        self._abandoned: set[int] = set()
        if self.is_gateway:
            self._lines = self._tie(hosts)
        else:
            self._line = self._hold()

    def _tie(self, hosts: Sequence[str]) -> GatewayLiveness:
        """On the gateway's rank: wait for the liveness connections of all others."""
        lines = GatewayLiveness("127.0.0.1" if len(set(hosts)) == 1 else hosts[self._rank])
        _broadcast(self._all, self.options.gateway, lines.address)
        lines.connect(set(range(self._all.Get_size())) - {self._rank})
        self._departure = RankExit(lines.address, lines.wait_for_the_end)
        for window in (self._job.window if self._job else None, self._fan):
            if window is not None:
                window.is_dead = lines.is_dead
        return lines

    def _hold(self) -> RankLiveness:
        """On all other ranks: hold a liveness connection, and make the ends of the queues."""
        options = self.options
        address = _broadcast(self._all, options.gateway, "")
        line = RankLiveness(address, self._rank)
        self._departure = RankExit(address, line.close)
        if self._job is not None:
            self.sender = Sender(self._job, line)
        if self._fan is not None:
            number = self._rank - (self._rank > options.gateway)
            reader = FanReader(self._fan, options.gateway, number, options.ring_bytes)
            self.receiver = Receiver(reader, line)
        return line

    def run(self, idle_s: float | None = None) -> Totals:
        """On the gateway's rank: work until all other ranks have closed or died.

        With ``idle_s``, receivers learn that no more messages come once the source has been empty,
        and no rank has held a message, for ``idle_s`` seconds.
        """
        assert self.is_gateway, "only the gateway's rank runs the gateway"
        drain = Drain(self._job) if self._job is not None else None
        writers = _writers(self._fan, self._all, self.options) if self._fan is not None else []
        try:
            with ExitStack() as stack:
                client = stack.enter_context(connect(self._servers, timeout_ms=self._timeout_ms))
                push = self._pusher(client, stack)
                fanout = None
                if writers:
                    fanout = Fanout(client.queue(self.options.source), writers, self.options.ahead)
                return GatewayLoop(self._lines, drain, push, fanout, self._abandoned).run(idle_s)
        except BaseException:
            if drain is not None:
                drain.fail()
            for writer in writers:
                with suppress(RankLost):
                    writer.end(FAILED)
            raise

    def _pusher(self, client: Client, stack: ExitStack) -> Callable[[list[bytes]], None]:
        """Returns a function that stores items and returns when the items are durable."""
        if not self.options.queue:
            return lambda items: None
        producer = stack.enter_context(client.queue(self.options.queue).producer())

        def push(items: list[bytes]) -> None:
            producer.send_many(items)
            producer.flush()

        return push

    def abandon(self, rank: int) -> None:
        """On the gateway's rank: do not wait for the given rank."""
        assert self.is_gateway, "only the gateway's rank abandons other ranks"
        self._abandoned.add(rank)

    def close(self) -> None:
        """Leaves the gateway, all ranks together; a sender flushes first."""
        from .mpi import wait_for_all

        if self.sender is not None:
            self.sender.close()
        if self.receiver is not None:
            self.receiver.close()
        together = wait_for_all(self._all, self._whole)
        if not self.is_gateway:
            self._line.leave()  # from here on the end of this process is no death
        if not together:
            return  # no more collective calls: the process ends as in `abort`
        if self._job is not None:
            self._job.window.release()
        if self._fan is not None:
            self._fan.release()
        self._departure.left()

    def _whole(self) -> bool:
        """True if no rank has died, as far as this rank knows."""
        if self.is_gateway:
            self._lines.poll()
            return not self._lines.dead and not self._abandoned
        self._line.poll()
        return not self._line.death and not self._line.gateway_gone

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or (isinstance(error, SystemExit) and not error.code):
            self.close()


def open(
    comm: MPI.Intracomm | None = None,
    *,
    queue: str | None = None,
    source: str | None = None,
    servers: str | Sequence[str] | None = None,
    gateway: int | None = None,
    item_bytes: int | None = None,
    variable: bool | None = None,
    ring_cells: int | None = None,
    ring_bytes: int | None = None,
    ahead: int | None = None,
    algorithm: str | None = None,
    wait_s: float | None = None,
    timeout_ms: int | None = None,
) -> Gateway:
    """Collective: connects the ranks of ``comm`` (default: MPI's world) to Weft queues.

    An omitted argument has the value given to `weft mpi-gateway`, or the default of
    `GatewayOptions`. All ranks must pass the same values. ``algorithm`` names the queue between
    ranks and gateway: "sweepqueue" (the default), "slotqueue" or "dltqueue2"; another name raises
    InvalidArgument. ``wait_s`` is the time in seconds to wait for the other ranks to call ``open``;
    None: for ever. ``timeout_ms`` is the gateway's time limit for one call to the node; default:
    the client's own.
    """
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingExtra(f"the gateway needs weft[mpi]: pip install it ({error})") from error
    options = resolve(
        {
            "queue": queue,
            "source": source,
            "gateway": gateway,
            "item_bytes": item_bytes,
            "variable": variable,
            "ring_cells": ring_cells,
            "ring_bytes": ring_bytes,
            "ahead": ahead,
            "algorithm": algorithm,
        }
    )
    world = MPI.COMM_WORLD if comm is None else comm
    hosts = agree(world, options, socket.gethostname(), _patience(wait_s))
    return Gateway(world, options, servers, timeout_ms or TIMEOUT_MS, hosts)


def check_queues(servers: str | None, timeout_ms: int | None, names: Sequence[str]) -> None:
    """Raises if a node or a queue is missing: better before a long computation than after it."""
    with connect(servers, timeout_ms=timeout_ms or TIMEOUT_MS) as client:
        for name in names:
            client.queue(name).stats()


def _patience(wait_s: float | None) -> Callable[[], bool]:
    deadline = None if wait_s is None else time.monotonic() + wait_s

    def patience() -> bool:
        if deadline is not None and time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"not all ranks have called weft.mpsc.open within {wait_s:g} s: does the "
                "program call it on every rank?"
            )
        return True

    return patience


def _sweepqueue(comm: MPI.Intracomm, options: GatewayOptions) -> Job:
    return create(
        comm,
        algorithm=options.algorithm,
        dequeuer=options.gateway,
        capacity=options.ring_cells,
        item_bytes=options.item_bytes,
        variable=options.variable,
    )


def _fan_window(comm: MPI.Intracomm, options: GatewayOptions) -> MpiWindow:
    from .mpi import MpiWindow

    at_gateway = comm.Get_rank() == options.gateway
    size = segment_bytes(comm.Get_size() - 1, options.ring_bytes, at_gateway)
    window = MpiWindow(comm, size)
    window.wait_for_all()
    return window


def _writers(window: MpiWindow, comm: MPI.Intracomm, options: GatewayOptions) -> list[FanWriter]:
    ranks = [rank for rank in range(comm.Get_size()) if rank != options.gateway]
    return [
        FanWriter(window, rank, number, options.ring_bytes) for number, rank in enumerate(ranks)
    ]


def _broadcast(comm: MPI.Intracomm, root: int, text: str) -> str:
    """Collective: every rank gets the root's text."""
    from mpi4py import MPI

    raw = bytearray(text.encode().ljust(_ADDRESS_BYTES))
    comm.Bcast([raw, _ADDRESS_BYTES, MPI.BYTE], root)
    return raw.decode().strip()
