"""Multicasts to ordered and grouped queues on several partitions, between nodes.

The rules for every struct of ``wire`` apply: new fields are only added at the end.

One partition of the destinations *coordinates*: it decides, in one log entry
(``server.engine.ordered_multicast``).
"""

from __future__ import annotations

import msgspec

from .request import Answer, Request

#: (first, count) of bodies.
Ranges = list[tuple[int, int]]

# --- requests ---------------------------------------------------------------------------------


class CoordinateMulticast(Request, frozen=True, tag="coordinate_multicast"):
    """To the coordinator's primary: a multicast with its destinations; answered `Multicasted`."""

    #: The coordinator.
    partition: int
    #: The names and ids of the destinations, the bodies that each one gets, and its partition.
    names: list[str]
    queues: list[int]
    ranges: list[Ranges]
    places: list[int]
    producer: int
    batch: int
    count: int
    conflict_key: str | None


class ProposeMulticast(Request, frozen=True, tag="propose_multicast"):
    """Stores a proposal on one partition, and answers with its timestamp."""

    partition: int
    coordinator: int
    #: The name of the attempt.
    token: int
    #: The ids of the destinations on this partition, and the bodies that each one gets.
    queues: list[int]
    ranges: list[Ranges]
    producer: int
    batch: int
    count: int
    conflict_key: str | None
    #: To the coordinator: the other partitions.
    participants: list[int] = msgspec.field(default_factory=list)


class DecideMulticast(Request, frozen=True, tag="decide_multicast"):
    """To the coordinator: all partitions have proposed, and `stamp` is the largest timestamp."""

    partition: int
    token: int
    stamp: int


class AbandonMulticast(Request, frozen=True, tag="abandon_multicast"):
    """To the coordinator: the attempt is over, and was not decided."""

    partition: int
    token: int
    participants: list[int]


class JudgeMulticasts(Request, frozen=True, tag="judge_multicasts"):
    """To the coordinator: which of these attempts will never be decided?"""

    partition: int
    #: The partition that has the proposals.
    destination: int
    tokens: list[int]


class DropMulticasts(Request, frozen=True, tag="drop_multicasts"):
    """Removes the proposals of attempts that will never be decided."""

    partition: int
    tokens: list[int]


class KnowsOrderedMulticast(Request, frozen=True, tag="knows_ordered_multicast"):
    """A member that knows multicasts to several ordered queues answers `Done`."""


class EnableOrderedMulticast(Request, frozen=True, tag="enable_ordered_multicast"):
    """To the catalogue's primary: every member knows multicasts to several ordered queues."""


# --- answers ----------------------------------------------------------------------------------


class Proposed(Answer, frozen=True, tag="proposed"):
    #: The partition's timestamp.
    stamp: int
    #: A destination has the batch already, and nothing was stored.
    known: bool = False


class JudgedMulticasts(Answer, frozen=True, tag="judged_multicasts"):
    #: The attempts that will never be decided.
    gone: list[int]
