"""`python -m bench.idle_connections`: the memory of a node with thousands of idle gRPC connections.

On each TCP connection a client has sent HTTP/2's preface and its settings, and the node has
answered with its own, as in the first moment of every gRPC channel. The client answers pings, so
that the node keeps the connections.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.peers.arena import Arena
from bench.peers.systems import BY_NAME

MIB: Final = 1024 * 1024
CONNECTIONS: Final = 5000
#: Memory of all connections together.
TARGET_BYTES: Final = 64 * MIB
#: Connections that are opened at the same time.
_OPENING: Final = 100
#: Seconds without an answer after which a connection has failed, and of rest before memory is read.
_ANSWER_S: Final = 60.0
_REST_S: Final = 2.0
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: Frame types and flags of RFC 9113.
_SETTINGS, _PING, _ACK = 4, 6, 1
#: Files of this process and of the node beside the connections.
_FILES_SPARE: Final = 200


def frame(kind: int, flags: int, payload: bytes = b"") -> bytes:
    """A frame of stream 0."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + bytes(4) + payload


class Idle(asyncio.Protocol):
    """One client connection; `open` is done when both sides have the settings of the other."""

    def __init__(self) -> None:
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(_PREFACE + frame(_SETTINGS, 0))

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 9:
            size = int.from_bytes(self._data[:3], "big")
            if len(self._data) < 9 + size:
                return
            kind, flags = self._data[3], self._data[4]
            payload, self._data = self._data[9 : 9 + size], self._data[9 + size :]
            if kind == _SETTINGS and flags & _ACK:
                if not self.open.done():
                    self.open.set_result(None)
            elif kind in (_SETTINGS, _PING) and not flags & _ACK:
                self.transport.write(frame(kind, _ACK, payload if kind == _PING else b""))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if not self.open.done():
            self.open.set_exception(error or ConnectionError("the node closed the connection"))


async def opened(address: str, count: int) -> list[Idle]:
    host, _, port = address.rpartition(":")
    loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(_OPENING)

    async def one() -> Idle:
        async with slots, asyncio.timeout(_ANSWER_S):
            _, made = await loop.create_connection(Idle, host, int(port))
            await made.open
            return made

    return list(await asyncio.gather(*(one() for _ in range(count))))


def memory_bytes(pid: int) -> int:
    """Resident memory without mapped files."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


async def measure(address: str, pid: int, count: int) -> tuple[int, int]:
    """The node's memory before and with the connections, in bytes."""
    for each in await opened(address, 10):  # what the first connections load is not theirs
        each.transport.close()
    await asyncio.sleep(_REST_S)
    before = memory_bytes(pid)
    connections = await opened(address, count)
    await asyncio.sleep(_REST_S)
    after = memory_bytes(pid)
    lost = sum(each.closed for each in connections)
    for each in connections:
        each.transport.close()
    if lost:
        raise SystemExit(f"the node closed {lost} of {count} idle connections")
    return before, after


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.idle_connections", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--connections", type=int, default=CONNECTIONS, metavar="N")
    count: int = parser.parse_args().connections
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count + _FILES_SPARE:
        sys.exit(f"the limit of open files is {most}: raise it above {count + _FILES_SPARE}")
    # The node inherits the limit.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * count + _FILES_SPARE), most))
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        arena = Arena(Path(folder), lambda line: print(line, flush=True))
        try:
            server = arena.server(BY_NAME["weft-os"])
            began = time.monotonic()
            pid = server.processes[0].pid
            before, after = asyncio.run(measure(server.address["servers"][0], pid, count))
        finally:
            arena.close()
    grown = after - before
    verdict = "met" if grown < TARGET_BYTES * count / CONNECTIONS else "missed"
    print(
        f"{count:,} idle connections: {grown / MIB:.1f} MiB ({before / MIB:.1f} MiB before, "
        f"{after / MIB:.1f} MiB after), {grown / count / 1024:.1f} KiB each, opened in "
        f"{time.monotonic() - began:.1f} s; target below {TARGET_BYTES // MIB} MiB for "
        f"{CONNECTIONS:,}: {verdict}"
    )


if __name__ == "__main__":
    main()
