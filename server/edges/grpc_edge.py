"""The gRPC edge: the public API, health and reflection, in a thread with its own event loop.

The node's thread never waits for gRPC and gRPC never waits for a disk: the two threads meet only in
`NodeApi`. Stopping closes the drain gate first: health reports NOT_SERVING, new calls are refused
with a retriable Weft error, idle waits end, and calls in progress finish within the grace period.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from weft import limits
from weft.errors import InvalidArgument
from weft.proto import weft_pb2
from weft.server.address import Address
from weft.server.config import Config
from weft.server.node.batch_names import BatchNames
from weft.server.node.node_api import NodeApi
from weft.server.observability.log import fields
from weft.server.security.access import Access
from weft.server.security.audit import Audit

from .call_log import CallLog
from .drain_gate import DrainGate
from .grpc_services import GrpcServices
from .grpcio_calls import handlers

log = logging.getLogger(__name__)

SERVICES: Final = tuple(
    service.full_name for service in weft_pb2.DESCRIPTOR.services_by_name.values()
)
#: Time to refuse calls that are still arriving, to send the last responses, and to end calls
#: without an end of their own (health watches). The edge waits only while there is such a call.
FLUSH_S: Final = 1.0

_OPTIONS: Final[list[tuple[str, Any]]] = [
    ("grpc.max_receive_message_length", limits.GRPC_BYTES_MAX),
    ("grpc.max_send_message_length", limits.GRPC_BYTES_MAX),
    # Otherwise two nodes on one port would silently share its connections.
    ("grpc.so_reuseport", 0),
    # Detects a client that vanished without closing, so that its waiting pops are cancelled.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # The minimum ping interval of a client; gRPC closes the connection of a faster one.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


class GrpcEdge:
    """Started once. `stop` may be called from any thread except the edge's own."""

    def __init__(
        self,
        config: Config,
        ask: NodeApi,
        access: Access | None = None,
        credentials: grpc.ServerCredentials | None = None,
        audit: Audit | None = None,
        batch_names: BatchNames | None = None,
    ) -> None:
        self._config = config
        self._batch_names = batch_names
        self._audit = audit
        self._access = access
        self._credentials = credentials
        self._ask = ask
        self.calls = CallLog()
        self._on_bound: Callable[[Address], None] = lambda bound: None
        self._bound: Future[Address] = Future()
        self._thread = threading.Thread(target=self._run, name="grpc", daemon=True)

    def start(self, on_bound: Callable[[Address], None] = lambda bound: None) -> Address:
        """Starts serving and returns the bound address.

        `on_bound` is called before the first call can arrive. Raises InvalidArgument if listening
        fails.
        """
        self._on_bound = on_bound
        self._thread.start()
        return self._bound.result()

    def stop(self, grace_s: float) -> None:
        """Lets calls in progress finish within the grace period, then stops. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set_result, grace_s)
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if self._bound.done():
                log.exception("the gRPC edge failed")
                raise
            self._bound.set_exception(error)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping: asyncio.Future[float] = self._loop.create_future()
        idle = asyncio.Event()
        gate, healthy = DrainGate(idle.set), health.aio.HealthServicer()
        server = self._server(gate, healthy)
        address = self._config.grpc_address
        try:
            if self._credentials is None:
                port = server.add_insecure_port(str(address))
            else:
                port = server.add_secure_port(str(address), self._credentials)
        except RuntimeError:
            raise InvalidArgument(_why_not(address)) from None
        for service in SERVICES:
            await healthy.set(service, health_pb2.HealthCheckResponse.SERVING)
        bound = Address(address.host, port)
        self._on_bound(bound)
        await server.start()
        log.info("gRPC listens", extra=fields(address=str(bound)))
        self._bound.set_result(bound)
        grace_s = await self._stopping
        await healthy.enter_graceful_shutdown()
        gate.close()
        try:
            await asyncio.wait_for(idle.wait(), grace_s)
        except TimeoutError:
            log.warning("calls were cut off", extra=fields(grace_s=grace_s))
            gate.cut()
        await server.stop(FLUSH_S)
        log.info("gRPC stopped")

    def _server(self, gate: DrainGate, healthy: Any) -> grpc.aio.Server:
        most = ("grpc.max_allowed_incoming_connections", self._config.connections_max)
        server = grpc.aio.server(
            options=[*_OPTIONS, most], maximum_concurrent_rpcs=self._config.calls_max
        )
        services = GrpcServices(
            self._ask, gate, self.calls, self._access, self._audit, self._batch_names
        )
        for service, methods in handlers(services).items():
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, methods),)
            )
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        named = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(named, server)
        return server


def _why_not(address: Address) -> str:
    """Finds the cause with a plain socket: gRPC does not report why listening failed."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(place)
                probe.listen()
        reason = "gRPC gave no reason"
    except OSError as error:
        reason = error.strerror or str(error)
    return (
        f"cannot listen on {address}: {reason}. Stop the process that uses the port, or set "
        "another address with listen"
    )
