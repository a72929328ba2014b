"""A node's life: open, serve, drain, close.

Exit codes: 0 after SIGTERM or SIGINT, 1 when it could not start, 3 when it ended because its disk
(or the node itself) failed: what was acknowledged is safe, what was under way was not acknowledged.
A first signal asks, a second one insists and ends the process where it stands; the store survives
that as it survives a crash.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from weft.errors import StoreDamaged, WeftError
from weft.persistence.directory import DataDirectory

from .address import Address
from .config import Config
from .grpc_edge import GrpcEdge
from .log import configure, fields
from .node import Node

log = logging.getLogger(__name__)

EXIT_STOPPED: Final = 0
EXIT_REFUSED: Final = 1
EXIT_FAILED: Final = 3

#: Why the process is to end: the first word counts.
_Ends = queue.SimpleQueue[str]


def serve(config: Config) -> int:
    """Runs a node until it is told to stop; returns the process's exit code.

    It takes the process over, signals included: call it once, from the main thread.
    """
    configure(config.log_level, config.log_format)
    ends: _Ends = queue.SimpleQueue()
    _watch_signals(ends)
    try:
        directory = DataDirectory.open(config.data)
        try:
            return _serve_directory(config, directory, ends)
        finally:
            directory.close()
    except WeftError as error:
        print(f"weft serve: {error.message}", file=sys.stderr)
        return EXIT_REFUSED


def _serve_directory(config: Config, directory: DataDirectory, ends: _Ends) -> int:
    store = directory.open_store()
    try:
        node = Node(config, directory, store)
        edge = GrpcEdge(config, node)
        try:
            # The node is there before its public face, so that the first call finds it.
            node.start(on_end=lambda: ends.put("the node ended"))
            grpc = config.advertised(edge.start(on_bound=partial(_tell, config, node)))
            zmq = config.advertised(node.zmq_address)
            with _address_file(directory, grpc, zmq):
                _greet(config, directory, grpc, zmq)
                reason = ends.get()
                log.info("stopping", extra=fields(reason=reason))
                edge.stop(config.grace_ms / 1000)  # a failed node has answered all: that is quick
        finally:
            edge.stop(0)
            node.stop()
        return _outcome(node.failure)
    finally:
        store.close()


def _tell(config: Config, node: Node, bound: Address) -> None:
    node.grpc_address = str(config.advertised(bound))


def _outcome(failure: Exception | None) -> int:
    if failure is None:
        log.info("stopped")
        return EXIT_STOPPED
    print(f"weft serve: the node ended, because it failed: {failure}", file=sys.stderr)
    if not isinstance(failure, StoreDamaged):
        print(
            "Everything that was acknowledged is kept. Mend the cause, then start the node again.",
            file=sys.stderr,
        )
    return EXIT_FAILED


def _watch_signals(ends: _Ends) -> None:
    """SIGTERM and SIGINT ask the process to stop; asked again, it ends at once.

    A thread of its own takes them, with every other thread masked. Python runs a handler only when
    the main thread comes round to it, and a signal that the kernel gives to another thread (gRPC
    has some) does not wake a main thread that waits.
    """
    numbers = {signal.SIGTERM, signal.SIGINT}
    # Before any other thread is there: threads inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def watch() -> None:
        ends.put(signal.Signals(signal.sigwait(numbers)).name)
        os._exit(128 + signal.sigwait(numbers))

    threading.Thread(target=watch, name="signals", daemon=True).start()


@contextmanager
def _address_file(directory: DataDirectory, grpc: Address, zmq: Address) -> Iterator[None]:
    """`address.json` says where the node serves; it is there for just as long."""
    path = Path(directory.path) / "address.json"
    draft = path.with_suffix(".tmp")
    draft.write_text(
        json.dumps({"grpc": str(grpc), "zmq": str(zmq), "pid": os.getpid()}) + "\n",
        encoding="ascii",
    )
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _greet(config: Config, directory: DataDirectory, grpc: Address, zmq: Address) -> None:
    log.info(
        "serving",
        extra=fields(
            version=version("weft"),
            node=directory.node,
            cluster=directory.cluster,
            data=directory.path,
            grpc=str(grpc),
            zmq=str(zmq),
            durability=config.durability,
        ),
    )
    if config.durability == "os":
        log.warning("durability is os: a power cut loses the last moments of acknowledged pushes")
    if config.insecure:
        log.warning("insecure: whoever reaches these ports can read and delete every queue")
    if config.log_format == "text":
        print(_welcome(directory, grpc, zmq), flush=True)


def _welcome(directory: DataDirectory, grpc: Address, zmq: Address) -> str:
    elsewhere = "" if str(grpc) == Config().listen else f"WEFT_SERVERS={grpc} "
    return f"""
Weft {version("weft")} is serving.
  clients connect to  {grpc}  (gRPC; Python clients find {zmq} by themselves)
  data is kept in     {directory.path}
Try, in another terminal:
  {elsewhere}weft queue create hello
  {elsewhere}weft push hello 'first message'
Stop with Ctrl-C.
"""
