"""Diagnoses a failed gRPC call to an address: the listener there, and the TLS setting at fault.

gRPC reports nearly every failure to connect as UNAVAILABLE. This module connects once more, with
plain sockets and Python's own TLS, and names the cause. The diagnosis runs only after a failed
call, so successful calls pay nothing. The module claims a cause only on evidence: a certificate
read, an alert received, bytes sent by a server. Without evidence the failure keeps gRPC's status,
and may be retried.

| evidence                                            | error                                    |
|-----------------------------------------------------|------------------------------------------|
| the host name does not resolve, nothing listens     | ConnectionLost (a node may be starting)  |
| a TLS handshake succeeds, and the client has no TLS | TlsError                                 |
| HTTP/2 or other bytes in the clear, client has TLS  | TlsError                                 |
| the certificate does not verify                     | TlsError: authority, name or date        |
| an alert about the client's certificate             | TlsError                                 |
| HTTP/1, a ZeroMQ greeting, anything else            | ProtocolError: another port or program   |
"""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any, Final

from weft.errors import (
    ConnectionLost,
    InvalidArgument,
    ProtocolError,
    TlsError,
    Unavailable,
    WeftError,
    from_code,
)

#: Time limit for all connections of one explanation together.
EXPLAIN_S: Final = 1.0
#: HTTP/2's connection preface and an empty SETTINGS frame: a gRPC server answers with SETTINGS.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
_FRAME_TYPE_AT: Final = 3
_SETTINGS: Final = 4
_READ_BYTES: Final = 64
_TLS_ALERT: Final = b"\x15\x03"
#: RFC 8446, section 4.3.2.
_CERTIFICATE_REQUEST: Final = 13

#: OpenSSL's X509_V_ERR_ codes.
_EXPIRED, _NOT_YET_VALID = 10, 9
_WRONG_NAME: Final = (62, 64)
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
#: OpenSSL's reasons when the other end does not speak TLS.
_NOT_TLS: Final = (
    "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG", "UNEXPECTED_MESSAGE",
)  # fmt: skip


@dataclass(frozen=True)
class TlsFiles:
    """A client's PEM files: the authority to trust (None: the system's), and the client's own
    certificate and key."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


def failure(address: str, error: Any, tls: TlsFiles | None) -> WeftError:
    """The error for a gRPC call to `address` that failed with `error`, a `grpc.RpcError`.

    An error reported by the node keeps its code, or becomes Unavailable if it may be retried.
    """
    code = error.code().name
    told = dict(error.trailing_metadata() or ()).get("weft-code")
    if told is not None:
        said = from_code(str(told), f"{address}: {error.details()}")
        return Unavailable(said.message) if said.retriable else said
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return from_code(code, f"{address}: {error.details()}")
    if code == "DEADLINE_EXCEEDED":
        return ConnectionLost(
            f"{address}: no answer in time: the host is down, a firewall drops the connection, the "
            "node is overloaded, or this is not its gRPC port"
        )
    explained = explain(address, tls)
    if explained is not None:
        return explained
    if code in ("UNIMPLEMENTED", "UNKNOWN"):
        return ProtocolError(f"{address} is not a Weft node, or not its gRPC port ({code})")
    return ConnectionLost(f"{address} ({code.lower()})")


def explain(
    address: str, tls: TlsFiles | None, within_s: float = EXPLAIN_S
) -> WeftError | None:  # fmt: skip
    """The obstacle for a gRPC client with these TLS files at `address`; None if there is none."""
    probe = _Probe(address, time.monotonic() + within_s)
    try:
        return probe.plain() if tls is None else probe.secured(tls)
    except socket.gaierror as error:
        return ConnectionLost(
            f"{address}: the host name does not resolve ({error.strerror}): check its spelling and "
            "DNS"
        )
    except ConnectionRefusedError:
        return ConnectionLost(f"{address}: connection refused: nothing listens on this port")
    except TimeoutError:
        return ConnectionLost(
            f"{address}: no answer within {within_s:g} s: the host is down, a firewall drops the "
            "connection, or this is not a gRPC port"
        )
    except OSError as error:
        return ConnectionLost(f"{address}: {error.strerror or error}")


class _Probe:
    def __init__(self, address: str, until: float) -> None:
        self._address = address
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._until = until

    def plain(self) -> WeftError | None:
        """Probe as a client without TLS."""
        answer = self._hello()
        if _is_http2(answer):
            return None
        if (not answer or answer.startswith(_TLS_ALERT)) and self._speaks_tls():
            return TlsError(
                f"{self._address} is encrypted with TLS, and this client is not set to use TLS: "
                "give the PEM file of the authority that signed the node's certificate, by tls= or "
                "WEFT_TLS (a node that joins: --tls-cert, --tls-key and --tls-trust-ca)"
            )
        return self._stranger(answer) if answer else None

    def secured(self, tls: TlsFiles) -> WeftError | None:
        """Probe as a client with TLS."""
        context = _context(tls)
        requests = _watch_certificate_requests(context)
        try:
            with self._connect() as raw, context.wrap_socket(
                raw, server_hostname=self._host
            ) as secure:  # fmt: skip
                return self._after_handshake(secure, tls, requests)
        except ssl.SSLCertVerificationError as error:
            return self._unverified(error, tls)
        except ssl.SSLError as error:
            if _is_about_client_certificate(error):
                return self._client_certificate(tls, error.reason or "")
            return self._no_handshake(error.reason or str(error))
        except ConnectionResetError:
            return self._no_handshake("connection reset")

    def _after_handshake(
        self, secure: ssl.SSLSocket, tls: TlsFiles, requests: list[int]
    ) -> WeftError | None:
        """In TLS 1.3 a server judges the client's certificate after the client's handshake.

        gRPC's server then closes without an alert. If a server asked for a certificate, got none
        and closed, the missing certificate is the reason. If the server got a certificate, there
        may be another reason.
        """
        try:
            secure.sendall(_PREFACE)
            answer = secure.recv(_READ_BYTES)
        except ssl.SSLEOFError:
            answer = b""
        except ssl.SSLError as error:
            if _is_about_client_certificate(error):
                return self._client_certificate(tls, error.reason or "")
            return None
        except ConnectionError:
            answer = b""
        if answer:
            return None if _is_http2(answer) else self._stranger(answer)
        if requests and tls.cert is None:
            return self._client_certificate(tls, "closed")
        if requests:
            return ConnectionLost(
                f"{self._address} closed the connection after the TLS handshake: it refuses the "
                f"client certificate {tls.cert}, which must be valid now and signed by the "
                "authority in the node's tls_client_ca, or it has as many connections as it may"
            )
        return None

    def _unverified(self, error: ssl.SSLCertVerificationError, tls: TlsFiles) -> TlsError:
        code = error.verify_code
        if code in _UNKNOWN_AUTHORITY:
            trusted = f"{tls.ca}" if tls.ca else "an authority that this system knows"
            return TlsError(
                f"{self._address}: the node's certificate is not signed by {trusted} "
                f"({error.verify_message}): give the PEM file of the authority that signed it, by "
                "tls= or WEFT_TLS (a node that joins: --tls-trust-ca)"
            )
        if code in _WRONG_NAME:
            return TlsError(
                f"{self._address}: the node's certificate is not for {self._host!r}: connect by a "
                "name that is in the certificate, or make one with that name (weft tls init DIR "
                f"--hosts {self._host})"
            )
        if code in (_EXPIRED, _NOT_YET_VALID):
            when = "has expired" if code == _EXPIRED else "is not valid yet"
            return TlsError(
                f"{self._address}: the node's certificate, or its authority's, {when}: renew the "
                "node's tls_cert, or set this machine's clock"
            )
        return TlsError(f"{self._address}: the certificate is refused: {error.verify_message}")

    def _client_certificate(self, tls: TlsFiles, reason: str) -> TlsError:
        if tls.cert is None:
            return TlsError(
                f"{self._address} demands a client certificate (mutual TLS), and this client has "
                "none: give one by weft.Tls(ca, cert, key), or WEFT_TLS_CLIENT_CERT and "
                "WEFT_TLS_CLIENT_KEY"
            )
        return TlsError(
            f"{self._address} refuses the client certificate {tls.cert} ({reason}): it must be "
            "valid now and signed by the authority in the node's tls_client_ca"
        )

    def _no_handshake(self, reason: str) -> WeftError | None:
        """Connect again, in the clear, to find out if the server has no TLS at all."""
        try:
            answer = self._hello()
        except OSError:
            answer = b""
        if _is_http2(answer):
            return TlsError(
                f"{self._address} is not encrypted, and this client is set to use TLS: start the "
                "node with tls_cert and tls_key, or connect without TLS (unset WEFT_TLS)"
            )
        if answer and not answer.startswith(_TLS_ALERT):
            return self._stranger(answer)
        if reason in _NOT_TLS:
            return TlsError(f"{self._address} does not speak TLS ({reason.lower()})")
        return None

    def _stranger(self, answer: bytes) -> ProtocolError:
        what = "another program, or another port of a node"
        if answer.startswith(b"HTTP/1"):
            what = "an HTTP/1 server: a node's metrics port (7702), or a web server"
        elif answer[:1] == b"\xff":
            what = "a ZeroMQ port of a node (7701 or 7703)"
        return ProtocolError(
            f"{self._address} is not a Weft node's gRPC port, but {what}: give the gRPC port "
            "(7700 by default)"
        )

    def _speaks_tls(self) -> bool:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the probe only tests for TLS
        context.set_alpn_protocols(["h2"])
        try:
            with self._connect() as raw, context.wrap_socket(raw, server_hostname=self._host):
                return True
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")
        except OSError:
            return False

    def _hello(self) -> bytes:
        """The server's first bytes in answer to HTTP/2 in the clear; empty if the server closes."""
        with self._connect() as raw:
            try:
                raw.sendall(_PREFACE)
                return raw.recv(_READ_BYTES)
            except ConnectionError:
                return b""

    def _connect(self) -> socket.socket:
        left_s = max(0.05, self._until - time.monotonic())
        return socket.create_connection((self._host, self._port), timeout=left_s)


def _context(tls: TlsFiles) -> ssl.SSLContext:
    """The SSL context; raises InvalidArgument for an unusable file: gRPC would just not connect."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (ssl.SSLError, OSError) as error:
        raise InvalidArgument(
            f"the authority's file {tls.ca} has no certificate in PEM form: {error}"
        ) from None
    # gRPC does not require extensions that older authorities omit, so this module does not either.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    if tls.cert is not None:
        try:
            context.load_cert_chain(tls.cert, tls.key)
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgument(
                f"{tls.cert} and {tls.key} are not a certificate and its key in PEM form: {error}"
            ) from None
    return context


def _watch_certificate_requests(context: ssl.SSLContext) -> list[int]:
    """A list that gets an entry when the server asks for a client certificate.

    The hook is CPython's own, for debugging; without the hook a demand goes unrecognised.
    """
    found: list[int] = []

    def note(_: Any, direction: str, __: Any, ___: Any, kind: Any, ____: bytes) -> None:
        if direction == "read" and int(kind) == _CERTIFICATE_REQUEST:
            found.append(1)

    if hasattr(ssl.SSLContext, "_msg_callback"):
        setattr(context, "_msg_callback", note)  # noqa: B010 (it is not in the type stubs)
    return found


def _is_http2(answer: bytes) -> bool:
    """True if the first frame is SETTINGS, as of any server (RFC 9113, section 3.4)."""
    return len(answer) > _FRAME_TYPE_AT and answer[_FRAME_TYPE_AT] == _SETTINGS


def _is_about_client_certificate(error: ssl.SSLError) -> bool:
    reason = error.reason or ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)
