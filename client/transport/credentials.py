"""The credentials of a client: a token, and the authority that signs the nodes' certificates.

With TLS the data path is encrypted too. The view contains the nodes' public keys for the data path.
The view arrives over TLS, so the keys are authentic.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft import limits
from weft.client import arguments
from weft.errors import InvalidArgument

if TYPE_CHECKING:
    import grpc

    from weft.proto.endpoint import TlsFiles

#: Every request carries the token; this limit rejects a file passed by mistake.
TOKEN_BYTES_MAX: Final = 4 * limits.KIB


@dataclass(frozen=True)
class Tls:
    """PEM files for TLS.

    `ca` signs the nodes' certificates (None: the system's authorities). `cert` and `key` are the
    client's own, for nodes that require a client certificate. Raises InvalidArgument when only one
    of `cert` and `key` is given.

        weft.connect(tls=weft.Tls(ca="ca.pem", cert="client.pem", key="client.key"))
    """

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
        """Credentials from arguments of `connect`; None means: read the environment."""
        if token is not None:
            arguments.check_text("token", token, 0, TOKEN_BYTES_MAX)
        if tls is not None and not isinstance(tls, (Tls, str, bool)):
            raise arguments.wrong_type("tls", "a weft.Tls, a file name, True, False or None", tls)
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
        """Metadata for every gRPC call."""
        return [("authorization", f"Bearer {self.token}")] if self.token else []

    @property
    def tls_files(self) -> TlsFiles | None:
        """The TLS files, for the messages of `endpoint.failure`."""
        from weft.proto.endpoint import TlsFiles

        tls = self.tls
        return None if tls is None else TlsFiles(tls.ca, tls.cert, tls.key)

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
