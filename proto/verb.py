"""What all requests and all answers are: arrays on the wire whose first element is the verb."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, array_like=True, frozen=True):
    """Base of all requests."""


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """Base of all answers."""
