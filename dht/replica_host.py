"""The interface between a replica and its node."""

from __future__ import annotations

from typing import Protocol

from .log import Changes
from .messages import AnyMessage, EntriesAppended


class ReplicaHost(Protocol):
    """The node's services for a replica, and the replica's notifications to the node."""

    def send(self, to: str, message: AnyMessage) -> None: ...

    def send_later(self, to: str, message: EntriesAppended) -> None:
        """Sends with the next ping, without a message of its own. A later answer replaces it."""
        ...

    def reachable(self, node: str) -> bool:
        """True if a message from the node arrived within the suspicion timeout."""
        ...

    def may_install(self, size: int) -> bool:
        """True if a snapshot piece may be sent now: snapshot transfers have a limited rate."""
        ...

    def applied(self, partition: int, lsn: int, changes: Changes) -> None:
        """Notifies the node: an entry was applied to the state."""
        ...

    def replaced(self, partition: int) -> None:
        """Notifies the node: a snapshot has replaced the whole state."""
        ...
