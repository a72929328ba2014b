"""Staged publish on the wire: requests of clients, then requests between nodes, then answers.

A request between nodes is a step of a client's request: each concerns one partition, or the
partitions led by one node. The rules for every struct of ``wire`` apply.
"""

from __future__ import annotations

from .request import WORK_MS, Answer, Request

# --- requests of clients ----------------------------------------------------------------------


class StageBatch(Request, frozen=True, tag="stage"):
    """A batch that is invisible until published; the payload is that of a push."""

    queue: str
    app: str
    batch: int
    part: int
    attempt: int
    #: Identifies one run of an attempt: a rerun task never adds to the stage of another run.
    token: int
    producer: int
    number: int
    count: int


class CloseStage(Request, frozen=True, tag="close_stage"):
    """The stage is completely stored and may be named as a winner."""

    queue: str
    app: str
    batch: int
    part: int
    attempt: int
    token: int
    count: int


class Publish(Request, frozen=True, tag="publish"):
    queue: str
    app: str
    batch: int
    #: (part, attempt, token); token 0: the stage closed last.
    winners: list[tuple[int, int, int]]
    wait_ms: int = WORK_MS


class Abort(Request, frozen=True, tag="abort"):
    queue: str
    app: str
    batch: int
    wait_ms: int = WORK_MS


class LastPublished(Request, frozen=True, tag="last_published"):
    queue: str
    app: str


# --- requests between nodes -------------------------------------------------------------------


class Decide(Request, frozen=True, tag="decide"):
    """To the app's home: the final winners of a batch."""

    queue: str
    app: str
    batch: int
    winners: list[tuple[int, int, int]]


class Reveal(Request, frozen=True, tag="reveal"):
    """Makes the stages with these tokens visible and drops the others, up to this batch."""

    queue: str
    app: str
    batch: int
    tokens: list[int]
    partitions: list[int]


class Decided(Request, frozen=True, tag="decided"):
    """To the home: all partitions have revealed the batch."""

    queue: str
    app: str
    batch: int


class ListStages(Request, frozen=True, tag="list_stages"):
    """Lists the tokens of a batch's stages here."""

    queue: str
    app: str
    batch: int


class GiveUpStages(Request, frozen=True, tag="give_up_stages"):
    """To the home: asks which stages (batch, token) will never be published. With `expire`, the
    home gives up the stages that have no decision yet."""

    queue: str
    app: str
    stages: list[tuple[int, int]]
    expire: bool


class DropStages(Request, frozen=True, tag="drop_stages"):
    """Drops the stages with these tokens, given up by the home."""

    queue: str
    app: str
    tokens: list[int]


# --- answers ----------------------------------------------------------------------------------


class PublishResult(Answer, frozen=True, tag="published"):
    messages: int
    already: bool


class LastBatch(Answer, frozen=True, tag="last_batch"):
    """Nil: no batch was published."""

    batch: int | None


class Decision(Answer, frozen=True, tag="decision"):
    """The decision to execute now, possibly of an earlier batch."""

    batch: int
    tokens: list[int]
    messages: int


class StageTokens(Answer, frozen=True, tag="tokens"):
    tokens: list[int]
