"""What a replica needs of its node, and tells it."""

from __future__ import annotations

from typing import Protocol

from .log import Changes
from .messages import AnyMessage, Appended


class Outbox(Protocol):
    """What a replica needs of its node."""

    def send(self, to: str, message: AnyMessage) -> None: ...

    def send_later(self, to: str, message: Appended) -> None:
        """With the next ping: it costs no message of its own. A later one replaces it."""
        ...

    def alive(self, node: str) -> bool: ...

    def may_install(self, size: int) -> bool:
        """Whether a piece of a state may be sent now: hand-offs have a limited rate."""
        ...

    def applied(self, partition: int, lsn: int, changes: Changes) -> None:
        """An entry is in the state now."""
        ...

    def replaced(self, partition: int) -> None:
        """The whole state is another one."""
        ...
