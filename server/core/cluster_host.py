"""The cluster as seen by an operation."""

from __future__ import annotations

from typing import Protocol

from weft.dht.view import View
from weft.proto import wire
from weft.server.engine.destinations import Destinations


class ClusterHost(Protocol):
    """The services of a node core for operations and routing."""

    @property
    def node(self) -> str: ...
    @property
    def view(self) -> View: ...
    def alive(self, node: str) -> bool: ...
    def random(self, below: int) -> int: ...
    def is_unordered(self, queue: str) -> bool:
        """True if the queue is known, and is neither ordered, grouped, stochastic nor limited."""
        ...

    def probe(self, queue: str) -> wire.ProbeReport | None:
        """This node's report of a stochastic queue; None if the queue is another, or unknown."""
        ...

    def is_ordered(self, queue: str) -> bool | None:
        """None: this node does not know the queue. A witness knows no queues."""
        ...

    @property
    def destinations(self) -> Destinations:
        """The destinations of multicasts, as this node knows them."""
        ...

    def outage(self, number: int | None = None) -> str:
        """Why a partition (None: any) cannot be served until a dead node returns; "" if served."""
        ...

    @property
    def now(self) -> int: ...
