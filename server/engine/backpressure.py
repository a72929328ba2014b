"""Backpressure: defer pops for connections with too many bytes of unsent responses.

The driver stops reading requests from a connection while its client does not read responses. Two
sources of responses remain: pops already waiting, which may all be served at once, and pops
received during a write, because no response leaves before the write ends. The engine serves such
pops only as fast as the client reads the responses. Only the driver knows connections and their
unsent bytes.
"""

from __future__ import annotations

from typing import Protocol


class Backpressure(Protocol):
    def blocked_peer(self, to: object) -> int | None:
        """The caller's connection, if blocked now; several callers may share one connection."""
        ...

    def tell(self, to: object, size: int) -> None:
        """Charges the caller's connection for a pop response of `size` bytes."""
        ...


class NoBackpressure:
    """Never blocks a caller."""

    def blocked_peer(self, to: object) -> int | None:
        return None

    def tell(self, to: object, size: int) -> None:
        pass
