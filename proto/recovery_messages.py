"""Verbs of ``weft cluster recover``: report the data lost with some disks, and continue without.

The rules for every struct of ``wire`` apply: new fields are only added at the end.
"""

from __future__ import annotations

import msgspec

from .request import Answer, Request


class Recover(Request, frozen=True, tag="recover"):
    """Disks are lost for good: report the lost data, or, with `execute`, continue without it."""

    #: The nodes with lost disks; if empty, the answer reports all nodes that do not respond.
    lost: list[str] = msgspec.field(default_factory=list)
    execute: bool = False
    #: The lost nodes are a majority of the voters: the receiving node decides alone.
    force_voters: bool = False
    #: The partitions reported to the operator before: must equal the lost partitions.
    partitions: list[int] = msgspec.field(default_factory=list)


class Copies(Request, frozen=True, tag="copies"):
    """Between nodes: the copies that a node holds of these partitions."""

    partitions: list[int]


class CopyInfo(msgspec.Struct, array_like=True, frozen=True):
    """A complete copy of a partition, possibly behind."""

    partition: int
    #: The epoch of the copy's last entry, and the entry's number.
    epoch: int
    end: int
    #: Messages in the copy, by queue name; "" for queues unknown to the node.
    messages: dict[str, int]
    #: There are more messages than counted.
    more: bool


class CopiesInfo(Answer, frozen=True, tag="copies_info"):
    copies: list[CopyInfo]


class LostPlace(msgspec.Struct, array_like=True, frozen=True):
    """A partition that lost all members."""

    partition: int
    sync: list[str]
    #: The node with the copy that the partition is founded from; "" if the partition begins empty.
    base: str
    #: The contents of the copy, as in `CopyInfo`.
    messages: dict[str, int]
    more: bool


class Recovery(Answer, frozen=True, tag="recovery"):
    lost: list[str]
    unreachable: list[str]
    places: list[LostPlace]
    #: The remaining voters are a majority.
    quorum: bool
    #: The number of the partition with the queues' own records.
    catalogue: int
    done: bool
