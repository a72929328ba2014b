"""The app of the tests of gangs: imported by worker processes, and by the tests."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

from weft import tasks

app = tasks.App("crew")
PROGRAM = str(Path(__file__).with_name("allreduce_program.py"))


@app.gang(size=4, assemble_timeout=60)
def meet(seconds: float) -> tuple[int, int, float, float]:
    """Rank and size, with the times of start and end; no member ends before all have started."""
    gang = tasks.current().gang
    began = time.time()
    app.client.kv.append(f"crew/met/{gang.job}", b"x")
    while len(app.client.kv.lookup(f"crew/met/{gang.job}") or b"") < gang.size:
        time.sleep(0.02)
    time.sleep(seconds)
    return gang.rank, gang.size, began, time.time()


@app.gang(size=3)
def total(value: int) -> int:
    """A sum over the members' sockets: rank 0 listens at its address."""
    gang = tasks.current().gang
    first = gang.members[0]
    if gang.rank == 0:
        with socket.create_server((first.address, first.port)) as server:
            lines = []
            for _ in range(gang.size - 1):
                peer, _ = server.accept()
                with peer:
                    lines.append(int(peer.recv(64)))
        return value + sum(lines)
    while True:
        try:
            with socket.create_connection((first.address, first.port), timeout=10) as peer:
                peer.sendall(str(value * (gang.rank + 1)).encode())
            return 0
        except ConnectionRefusedError:
            time.sleep(0.02)


@app.gang(size=2)
def wait_long(seconds: float) -> int:
    tasks.current().kv.insert("crew/never", b"1")
    time.sleep(seconds)
    return os.getpid()


@app.gang(size=2, attempts=2)
def lose_one(key: str) -> int:
    """Rank 1 of the first attempt is killed."""
    rank = tasks.current().gang.rank
    starts = app.client.kv.append(f"crew/{key}/{rank}", b"x")  # the length
    if starts == 1:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    return rank


@app.gang(size=2)
def always_lose_one() -> None:
    if tasks.current().gang.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


@app.gang(size=2)
def fail_at(rank: int) -> int:
    if tasks.current().gang.rank == rank:
        raise ValueError(f"rank {rank} has no data")
    time.sleep(600)
    return rank


@app.gang(size=2)
def allreduce(value: int) -> tuple[int, str]:
    run = tasks.current().gang.mpi([sys.executable, PROGRAM, str(value)])
    return run.code, run.output


@app.gang(size=2)
def where() -> str:
    """The address of this member, as all members see it."""
    gang = tasks.current().gang
    return gang.members[gang.rank].address


@app.task(queue="gangs")
def alone(n: int) -> int:
    return n + 1
