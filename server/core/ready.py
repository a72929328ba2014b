"""What one step of the node core produced, in the way of raft's ``Ready``."""

from __future__ import annotations

from typing import NamedTuple

from weft.dht.messages import AnyMessage
from weft.persistence.store import Change
from weft.server.engine.state import Answered


class Ready(NamedTuple):
    """The output of a step. The contract of a driver: persist before you send.

    A driver that cannot persist `writes` sends nothing and stops: the core has already moved on.
    """

    #: All changes of the step, to be written atomically, before `sends` and `answers` leave. A
    #: synced write also covers the writes of earlier steps that were not synced.
    writes: list[Change]
    #: Messages to other nodes, in order per node. A promise, a vote or an acknowledged log entry in
    #: them rests on `writes` of this step or of an earlier step.
    sends: list[tuple[str, AnyMessage]]
    #: Answers to callers. Each rests only on writes of this node up to this step, and on entries
    #: that the commit gate has found committed.
    answers: list[Answered]
