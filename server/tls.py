"""TLS: a node's certificate, for gRPC and for HTTP.

The files are PEM. `tls_ca` turns on mutual TLS for gRPC: a client without a certificate of that
authority is not even heard. HTTP has no client certificates: a probe and a scraper have none.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from weft.errors import InvalidArgument

from .config import Config


def grpc_credentials(config: Config) -> grpc.ServerCredentials | None:
    """None without TLS. Raises InvalidArgument, naming the setting, when a file does not do."""
    if http_context(config) is None:  # it reads the same files, and says what is wrong with them
        return None
    authority = _read("tls_ca", config.tls_ca) if config.tls_ca else None
    if authority is not None and b"-----BEGIN CERTIFICATE-----" not in authority:
        raise InvalidArgument(f"tls_ca {config.tls_ca} has no certificate in PEM form")
    pair = _read("tls_key", config.tls_key), _read("tls_cert", config.tls_cert)
    return grpc.ssl_server_credentials(
        [pair], root_certificates=authority, require_client_auth=authority is not None
    )


def http_context(config: Config) -> ssl.SSLContext | None:
    if not config.tls_cert:
        return None
    for name in ("tls_cert", "tls_key"):
        _read(name, getattr(config, name))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except ssl.SSLError as error:
        raise InvalidArgument(
            f"tls_cert {config.tls_cert} and tls_key {config.tls_key} are not a certificate and "
            f"its key in PEM form: {error.reason or error}"
        ) from None
    return context


class Introduction:
    """How this node comes to other nodes' gRPC: by TLS when it has it itself, with a token."""

    def __init__(self, config: Config) -> None:
        self._credentials = None
        if config.tls_cert:
            authority = _read("tls_ca", config.tls_ca) if config.tls_ca else None
            pair = _read("tls_key", config.tls_key), _read("tls_cert", config.tls_cert)
            self._credentials = grpc.ssl_channel_credentials(authority, *pair)
        self.metadata: list[tuple[str, str]] = []
        if config.join_token:
            token = _read("join_token", config.join_token).decode(errors="replace").strip()
            self.metadata.append(("authorization", f"Bearer {token}"))

    def channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(address, options=options)
        return grpc.secure_channel(address, self._credentials, options=options)


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{setting} {path} cannot be read: {error.strerror}") from None
