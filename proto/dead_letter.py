"""The reason text of a dead letter: written by nodes and read by clients.

Nodes store and send the reason as text, ``5 deliveries, the last one nacked: no such customer``.
The text includes the number of deliveries before the move, because the count restarts in the dead
letter queue.
"""

from __future__ import annotations

import re

_REASON = re.compile(r"(\d+) deliveries, the last one ")


def reason(deliveries: int, last: str) -> str:
    """The reason text; `last` says how the last delivery ended."""
    return f"{deliveries} deliveries, the last one {last}"


def deliveries_of(text: str) -> int:
    """The deliveries before the move; 0 if the text is not a reason."""
    found = _REASON.match(text)
    return int(found[1]) if found else 0
