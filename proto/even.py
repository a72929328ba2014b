"""A batch of bodies of one length, told from any other without a look at its messages.

Nearly all that a node does with a payload is to pass it on, but it must be sure that it is one.
Taking it apart for that costs an object for each message. When all bodies have one length, as
records of one kind often have, their msgpack marks stand at one distance from each other, and a few
slices with a step show all of them.
"""

from __future__ import annotations

from typing import Final

#: ``[bodies, nil, nil]``, with up to 65,535 bodies.
_START: Final = b"\x93\xdc"
_END: Final = b"\xc0\xc0"
#: The bytes of a mark, with the length in it, by its first byte: bin 8, bin 16, bin 32.
_MARKS: Final = {0xC4: 2, 0xC5: 3, 0xC6: 5}


def count(payload: bytes) -> int:
    """How many bodies a payload has, if it is one (`wire.Payload`) with bodies of one length and
    nothing else, written as msgspec writes it; 0 if it is not, or has fewer than 16."""
    if payload[:2] != _START or payload[-2:] != _END or len(payload) < 7:
        return 0
    found = int.from_bytes(payload[2:4], "big")
    mark = _MARKS.get(payload[4], 0)
    step = mark + int.from_bytes(payload[5 : 4 + mark], "big")
    if not mark or 4 + found * step + 2 != len(payload):
        return 0
    for place in range(4, 4 + mark):
        if payload[place:-2:step] != payload[place : place + 1] * found:
            return 0
    return found
