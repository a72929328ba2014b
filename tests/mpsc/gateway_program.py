"""One rank of the gateway tests. Usage: gateway_program.py SERVER QUEUE ITEMS FOLDER

Each sender sends ITEMS numbered items, waits until they are durable and reports so in a file; then
it sends some more and leaves in good order. The draining rank writes its process id first, so that
the test can kill it; a sender with HOLD in its folder keeps sending instead of leaving.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mpi4py import MPI

import weft.mpsc


def main(server: str, queue: str, items: int, folder: Path) -> None:
    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    with weft.mpsc.open(comm, queue=queue, servers=server, gateway=1, item_bytes=32) as gateway:
        if gateway.sender is None:
            (folder / "gateway.pid").write_text(str(os.getpid()))
            (folder / "pushed").write_text(str(gateway.run().pushed))
            return
        sender = gateway.sender
        for serial in range(items // 2):
            sender.send(f"{rank}:{serial}".encode())
        sender.send_many([f"{rank}:{serial}".encode() for serial in range(items // 2, items)])
        sender.flush()
        assert sender.durable() == items
        (folder / f"flushed-{rank}").write_text(str(items))
        while (folder / "hold").exists():
            sender.send(f"{rank}:after".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
