"""The life of a node process: open, serve, drain, close.

Exit codes: 0 after SIGTERM or SIGINT, 1 if the node could not start, 3 if the node ended because
its disk (or the node itself) failed: acknowledged requests are safe, requests under way were not
acknowledged. The first signal requests a stop. A second signal ends the process at once; the store
survives as after a crash.
"""

from __future__ import annotations

import gc
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
from weft.shell_command import typed_command

from .address import Address
from .config import Config
from .edges import connection_counts
from .edges.grpc_edge import GrpcEdge
from .edges.http_edge import HttpEdge
from .edges.native_grpc_edge import NativeGrpcEdge
from .node.cluster_join import ClusterJoin, open_directory
from .node.monitor_publisher import MonitorPublisher
from .node.node import Node
from .observability.health import DRAINING, SERVING, Health
from .observability.log import configure, fields
from .observability.metrics import Metrics
from .security.access import Access
from .security.audit import Audit
from .security.tls import Certificates
from .security.token_file import TokenFile

log = logging.getLogger(__name__)

#: Descriptors besides connections: LevelDB's tables, ports, logs.
FILES_OF_A_NODE: Final = 1024

#: How long a thread may keep the interpreter from another. A finished write waits for the
#: interpreter between its two syncs and its end, while the node's thread works on: the 5 ms that
#: Python sets by default are longer than the whole write.
SWITCH_S: Final = 0.0002
#: Objects made, less those freed, before the cyclic garbage collector looks for garbage among the
#: young ones. Finished calls are no cycles, so nearly everything is freed without the collector;
#: Python's default of 700 made it take 7 % of a busy node's time.
YOUNG_OBJECTS_MAX: Final = 20_000
EXIT_STOPPED: Final = 0
EXIT_REFUSED: Final = 1
EXIT_FAILED: Final = 3

#: Reasons for the process to end: the first one counts.
_Ends = queue.SimpleQueue[str]


def serve(config: Config) -> int:
    """Runs a node until a stop is requested; returns the exit code of the process.

    `serve` takes the process over, signals included: call once, from the main thread.
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
    audit = Audit(config.audit_path, directory.node)
    _raise_files_limit(config)
    _warn(config, directory)
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    store = directory.open_store()
    try:
        node = Node(config, directory, store, access, audit)
        edge = _grpc_edge(config, node, access, certificates, audit)
        health = Health(node)
        watched: dict[str, int] = {}
        metrics = Metrics(
            node.round_times,
            node.fsync_times,
            edge.calls,
            lambda: connection_counts.count(watched),
            lambda: node.convoy_times,
        )
        http_edge = HttpEdge(config.http_address, health, metrics, access, certificates)
        try:
            # Metrics and health are available while the node rebuilds its queues.
            http = config.advertised(http_edge.start())
            # The node starts before the gRPC edge, so that the first call finds the node.
            node.start(on_end=lambda: ends.put("the node ended"))
            gc.freeze()  # modules and what the node has recovered: no garbage is among them
            grpc = config.advertised(edge.start(on_bound=partial(_on_bound, config, node)))
            zmq = config.advertised(node.zmq_address)
            watched.update(grpc=grpc.port, zmq=zmq.port, http=http.port)
            join = ClusterJoin(config, directory, grpc, zmq)
            addresses = {"grpc": grpc, "zmq": zmq, "http": http}
            with _joined(join, node, ends):
                _greet(config, directory, **addresses)  # before the file that says it serves
                with _address_file(directory, **addresses):
                    health.phase = SERVING
                    with _monitored(config, node):
                        reason = ends.get()
                    health.phase = DRAINING
                    log.info("stopping", extra=fields(reason=reason))
                    # Quick after a failure: all calls are answered.
                    edge.stop(config.grace_ms / 1000)
            if join.refusal is not None:
                raise join.refusal
        except ShuttingDown as stopped:  # before the node was a member
            log.info("stopping", extra=fields(reason=stopped.message))
        finally:
            edge.stop(0)
            node.stop()
            http_edge.stop()
        return _outcome(node.failure)
    finally:
        store.close()
        audit.close()


def _grpc_edge(
    config: Config,
    node: Node,
    access: Access | None,
    certificates: Certificates | None,
    audit: Audit,
) -> GrpcEdge | NativeGrpcEdge:
    if config.grpc_server == "native":
        return NativeGrpcEdge(config, node, access, certificates, audit)
    credentials = certificates.grpc_credentials() if certificates is not None else None
    return GrpcEdge(config, node, access, credentials, audit, node.batch_names)


@contextmanager
def _monitored(config: Config, node: Node) -> Iterator[None]:
    """Publishes the node's stats into the monitor queue, if there is one."""
    if not config.monitor_queue:
        yield
        return
    publisher = MonitorPublisher(node, config.monitor_queue)
    publisher.start()
    try:
        yield
    finally:
        publisher.stop()


def _raise_files_limit(config: Config) -> None:
    """Raises the open-file limit of the shell, too low for a descriptor per connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * config.connections_max + FILES_OF_A_NODE
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if hard != resource.RLIM_INFINITY and hard < wanted:
        log.warning("open-file limit is too low", extra=fields(limit=hard, wanted=wanted))


@contextmanager
def _joined(join: ClusterJoin, node: Node, ends: _Ends) -> Iterator[None]:
    """A node serves once it is a member; a founding node is a member from the start."""
    try:
        join.enter(node, partial(_wait, ends), lambda: ends.put("the members refuse this node"))
        yield
    finally:
        join.close()


def _wait(ends: _Ends, seconds: float) -> None:
    """Waits; raises ShuttingDown if the process is told to end meanwhile."""
    try:
        reason = ends.get(timeout=seconds)
    except queue.Empty:
        return
    raise ShuttingDown(reason)


def _on_bound(config: Config, node: Node, bound: Address) -> None:
    node.grpc_address = str(config.advertised(bound))


def _outcome(failure: Exception | None) -> int:
    if failure is None:
        log.info("stopped")
        return EXIT_STOPPED
    print(f"weft serve: the node failed and ended: {failure}", file=sys.stderr)
    if not isinstance(failure, StoreDamaged):
        print(
            "All acknowledged messages are kept. Fix the cause, then start the node again.",
            file=sys.stderr,
        )
    return EXIT_FAILED


def _watch_signals(ends: _Ends) -> None:
    """SIGTERM and SIGINT request a stop; a second signal ends the process at once.

    A separate thread takes the signals, with every other thread masked. Python runs a handler only
    when the main thread gets around to the handler, and a signal that the kernel gives to another
    thread (gRPC has some) does not wake a waiting main thread.
    """
    numbers = {signal.SIGTERM, signal.SIGINT}
    # Before any other thread starts: threads inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def watch() -> None:
        ends.put(signal.Signals(signal.sigwait(numbers)).name)
        os._exit(128 + signal.sigwait(numbers))

    threading.Thread(target=watch, name="signals", daemon=True).start()


@contextmanager
def _address_file(directory: DataDirectory, **addresses: Address) -> Iterator[None]:
    """Keeps `address.json`, with the node's addresses, for as long as the node serves."""
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
    if config.log_format == "text":
        print(_welcome(config, directory, **addresses), flush=True)


def _warn(config: Config, directory: DataDirectory) -> None:
    """Logs the risks of the settings, before a client can reach the node."""
    if config.durability == "os":
        log.warning("durability is os: a power failure loses the latest acknowledged pushes")
    if config.insecure and not config.tokens:
        log.warning("insecure: any client that reaches these ports can read and delete every queue")
    elif config.insecure:
        log.warning("insecure: without TLS, messages and tokens are readable on the network")
    # The mode stays: an operator may have opened the directory on purpose, to a group that copies.
    if directory.mode & 0o077:
        log.warning(
            "other users can read the data directory: run chmod 700 on it",
            extra=fields(data=directory.path, mode=f"{directory.mode:04o}"),
        )


def _welcome(
    config: Config, directory: DataDirectory, grpc: Address, zmq: Address, http: Address
) -> str:
    command = typed_command(sys.argv[0])
    elsewhere = "" if str(grpc) == Config().listen else f"WEFT_SERVERS={grpc} "
    scheme = "http"
    if config.tls_cert:
        scheme = "https"
        elsewhere += f"WEFT_TLS={config.trust_ca[1] if config.trust_ca else 'CA.pem'} "
    if config.tokens:
        elsewhere += "WEFT_TOKEN_FILE=FILE "
    return f"""
Weft {version("weft")} is serving.
  clients connect to  {grpc}  (gRPC; Python clients find {zmq} by themselves)
  data is kept in     {directory.path}
  metrics are at      {scheme}://{http}/metrics
Try, in another terminal:
  {elsewhere}{command} queue create hello
  {elsewhere}{command} push hello 'first message'
Stop with Ctrl-C.
"""
