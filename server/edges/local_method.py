"""gRPC methods that an edge answers without the node: health checks and reflection.

They work while the node drains, and are in no call log, as in grpcio's own server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from .grpc_code import GrpcCode


class LocalCaller(Protocol):
    """One call of a local method."""

    #: Called when the call has ended for any reason.
    on_end: Callable[[], None]

    def send(self, message: bytes) -> None:
        """Sends a message to the client."""
        ...

    def finish(self, code: GrpcCode = GrpcCode.OK, details: str = "") -> None:
        """Ends the call."""
        ...


class LocalMethod(NamedTuple):
    path: str
    #: Called with each message of the client.
    handle: Callable[[LocalCaller, bytes], None]
    #: The client may send more than one message; the call ends when the client has ended its side.
    client_streams: bool = False
    #: For a message that arrives at once: the response message, or None to have `handle` called.
    answer: Callable[[bytes], bytes | None] = lambda message: None
