"""The cluster as seen by an operation."""

from __future__ import annotations

from typing import Protocol

from weft.dht.view import View


class ClusterHost(Protocol):
    """The services of a node core for operations and routing."""

    @property
    def node(self) -> str: ...
    @property
    def view(self) -> View: ...
    def alive(self, node: str) -> bool: ...
    def random(self, below: int) -> int: ...
    def is_ordered(self, queue: str) -> bool | None:
        """None: this node does not know the queue. A witness knows no queues."""
        ...

    def outage(self, number: int | None = None) -> str:
        """Why a partition (None: any) cannot be served until a dead node returns; "" if served."""
        ...

    @property
    def now(self) -> int: ...
