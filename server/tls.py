"""TLS: a node's certificate, for gRPC and for HTTP.

The files are PEM. `tls_ca` turns on mutual TLS for gRPC: a client without a certificate of that
authority is not even heard. HTTP has no client certificates: a probe and a scraper have none.
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

from .config import Config
from .log import fields

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0


class Certificates:
    """A node's certificate, its key and the authority of its clients, read again when they change.

    Every second at most a look at the files' dates tells. Connections that are there stay as they
    are; new ones get the new certificate. Files that do not fit together change nothing and are
    complained about: half of a renewal may be there already, and the other half come in a moment.
    """

    def __init__(self, config: Config) -> None:
        """Raises InvalidArgument, naming the setting, when a file does not do."""
        self._config = config
        self._lock = threading.Lock()
        self._look_at = 0.0
        self._stamps = self._stamped()
        self.http = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.http.minimum_version = ssl.TLSVersion.TLSv1_2
        self._current = self._read()
        #: How often new ones were taken.
        self.renewals = 0

    def grpc_credentials(self) -> grpc.ServerCredentials:
        given = self._current

        def fetch() -> Any:
            """For each new connection: None for no change."""
            nonlocal given
            self.look()
            if self._current is given:
                return None
            given = self._current
            return given

        return grpc.dynamic_ssl_server_credentials(given, fetch, bool(self._config.tls_ca))

    def look(self) -> None:
        """Reads the files again if they have changed."""
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
            self.renewals += 1
            log.info("certificate read again", extra=fields(tls_cert=self._config.tls_cert))
        except InvalidArgument as error:
            log.error("certificate not read again", extra=fields(error=error.message))
        finally:
            self._lock.release()

    def _read(self) -> Any:
        """All of it, or an error and no change."""
        config = self._config
        cert, key = _read("tls_cert", config.tls_cert), _read("tls_key", config.tls_key)
        authority = _read("tls_ca", config.tls_ca) if config.tls_ca else None
        if authority is not None and b"-----BEGIN CERTIFICATE-----" not in authority:
            raise InvalidArgument(f"tls_ca {config.tls_ca} has no certificate in PEM form")
        try:
            trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            trial.load_cert_chain(config.tls_cert, config.tls_key)
            self.http.load_cert_chain(config.tls_cert, config.tls_key)
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgument(
                f"tls_cert {config.tls_cert} and tls_key {config.tls_key} are not a certificate "
                f"and its key in PEM form: {getattr(error, 'reason', None) or error}"
            ) from None
        return grpc.ssl_server_certificate_configuration([(key, cert)], authority)

    def _stamped(self) -> list[tuple[int, int, int]]:
        names = (self._config.tls_cert, self._config.tls_key, self._config.tls_ca)
        return [_stamp(name) for name in names if name]


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_ino, found.st_size


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
