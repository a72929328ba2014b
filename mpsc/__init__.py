"""Queues with many producers and one consumer over one-sided memory, wait-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .algorithms import ALGORITHMS, Algorithm, algorithm_named
from .inprocess import InProcessWindow, Segments
from .job import Job, create
from .queue import Dequeuer, Enqueuer
from .shape import Shape
from .window import Counts, Window

if TYPE_CHECKING:
    from .gateway import Gateway, open
    from .gateway_loop import Totals
    from .receiver import Receiver
    from .sender import Sender

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Counts",
    "Dequeuer",
    "Enqueuer",
    "Gateway",
    "InProcessWindow",
    "Job",
    "Receiver",
    "Segments",
    "Sender",
    "Shape",
    "Totals",
    "Window",
    "algorithm_named",
    "create",
    "open",
]


def __getattr__(name: str) -> object:
    # Only the gateway needs Weft's client: programs that use the queues alone do not load it.
    if name in ("Gateway", "Receiver", "Sender", "Totals", "open"):
        from . import gateway

        return getattr(gateway, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
