"""The way between the ranks of an MPI job and durable Weft queues.

    with weft.mpsc.open(MPI.COMM_WORLD, queue="events") as gateway:
        if gateway.sender is None:
            gateway.run()                        # this rank works until all others have closed
        else:
            gateway.sender.send(b"...")          # a few microseconds, not durable yet
            gateway.sender.flush()               # returns when all that was sent is on disk

Senders enqueue into a Sweepqueue; the gateway's rank sweeps it and pushes what it finds. When a
push has been acknowledged, so it is as durable as the cluster's setting says, the gateway writes
to every sender how many of its items that covers: the watermark (``sender.py``). With
``source="jobs"`` the messages of that queue are handed to the ranks (``fanout.py``); ``rounds.py``
says in which order things happen.

Memory is never called durable: an item that was sent and not yet covered by the watermark is
lost if the gateway dies. If a push fails, all ranks are told at once, and ``run`` raises. A push
that was acknowledged is not repeated.

A rank that dies is let go (``lifeline.py`` tells): what it enqueued in full is stored, what it
had received goes to others. After a death nobody waits in a collective call (``departure.py``).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Final

from weft.client.session import TIMEOUT_MS
from weft.client.sync import Client, connect
from weft.errors import DeadlineExceeded, MissingExtra

from .departure import Departure
from .fan import FAILED, FanReader, FanWriter, segment_bytes
from .fanout import Fanout
from .job import Job, create
from .lifeline import Lifeline, Lifelines
from .receiver import Receiver
from .rounds import Drain, Rounds, Totals
from .sender import Sender
from .terms import Terms, agree, resolve

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
        terms: Terms,
        servers: str | Sequence[str] | None,
        timeout_ms: int,
        hosts: Sequence[str],
    ) -> None:
        self.terms = terms
        self._all = comm
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._rank = comm.Get_rank()
        self.is_gateway = self._rank == terms.gateway
        #: The ranks of the program: all but the gateway, which has one for itself.
        self.comm = comm.Split(int(self.is_gateway), self._rank)
        self.sender: Sender | None = None
        self.receiver: Receiver | None = None
        self._job = _sweepqueue(comm, terms) if terms.queue else None
        self._fan = _fan_window(comm, terms) if terms.source else None
        self._abandoned: set[int] = set()
        if self.is_gateway:
            self._lines = self._tie(hosts)
        else:
            self._line = self._hold()

    def _tie(self, hosts: Sequence[str]) -> Lifelines:
        """On the gateway's rank: wait for the lifelines of all others."""
        lines = Lifelines("127.0.0.1" if len(set(hosts)) == 1 else hosts[self._rank])
        _broadcast(self._all, self.terms.gateway, lines.address)
        lines.connect(set(range(self._all.Get_size())) - {self._rank})
        self._departure = Departure(lines.address, lines.wait_for_the_end)
        return lines

    def _hold(self) -> Lifeline:
        """On all other ranks: hold a lifeline, and make the ends of the queues."""
        terms = self.terms
        address = _broadcast(self._all, terms.gateway, "")
        line = Lifeline(address, self._rank)
        self._departure = Departure(address, line.close)
        if self._job is not None:
            self.sender = Sender(self._job, line)
        if self._fan is not None:
            number = self._rank - (self._rank > terms.gateway)
            reader = FanReader(self._fan, terms.gateway, number, terms.ring_bytes)
            self.receiver = Receiver(reader, line)
        return line

    def run(self, idle_s: float | None = None) -> Totals:
        """On the gateway's rank: work until all other ranks have closed or died.

        With ``idle_s``, receivers are told that no more comes once the source has been empty, and
        nobody has had anything, for that long.
        """
        assert self.is_gateway, "only the gateway's rank runs the gateway"
        drain = Drain(self._job) if self._job is not None else None
        writers = _writers(self._fan, self._all, self.terms) if self._fan is not None else []
        try:
            with ExitStack() as stack:
                client = stack.enter_context(connect(self._servers, timeout_ms=self._timeout_ms))
                push = self._pusher(client, stack)
                fanout = None
                if writers:
                    fanout = Fanout(client.queue(self.terms.source), writers, self.terms.ahead)
                return Rounds(self._lines, drain, push, fanout, self._abandoned).run(idle_s)
        except BaseException:
            if drain is not None:
                drain.fail()
            for writer in writers:
                writer.end(FAILED)
            raise

    def _pusher(self, client: Client, stack: ExitStack) -> Callable[[list[bytes]], None]:
        """What stores items and returns when they are durable."""
        if not self.terms.queue:
            return lambda items: None
        producer = stack.enter_context(client.queue(self.terms.queue).producer())

        def push(items: list[bytes]) -> None:
            producer.send_many(items)
            producer.flush()

        return push

    def abandon(self, rank: int) -> None:
        """On the gateway's rank: do not wait for this rank."""
        assert self.is_gateway, "only the gateway's rank lets others go"
        self._abandoned.add(rank)

    def close(self) -> None:
        """Leave the gateway, all ranks together; a sender flushes first."""
        from .mpi import wait_for_all

        if self.sender is not None:
            self.sender.close()
        if self.receiver is not None:
            self.receiver.close()
        together = wait_for_all(self._all, self._whole)
        if not self.is_gateway:
            self._line.leave()  # from here on the end of this process is no death
        if not together:
            return  # no more collective calls: the process ends as `departure` says
        if self._job is not None:
            self._job.window.release()
        if self._fan is not None:
            self._fan.release()
        self._departure.left()

    def _whole(self) -> bool:
        """Nobody has died, as far as this rank knows."""
        if self.is_gateway:
            self._lines.look()
            return not self._lines.dead and not self._abandoned
        self._line.look()
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
    wait_s: float | None = None,
    timeout_ms: int | None = None,
) -> Gateway:
    """Collective: join the ranks of ``comm`` (MPI's world, if it is left out) to Weft queues.

    What is left out is as `weft mpi-gateway` was told, or as `Terms` says. All ranks must give the
    same. ``wait_s`` is how long to wait for the other ranks to call this; None: for ever.
    ``timeout_ms`` is the gateway's time for one call to the node, if not the client's own.
    """
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingExtra(f"the gateway needs weft[mpi]: pip install it ({error})") from error
    terms = resolve(
        {
            "queue": queue,
            "source": source,
            "gateway": gateway,
            "item_bytes": item_bytes,
            "variable": variable,
            "ring_cells": ring_cells,
            "ring_bytes": ring_bytes,
            "ahead": ahead,
        }
    )
    world = MPI.COMM_WORLD if comm is None else comm
    hosts = agree(world, terms, socket.gethostname(), _patience(wait_s))
    return Gateway(world, terms, servers, timeout_ms or TIMEOUT_MS, hosts)


def check_queues(servers: str | None, timeout_ms: int | None, names: Sequence[str]) -> None:
    """Raise if a node or a queue is missing: better before a long computation than after it."""
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


def _sweepqueue(comm: MPI.Intracomm, terms: Terms) -> Job:
    return create(
        comm,
        algorithm="sweepqueue",
        dequeuer=terms.gateway,
        capacity=terms.ring_cells,
        item_bytes=terms.item_bytes,
        variable=terms.variable,
    )


def _fan_window(comm: MPI.Intracomm, terms: Terms) -> MpiWindow:
    from .mpi import MpiWindow

    at_gateway = comm.Get_rank() == terms.gateway
    size = segment_bytes(comm.Get_size() - 1, terms.ring_bytes, at_gateway)
    window = MpiWindow(comm, size)
    window.wait_for_all()
    return window


def _writers(window: MpiWindow, comm: MPI.Intracomm, terms: Terms) -> list[FanWriter]:
    ranks = [rank for rank in range(comm.Get_size()) if rank != terms.gateway]
    return [FanWriter(window, rank, number, terms.ring_bytes) for number, rank in enumerate(ranks)]


def _broadcast(comm: MPI.Intracomm, root: int, text: str) -> str:
    """Collective: the root's text."""
    from mpi4py import MPI

    raw = bytearray(text.encode().ljust(_ADDRESS_BYTES))
    comm.Bcast([raw, _ADDRESS_BYTES, MPI.BYTE], root)
    return raw.decode().strip()
