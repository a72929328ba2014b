"""Base classes of requests and answers, and the answers that every verb may give.

A request or answer is an array on the wire with the name of the verb, its tag, as first element.
"""

from __future__ import annotations

from typing import Final

import msgspec

#: Incremented when an old peer could misread a new frame; a node refuses any other version.
WIRE_VERSION: Final = 2
#: How long a node may work on a request to all nodes before the client tries another node.
WORK_MS: Final = 5_000


class Request(msgspec.Struct, array_like=True, frozen=True):
    """Base of all requests. ``verbs`` has a row for each."""


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """Base of all answers."""


class Failure(Answer, frozen=True, tag="failure"):
    code: str
    message: str
    retriable: bool


class Done(Answer, frozen=True, tag="done"):
    """`count`: the messages that were purged, deleted, redriven or cancelled."""

    count: int = 0
