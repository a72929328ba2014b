"""Queues with many producers and one consumer over one-sided memory, wait-free."""

from __future__ import annotations

from .algorithms import ALGORITHMS, Algorithm, algorithm_named
from .inprocess import InProcessWindow, Segments
from .job import Job, create
from .queue import Dequeuer, Enqueuer
from .shape import Shape
from .window import Counts, Window

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Counts",
    "Dequeuer",
    "Enqueuer",
    "InProcessWindow",
    "Job",
    "Segments",
    "Shape",
    "Window",
    "algorithm_named",
    "create",
]
