"""A node process with TLS and tokens, and gRPC callers that report how their calls end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from tests.contract.authority import Authority, Pair
from tests.process.live_node import LiveNode
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.server.security import token_file


class Secure:
    """A node with a certificate and tokens, and its callers."""

    def __init__(self, folder: Path, *, mutual: bool = False, grpc_server: str = "native") -> None:
        self.authority = Authority(folder)
        server = self.authority.sign("server")
        self.file = folder / "tokens.json"
        self.owner = self.token("owner", "admin:*", "push:*", "consume:*", "watch:*", "table:*")
        settings: dict[str, Any] = {
            "tls_cert": server.cert,
            "tls_key": server.key,
            "tokens": self.file,
            "grpc_server": grpc_server,
        }
        if mutual:
            settings["tls_ca"] = self.authority.pair.cert
        self.node = LiveNode(folder / "node", log=folder / "node.log", **settings)

    def token(self, name: str, *grants: str, expires: int = 0) -> str:
        return token_file.create(self.file, name, list(grants), expires)[1]

    @contextmanager
    def stub(
        self, token: str = "", client: Pair | None = None, authority: Authority | None = None
    ) -> Iterator[Any]:
        own = client and (client.key.read_bytes(), client.cert.read_bytes())
        credentials = grpc.ssl_channel_credentials(
            (authority or self.authority).pair.cert.read_bytes(), *(own or (None, None))
        )
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.secure_channel(self.node.grpc, credentials, options=options) as channel:
            yield Caller(weft_pb2_grpc.QueueStub(channel), token)  # type: ignore[no-untyped-call]


class Caller:
    """Calls with a token, and returns how each ends."""

    def __init__(self, stub: Any, token: str) -> None:
        self._stub = stub
        self._metadata = [("authorization", f"Bearer {token}")] if token else []

    def call(self, method: str, request: Any) -> Any:
        return getattr(self._stub, method)(request, metadata=self._metadata, timeout=100)

    def code(self, method: str, request: Any) -> str:
        try:
            self.call(method, request)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    def push(self, queue: str) -> str:
        return self.code("Push", pb.PushRequest(queue=queue, messages=[pb.OutMessage(body=b"x")]))

    def pop(self, queue: str) -> str:
        return self.code("Pop", pb.PopRequest(queue=queue, limit=1))
