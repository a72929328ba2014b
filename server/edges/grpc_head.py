"""The head of a gRPC request: the method, the encoding and the token that its fields name.

Calls of one kind on one connection share their fields but for a few, and so they share this value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from weft.transport.hpack_table import HeaderField
from weft.transport.http2_stream import RequestHead

from .call_log import REQUEST_ID
from .grpc_call import CallHeaders
from .grpc_code import GrpcCode
from .grpc_method import ExchangeMethod, StreamMethod
from .local_method import LocalMethod

AnyMethod = ExchangeMethod | StreamMethod | LocalMethod

TIMEOUT: Final = b"grpc-timeout"
_REQUEST_ID: Final = REQUEST_ID.encode()
#: Fields with another value in most calls: see `HpackDecoder`.
VARYING: Final = frozenset({TIMEOUT, _REQUEST_ID, b"traceparent", b"tracestate"})

#: Fields of every response, kept in the peer's table.
RESPONSE: Final[tuple[HeaderField, ...]] = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
)
OK: Final[tuple[HeaderField, ...]] = ((b"grpc-status", b"0"),)
ACCEPTED: Final[HeaderField] = (b"grpc-accept-encoding", b"identity,gzip")
REPEATED: Final = (*RESPONSE, *OK)
REPEATED_NAMES: Final = (_REQUEST_ID,)

_CONTENT: Final = b"application/grpc"


class HeadRefusal(NamedTuple):
    code: GrpcCode
    details: str
    fields: tuple[HeaderField, ...] = ()


class GrpcHead:
    __slots__ = ("gzip", "headers", "http_status", "method", "refusal")

    def __init__(self, head: RequestHead, methods: Mapping[bytes, AnyMethod]) -> None:
        found: dict[bytes, bytes] = {}
        for name, value in head.fields:
            found.setdefault(name, value)
        token = found.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")
        #: The token, and no request id.
        self.headers = CallHeaders(token)
        encoding = found.get(b"grpc-encoding", b"identity")
        self.gzip = encoding == b"gzip"
        self.method = methods.get(head.path)
        #: The HTTP status of a request that is not of gRPC; empty for gRPC.
        self.http_status = b""
        self.refusal: HeadRefusal | None = None
        kind = found.get(b"content-type", b"")
        if not (kind == _CONTENT or kind.startswith((_CONTENT + b"+", _CONTENT + b";"))):
            self.http_status = b"415"
        elif head.method != b"POST":
            self.http_status = b"405"
        elif self.method is None:
            path = head.path.decode("latin-1")[:200]
            self.refusal = HeadRefusal(GrpcCode.UNIMPLEMENTED, f"unknown method {path}")
        elif encoding not in (b"identity", b"gzip"):
            self.refusal = HeadRefusal(
                GrpcCode.UNIMPLEMENTED, "the encoding is neither identity nor gzip", (ACCEPTED,)
            )

    def call_headers(self, varying: tuple[HeaderField, ...]) -> CallHeaders:
        for name, value in varying:
            if name == _REQUEST_ID:
                return CallHeaders(self.headers.token, value.decode("latin-1"))
        return self.headers
