"""The expiry time of an X.509 certificate, parsed from DER with the standard library alone.

A certificate is SEQUENCE(SEQUENCE([0] version, serial, algorithm, issuer, SEQUENCE(from, until),
... (RFC 5280, section 4.1); the parser reads only the elements up to `until`.
"""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18


def of_file(path: str) -> datetime:
    """Expiry of the first certificate in a PEM file; raises ValueError if there is none."""
    text = Path(path).read_text(encoding="ascii", errors="replace")
    start = text.find("-----BEGIN CERTIFICATE-----")
    end = text.find("-----END CERTIFICATE-----", start)
    if start < 0 or end < 0:
        raise ValueError("no certificate in PEM form")
    pem = text[start:end] + "-----END CERTIFICATE-----\n"
    return not_after(ssl.PEM_cert_to_DER_cert(pem))


def of_server(server: str, seconds: float) -> datetime:
    """Expiry of the certificate that a server presents, regardless of its issuer."""
    host, _, port = server.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # Only the expiry is read; no data is sent.
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection((host.strip("[]"), int(port)), timeout=seconds)
    with plain, context.wrap_socket(plain, server_hostname=host.strip("[]")) as secure:
        shown = secure.getpeercert(binary_form=True)
    if shown is None:
        raise ValueError("the server presented no certificate")
    return not_after(shown)


def not_after(der: bytes) -> datetime:
    try:
        _, inside, _ = _element(der, 0)
        _, fields, _ = _element(inside, 0)
        at = 0
        kind, _, end = _element(fields, at)
        if kind == _VERSION:
            at = end
        for _ in range(3):  # serial, algorithm, issuer
            _, _, at = _element(fields, at)
        kind, validity, _ = _element(fields, at)
        _, _, at = _element(validity, 0)
        time_kind, text, _ = _element(validity, at)
    except IndexError:
        raise ValueError("not a certificate") from None
    if kind != _SEQUENCE or time_kind not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("not a certificate")
    words = text.decode("ascii")
    if time_kind == _UTC_TIME:  # Two-digit years stand for 1950 to 2049.
        words = ("19" if int(words[:2]) >= 50 else "20") + words
    return datetime.strptime(words, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Tag and content of the DER element at offset `at`, and the offset of the next element."""
    kind, length, at = data[at], data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[at : at + size], "big"), at + size
    if at + length > len(data):
        raise IndexError
    return kind, data[at : at + length], at + length
