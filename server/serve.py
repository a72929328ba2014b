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
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from weft.errors import ShuttingDown, StoreDamaged, WeftError
from weft.persistence.directory import DataDirectory

from . import connections
from .access import Access
from .address import Address
from .audit import Audit
from .config import Config
from .grpc_edge import GrpcEdge
from .health import DRAINING, SERVING, Health
from .http_edge import HttpEdge
from .join import Join, open_directory
from .log import configure, fields
from .metrics import Metrics
from .node import Node
from .tls import Certificates
from .tokens import TokenFile

log = logging.getLogger(__name__)

#: LevelDB's tables, ports, logs.
FILES_OF_A_NODE: Final = 1024

#: For so long a thread may keep the interpreter from another. A write that has ended waits for it
#: between its two syncs and its end, while the node's thread works on: Python's own 5 ms is longer
#: than the whole write.
SWITCH_S: Final = 0.0002
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
        directory = open_directory(config, partial(_wait, ends))
        try:
            return _serve_directory(config, directory, ends)
        finally:
            directory.close()
    except ShuttingDown as stopped:
        log.info("stopped", extra=fields(reason=stopped.message))
        return EXIT_STOPPED
    except WeftError as error:
        print(f"weft serve: {error.message}", file=sys.stderr)
        return EXIT_REFUSED


def _serve_directory(config: Config, directory: DataDirectory, ends: _Ends) -> int:
    access = Access(TokenFile(config.tokens)) if config.tokens else None
    certificates = Certificates(config) if config.tls_cert else None
    credentials = certificates.grpc_credentials() if certificates is not None else None
    audit = Audit(config.audit_path, directory.node)
    _raise_files_limit(config)
    sys.setswitchinterval(SWITCH_S)
    store = directory.open_store()
    try:
        node = Node(config, directory, store, access, audit)
        edge = GrpcEdge(config, node, access, credentials, audit)
        health = Health(node)
        watched: dict[str, int] = {}
        metrics = Metrics(
            node.round_times, node.fsync_times, edge.calls, lambda: connections.count(watched)
        )
        http_edge = HttpEdge(config.http_address, health, metrics, access, certificates)
        try:
            # It can be watched while it rebuilds its queues.
            http = config.advertised(http_edge.start())
            # The node is there before its public face, so that the first call finds it.
            node.start(on_end=lambda: ends.put("the node ended"))
            grpc = config.advertised(edge.start(on_bound=partial(_tell, config, node)))
            zmq = config.advertised(node.zmq_address)
            watched.update(grpc=grpc.port, zmq=zmq.port, http=http.port)
            join = Join(config, directory, grpc, zmq)
            addresses = {"grpc": grpc, "zmq": zmq, "http": http}
            with _joined(join, node, ends), _address_file(directory, **addresses):
                _greet(config, directory, **addresses)
                health.phase = SERVING
                reason = ends.get()
                health.phase = DRAINING
                log.info("stopping", extra=fields(reason=reason))
                edge.stop(config.grace_ms / 1000)  # a failed node has answered all: that is quick
            if join.refusal is not None:
                raise join.refusal
        except ShuttingDown as stopped:  # before it was a member
            log.info("stopping", extra=fields(reason=stopped.message))
        finally:
            edge.stop(0)
            node.stop()
            http_edge.stop()
        return _outcome(node.failure)
    finally:
        store.close()
        audit.close()


def _raise_files_limit(config: Config) -> None:
    """A descriptor for each connection: the limit that a shell sets is far below."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * config.connections_max + FILES_OF_A_NODE
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if hard != resource.RLIM_INFINITY and hard < wanted:
        log.warning("few files may be open", extra=fields(limit=hard, wanted=wanted))


@contextmanager
def _joined(join: Join, node: Node, ends: _Ends) -> Iterator[None]:
    """A node serves once it is a member; one that founds a cluster is that from the start."""
    try:
        join.enter(node, partial(_wait, ends), lambda: ends.put("the members refuse this node"))
        yield
    finally:
        join.close()


def _wait(ends: _Ends, seconds: float) -> None:
    """Waits, unless the process is told to end: that is a ShuttingDown."""
    try:
        reason = ends.get(timeout=seconds)
    except queue.Empty:
        return
    raise ShuttingDown(reason)


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
def _address_file(directory: DataDirectory, **addresses: Address) -> Iterator[None]:
    """`address.json` says where the node serves; it is there for just as long."""
    path = Path(directory.path) / "address.json"
    draft = path.with_suffix(".tmp")
    named = {name: str(address) for name, address in addresses.items()}
    draft.write_text(json.dumps({**named, "pid": os.getpid()}) + "\n", encoding="ascii")
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _greet(config: Config, directory: DataDirectory, **addresses: Address) -> None:
    log.info(
        "serving",
        extra=fields(
            version=version("weft"),
            node=directory.node,
            cluster=directory.cluster,
            data=directory.path,
            durability=config.durability,
            **{name: str(address) for name, address in addresses.items()},
        ),
    )
    if config.durability == "os":
        log.warning("durability is os: a power cut loses the last moments of acknowledged pushes")
    if config.insecure and not config.tokens:
        log.warning("insecure: whoever reaches these ports can read and delete every queue")
    elif config.insecure:
        log.warning("insecure: what is not encrypted, tokens too, can be read on the way")
    if config.log_format == "text":
        print(_welcome(directory, **addresses), flush=True)


def _welcome(directory: DataDirectory, grpc: Address, zmq: Address, http: Address) -> str:
    elsewhere = "" if str(grpc) == Config().listen else f"WEFT_SERVERS={grpc} "
    return f"""
Weft {version("weft")} is serving.
  clients connect to  {grpc}  (gRPC; Python clients find {zmq} by themselves)
  data is kept in     {directory.path}
  figures are at      http://{http}/metrics
Try, in another terminal:
  {elsewhere}weft queue create hello
  {elsewhere}weft push hello 'first message'
Stop with Ctrl-C.
"""
