"""TLS: a node's certificate, for gRPC and for HTTP.

The files are PEM. `tls_client_ca` turns on mutual TLS for gRPC: the node refuses a client without a
certificate of this authority. `tls_trust_ca` is the authority trusted by the node when it joins
through other nodes' gRPC. `tls_ca`, the older setting, means both. HTTP does not ask for client
certificates: health probes and scrapers have none.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from weft.errors import InvalidArgument
from weft.proto.endpoint import TlsFiles
from weft.server.config import Config
from weft.server.observability.log import fields

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0


class Certificates:
    """A node's certificate, its key and the authority of its clients, reloaded when they change.

    The files' dates are checked at most once a second. Open connections stay as they are; new
    connections get the new certificate. Files that do not match change nothing and are logged as an
    error: half of a renewal may be written already, and the other half follow in a moment.
    """

    def __init__(self, config: Config) -> None:
        """Raises InvalidArgument, naming the setting, if a file is unusable."""
        self._config = config
        self._lock = threading.Lock()
        self._look_at = 0.0
        self._stamps = self._stamped()
        self.http = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.http.minimum_version = ssl.TLSVersion.TLSv1_2
        self._current = self._read()

    def grpc_credentials(self) -> grpc.ServerCredentials:
        given = self._current

        def fetch() -> Any:
            """Called for each new connection; None for no change."""
            nonlocal given
            self.look()
            if self._current is given:
                return None
            given = self._current
            return given

        return grpc.dynamic_ssl_server_credentials(given, fetch, bool(self._config.client_ca))

    def grpc_context(self) -> ssl.SSLContext:
        """The context for a new connection of the node's own gRPC server."""
        self.look()
        return self._grpc

    def look(self) -> None:
        """Reloads the files if they have changed."""
        now = time.monotonic()
        if now < self._look_at or not self._lock.acquire(blocking=False):
            return
        try:
            self._look_at = now + LOOK_S
            stamps = self._stamped()
            if stamps == self._stamps:
                return
            self._current = self._read()
            self._stamps = stamps
            log.info("certificate read again", extra=fields(tls_cert=self._config.tls_cert))
        except InvalidArgument as error:
            log.error("certificate not read again", extra=fields(error=error.message))
        finally:
            self._lock.release()

    def _read(self) -> Any:
        """Loads all files, or raises and changes nothing."""
        config = self._config
        cert, key = _read("tls_cert", config.tls_cert), _read("tls_key", config.tls_key)
        authority = _authority(*config.client_ca) if config.client_ca else None
        try:
            grpc_context = _grpc_context(config, authority)
            self.http.load_cert_chain(config.tls_cert, config.tls_key)
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgument(
                f"tls_cert {config.tls_cert} and tls_key {config.tls_key} are not a certificate "
                f"and its key in PEM form: {getattr(error, 'reason', None) or error}"
            ) from None
        self._grpc = grpc_context
        return grpc.ssl_server_certificate_configuration([(key, cert)], authority)

    def _stamped(self) -> list[tuple[int, int, int]]:
        config = self._config
        names = (config.tls_cert, config.tls_key, config.tls_client_ca or config.tls_ca)
        return [_stamp(name) for name in names if name]


def _grpc_context(config: Config, authority: bytes | None) -> ssl.SSLContext:
    """A new context for each reload: an authority that was removed from its file must be gone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(config.tls_cert, config.tls_key)
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
    return context


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_ino, found.st_size


class Introduction:
    """Credentials of the node as a client of other nodes' gRPC: TLS if configured, and a token."""

    def __init__(self, config: Config) -> None:
        self._credentials = None
        self.tls_files: TlsFiles | None = None
        if config.tls_cert:
            authority = _authority(*config.trust_ca) if config.trust_ca else None
            pair = _read("tls_key", config.tls_key), _read("tls_cert", config.tls_cert)
            self._credentials = grpc.ssl_channel_credentials(authority, *pair)
            trusted = config.trust_ca[1] if config.trust_ca else None
            self.tls_files = TlsFiles(trusted, config.tls_cert, config.tls_key)
        self.metadata: list[tuple[str, str]] = []
        if config.join_token:
            token = _read("join_token", config.join_token).decode(errors="replace").strip()
            self.metadata.append(("authorization", f"Bearer {token}"))

    def channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(address, options=options)
        return grpc.secure_channel(address, self._credentials, options=options)


def _authority(setting: str, path: str) -> bytes:
    found = _read(setting, path)
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise InvalidArgument(f"{setting} {path} has no certificate in PEM form")
    return found


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{setting} {path} cannot be read: {error.strerror}") from None
