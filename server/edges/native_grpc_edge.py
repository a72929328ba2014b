"""The gRPC edge in the node's own thread: the listener, health, reflection, and the drain.

Stopping closes the drain gate first: health reports NOT_SERVING, clients are told to connect
elsewhere (GOAWAY), new calls are refused with a retriable Weft error, idle waits end, and calls in
progress finish within the grace period. `start` and `stop` are called from another thread and reach
the node's thread by `Node.look`.
"""

from __future__ import annotations

import itertools
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from weft.errors import InvalidArgument
from weft.proto import weft_pb2, wire
from weft.server.address import Address
from weft.server.config import Config
from weft.server.node.batch_names import BatchNames
from weft.server.node.call_inbox import QueuedCall
from weft.server.node.node_api import OnAnswer
from weft.server.observability.log import fields
from weft.server.security.access import Access
from weft.server.security.audit import Audit
from weft.server.security.caller import ANONYMOUS, Caller
from weft.server.security.tls import Certificates

from .call_log import CallLog
from .drain_gate import DrainGate
from .edge import TICKET_BITS
from .grpc_connection import GrpcConnection
from .grpc_head import AnyMethod
from .grpc_health import HealthService, ReflectionService
from .grpc_methods import METHODS
from .grpc_services import GrpcServices
from .tcp_listener import listen
from .tls_handshakes import TlsHandshakes
from .zmtp_edge import ZmtpEdge

log = logging.getLogger(__name__)

SERVICES: Final = tuple(
    service.full_name for service in weft_pb2.DESCRIPTOR.services_by_name.values()
)
#: The interval of housekeeping: deadlines, keepalive. A client ends its call at its deadline by
#: itself; the node's own check frees what a vanished client left.
TEND_S: Final = 1.0
#: A silent client is pinged after this time, and is gone if it does not answer in the next one. Its
#: waiting pops are then cancelled.
KEEPALIVE_S: Final = 30.0
KEEPALIVE_TIMEOUT_S: Final = 10.0
#: The connection number of requests that belong to no connection, such as a give-back.
_NO_PEER: Final = -1
#: Time for the last answers to be read when the grace period is over, and the interval of looks at
#: what is still unread before.
FLUSH_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.01
#: Time for the node's thread to do what `stop` asks for, after a failure of the node.
_LOOK_S: Final = 10.0


class HostNode(Protocol):
    """The node, whose thread serves the edge."""

    edge: ZmtpEdge
    batch_names: BatchNames

    def look(self, look: Callable[[], None]) -> bool: ...


class NativeGrpcEdge:
    """Implements NodeApi for its calls.

    Started once. `start` and `stop` may be called from any thread except the node's own.
    """

    def __init__(
        self,
        config: Config,
        node: HostNode,
        access: Access | None = None,
        certificates: Certificates | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._config = config
        self._node = node
        self._certificates = certificates
        self.edge = node.edge
        self.calls = CallLog()
        self.calls_max = config.calls_max
        self._idle = threading.Event()
        self._gate = DrainGate(self._idle.set)
        self.services = GrpcServices(self, self._gate, self.calls, access, audit, node.batch_names)
        self._health = HealthService(SERVICES)
        self.methods = _methods(self._health)
        self.now = time.monotonic
        self._connections: dict[int, GrpcConnection] = {}
        #: Numbers of calls, for their tickets.
        self.tickets = itertools.count(1)
        self._listener: socket.socket | None = None
        self._handshakes: TlsHandshakes | None = None
        self._stopped = self._ended = False
        #: Unwritten output of all connections, for `stop`.
        self._unwritten = 0

    def start(self, on_bound: Callable[[Address], None] = lambda bound: None) -> Address:
        """Starts serving and returns the bound address.

        `on_bound` is called before the first call can arrive. Raises InvalidArgument if listening
        fails.
        """
        address = self._config.grpc_address
        listener = listen(address, _cannot_listen)
        bound = Address(address.host, listener.getsockname()[1])
        on_bound(bound)
        self._listener = listener
        if self._certificates is not None:
            self._handshakes = TlsHandshakes(
                self._certificates.grpc_context, self._on_done, self._on_failed
            )
        self._run(lambda: self.edge.listen(listener, self._accept, self._config.connections_max))
        log.info("gRPC listens", extra=fields(address=str(bound)))
        return bound

    def stop(self, grace_s: float) -> None:
        """Lets calls in progress finish within the grace period, then stops. Idempotent."""
        if self._listener is None or self._stopped:
            return
        self._stopped = True
        if self._run(self._drain):  # else the node has ended, and all calls with it
            self._finish(grace_s)
        if self._handshakes is not None:
            self._handshakes.stop()
        log.info("gRPC stopped")

    def _finish(self, grace_s: float) -> None:
        until = self.now() + grace_s
        if not self._idle.wait(grace_s):
            log.warning("calls were cut off", extra=fields(grace_s=grace_s))
            self._run(self._gate.cut)
            until = self.now() + FLUSH_S
        self._run(self._health.end_watches)
        while self.now() < until and self._run(self._look_at_output) and self._unwritten:
            time.sleep(_LOOK_EVERY_S)
        self._run(self._end)

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Caller = ANONYMOUS,
    ) -> int:
        """Passes a request to the node, in the order of all requests of gRPC."""
        ticket = _NO_PEER << TICKET_BITS | next(self.tickets)
        self.edge.calls.append(QueuedCall(ticket, request, payload, on_answer, who))
        return ticket

    def cancel(self, ticket: int) -> None:
        self.edge.calls.append(QueuedCall(ticket, None))

    def _run(self, what: Callable[[], None]) -> bool:
        """Runs `what` in the node's thread and waits; False if the node has ended."""
        done = threading.Event()

        def run() -> None:
            try:
                what()
            finally:
                done.set()

        return self._node.look(run) and done.wait(_LOOK_S)

    # --- in the node's thread -----------------------------------------------------------------

    def _accept(self, made: socket.socket, where: str, number: int) -> GrpcConnection | None:
        if self._handshakes is None:
            return self._connect(made, where, number)
        if not self._handshakes.begin(made, where, number):
            made.close()
            self.edge.refuse(number)
        return None

    def _on_done(self, made: ssl.SSLSocket, where: str, number: int) -> None:
        """In the helper thread: a TLS handshake is complete."""
        if not self._node.look(lambda: self._add(made, where, number)):
            made.close()

    def _on_failed(self, number: int) -> None:
        self._node.look(lambda: self.edge.refuse(number))

    def _add(self, made: ssl.SSLSocket, where: str, number: int) -> None:
        if self._ended:
            made.close()
            self.edge.refuse(number)
        else:
            self.edge.add(self._connect(made, where, number))

    def _connect(self, made: socket.socket, where: str, number: int) -> GrpcConnection:
        if not self._connections:
            self.edge.alarms.set(self.now() + TEND_S, self._tend)
        connection = GrpcConnection(made, number, where, self.now(), self)
        self._connections[number] = connection
        return connection

    def _tend(self) -> None:
        now = self.now()
        for number, connection in list(self._connections.items()):
            if not connection.is_open:
                del self._connections[number]
                continue
            why = connection.tend(now, KEEPALIVE_S, KEEPALIVE_TIMEOUT_S)
            if why:
                self.edge.drop(connection, why)
        if self._connections:
            self.edge.alarms.set(now + TEND_S, self._tend)

    def _drain(self) -> None:
        self._health.drain()
        for connection in self._connections.values():
            if connection.is_open:
                connection.h2.announce_end()
                connection.mark()
        self._gate.close()

    def _look_at_output(self) -> None:
        opened = [each for each in self._connections.values() if each.is_open]
        self._unwritten = sum(each.held + len(each.h2.output) for each in opened)

    def _end(self) -> None:
        assert self._listener is not None
        self._ended = True
        self.edge.unlisten(self._listener)
        for connection in self._connections.values():
            if connection.is_open:
                connection.h2.end()
                connection.mark()
        self.edge.flush()


def _methods(health: HealthService) -> dict[bytes, AnyMethod]:
    found: dict[bytes, AnyMethod] = {path.encode(): row for path, row in METHODS.items()}
    for local in (*health.methods(), *ReflectionService(SERVICES).methods()):
        found[local.path.encode()] = local
    return found


def _cannot_listen(address: Address, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"cannot listen on {address}: {why}. Stop the process that uses the port, or set "
        "another address with listen"
    )
