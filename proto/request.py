"""Base classes of requests and answers: arrays on the wire with the verb as first element."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, array_like=True, frozen=True):
    """Base of all requests."""


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """Base of all answers."""
