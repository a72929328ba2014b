"""The graphs of a run, as their clients know them."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.proto import wire

from .clients import Batch


@dataclass
class Node:
    """A task."""

    body: bytes
    batch: Batch
    index: int
    parents: list[Node] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    #: Outcomes of the commits that were sent: True for success.
    sent: set[bool] = field(default_factory=set)
    #: The number of the commit that ended the task.
    ended: int = 0
    lent: bool = False


@dataclass
class Drawn:
    """A graph, and what its client knows of it."""

    number: int
    nodes: list[Node]
    batches: list[Batch]
    home: int
    #: Pushes without an answer.
    open: int = 0
    dead: bool = False
    start_sent: bool = False
    #: "started", "reaped", or "" if nobody was told.
    end: str = ""


@dataclass
class GraphCall:
    """A commit, until its answer."""

    request: wire.CommitGraph
    nodes: list[tuple[Node, bool]] = field(default_factory=list)
    graph: Drawn | None = None
    reaps: bool = False
    end: str = ""
