"""One rank of a program under `weft mpi-gateway`. Usage: command_program.py WHAT FOLDER

The rank reports events in files of its folder, named after its rank in the program's own
communicator, and waits for files that the test makes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import weft.mpsc
from weft.errors import GatewayFailed, TooLarge

ITEMS = 300
WAIT_S = 100.0


def until(what: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what.exists():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.005)


def send(gateway: weft.mpsc.Gateway, rank: int, folder: Path) -> None:
    assert gateway.sender is not None
    gateway.sender.send_many([f"{rank}:{serial}".encode() for serial in range(ITEMS)])
    gateway.sender.flush()
    (folder / f"flushed-{rank}").write_text(f"{gateway.comm.Get_size()} {os.getpid()}")


def send_and_die(gateway: weft.mpsc.Gateway, rank: int, folder: Path) -> None:
    """Rank 1 sends until killed; the others continue afterwards."""
    send(gateway, rank, folder)
    assert gateway.sender is not None
    if rank == 1:
        while True:
            gateway.sender.send(b"1:more")
    until(folder / "killed")
    gateway.sender.send_many([f"{rank}:later:{serial}".encode() for serial in range(ITEMS)])
    gateway.sender.flush()


def fail(gateway: weft.mpsc.Gateway, rank: int, folder: Path) -> None:
    """The node is killed after the first flush; measure how long until this rank knows."""
    send(gateway, rank, folder)
    assert gateway.sender is not None
    until(folder / "killed")
    gateway.sender.send(b"lost")
    start = time.monotonic()
    try:
        gateway.sender.flush(WAIT_S)
    except GatewayFailed as error:
        assert gateway.sender.durable() == ITEMS
        (folder / f"failed-{rank}").write_text(f"{time.monotonic() - start} {error.message}")
        raise


def work(gateway: weft.mpsc.Gateway, rank: int, folder: Path) -> None:
    """Answer every message."""
    assert gateway.sender is not None
    assert gateway.receiver is not None
    for body in gateway.receiver:
        gateway.sender.send(body + b" by %d" % rank)


def send_too_much(gateway: weft.mpsc.Gateway, rank: int, folder: Path) -> None:
    """An item that is too large is refused; the rank continues and answers every message."""
    assert gateway.sender is not None
    try:
        gateway.sender.send(bytes(1000))
    except TooLarge as error:
        (folder / f"refused-{rank}").write_text(error.message)
    work(gateway, rank, folder)


def work_and_die(gateway: weft.mpsc.Gateway, rank: int, folder: Path) -> None:
    """Rank 1 stops at its third message, with more at hand, and is killed."""
    assert gateway.receiver is not None
    assert gateway.sender is not None
    for count, body in enumerate(gateway.receiver):
        if rank == 1 and count == 2:
            (folder / "flushed-1").write_text(f"0 {os.getpid()}")
            time.sleep(WAIT_S)
        gateway.sender.send(body + b" by %d" % rank)


def leave_early(gateway: weft.mpsc.Gateway, rank: int, folder: Path) -> None:
    """Rank 0 takes some messages, marks one as done, and closes."""
    assert gateway.receiver is not None
    assert gateway.sender is not None
    if rank == 0:
        first = gateway.receiver.take(1, WAIT_S)
        assert first
        gateway.sender.send(first[0] + b" by 0")
        gateway.receiver.done()
        assert gateway.receiver.take(3, WAIT_S)
        sys.exit()  # an orderly exit, too
    work(gateway, rank, folder)


WHAT: dict[str, Callable[[weft.mpsc.Gateway, int, Path], None]] = {
    "send": send,
    "send-and-die": send_and_die,
    "fail": fail,
    "work": work,
    "work-and-die": work_and_die,
    "leave-early": leave_early,
    "send-too-much": send_too_much,
}


if __name__ == "__main__":
    with weft.mpsc.open() as gateway:
        WHAT[sys.argv[1]](gateway, gateway.comm.Get_rank(), Path(sys.argv[2]))
