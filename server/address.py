"""A host and a port, as people write them: ``127.0.0.1:7700``, ``[::1]:7700``, ``node-1:7700``."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from weft.errors import InvalidArgument

PORT_MAX = 65_535


class Address(NamedTuple):
    """The address of a listener. Port 0 lets the operating system pick a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, setting: str) -> Address:
        """Reads ``host:port``; an error names ``setting``."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise InvalidArgument(f"{setting}: put an IPv6 host in brackets, [::1]:7700")
        digits = port.isascii() and port.isdigit()
        if not colon or not host or not digits or int(port) > PORT_MAX:
            raise InvalidArgument(
                f"{setting} must be HOST:PORT with a port of 0 to {PORT_MAX}, not {text[:100]!r}"
            )
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it. A name except localhost may be anywhere."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
