"""What a client shows and what it believes: a token, and the authority of the nodes' certificates.

With TLS the data path is encrypted too: the nodes' keys for it are in the view, which came over
TLS, so they are known to be the nodes'.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import InvalidArgument

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True)
class Tls:
    """PEM files. `ca` signs the nodes' certificates (None: the system's authorities); `cert` and
    `key` are the client's own, for nodes that want one."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InvalidArgument("a client's certificate and its key go together: give both")


@dataclass(frozen=True)
class Credentials:
    token: str = ""
    tls: Tls | None = None

    @classmethod
    def of(cls, token: str | None, tls: Tls | str | bool | None) -> Credentials:
        """As `connect` is given them; what is None is looked for in the environment."""
        if token is None:
            token = os.environ.get("WEFT_TOKEN", "")
            if not token and (file := os.environ.get("WEFT_TOKEN_FILE")):
                token = _read("WEFT_TOKEN_FILE", file).decode(errors="replace").strip()
        if tls is None:
            ca = os.environ.get("WEFT_TLS", "")
            own = os.environ.get("WEFT_TLS_CLIENT_CERT"), os.environ.get("WEFT_TLS_CLIENT_KEY")
            tls = Tls(None if ca == "system" else ca, *own) if ca else False
        if isinstance(tls, str):
            tls = Tls(tls)
        elif tls is True:
            tls = Tls()
        return cls(token, tls or None)

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """For every gRPC call."""
        return [("authorization", f"Bearer {self.token}")] if self.token else []

    def channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        import grpc

        if self.tls is None:
            return grpc.insecure_channel(address, options=options)
        files = (("tls ca", self.tls.ca), ("tls key", self.tls.key), ("tls cert", self.tls.cert))
        ca, key, cert = (_read(what, file) if file else None for what, file in files)
        return grpc.secure_channel(
            address, grpc.ssl_channel_credentials(ca, key, cert), options=options
        )


def _read(what: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{what} {file} cannot be read: {error.strerror}") from None
