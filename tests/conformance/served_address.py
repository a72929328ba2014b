"""The address of a server under test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServedAddress:
    host: str
    port: int
    #: The PEM file that signs the server's certificate; None: the server speaks plain TCP.
    authority: Path | None = None

    @classmethod
    def of(cls, address: str, authority: Path | None = None) -> ServedAddress:
        host, _, port = address.rpartition(":")
        return cls(host, int(port), authority)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
