"""Requests that must not be repeated like all others.

A client and a node repeat most requests freely: a batch has a name, and a receipt that is sent
again is answered "already". The client and the node repeat a request of ONCE only when the failure
of the last attempt proves that it was not executed.

`Cancel` may be repeated, because a message is removed at most once. But the refusal of one attempt
(MESSAGE_LEASED) is final only if no earlier attempt is in doubt: that one may still arrive, and
remove the message. So a connection sends one copy of a cancel (SINGLE_COPY), and a refusal after an
attempt in doubt is reported as UNAVAILABLE.
"""

from __future__ import annotations

from typing import Final

from .verb import Repeat
from .verbs import requests_where

#: A second execution has a second effect, or its answer hides the result of the first.
ONCE: Final = requests_where(lambda verb: verb.repeat is Repeat.ONCE)
SINGLE_COPY: Final = requests_where(lambda verb: verb.repeat is not Repeat.FREELY)


def refused_in_doubt(refusal: str) -> str:
    """The message of the UNAVAILABLE error, from that of the refusal."""
    return (
        f"{refusal}. An earlier attempt of this cancel may still remove the message: cancel again"
    )
