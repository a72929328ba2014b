"""The frames between a reader of blocks and a block server, over TCP.

| side | sends |
|---|---|
| server | a challenge of 16 random bytes, at once |
| reader | length, proof, request; any number of times |
| server | for each name of the request, in order: status, lengths, index, part |

The proof is a digest over the key of the request's job, the challenge, the number of the request on
the connection, and the request (`job_key`). A recorded request is worth nothing on another
connection. The bytes of blocks are not encrypted: readers verify them by checksum.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

import msgspec

CHALLENGE_BYTES: Final = 16
PROOF_BYTES: Final = 32
REQUEST: Final = struct.Struct("<I")
#: Status, bytes of the index or the text, bytes of the part.
ANSWER: Final = struct.Struct("<BIQ")
#: A request: a few thousand names.
REQUEST_BYTES_MAX: Final = 1 << 20
NAMES_MAX: Final = 4_096

FOUND, MISSING, DENIED, INVALID = STATUSES = 0, 1, 2, 3
#: Operations: parts of blocks, or the end of a job.
FETCH, FORGET = "fetch", "forget"


class BlockRequest(msgspec.Struct, array_like=True, frozen=True):
    """New fields are added at the end, with defaults."""

    operation: str
    app: str
    job: str
    names: list[str] = []
    part: int = 0


def challenge_of(challenge: bytes, number: int) -> bytes:
    """The challenge of the request with this number on the connection."""
    return challenge + number.to_bytes(8, "big")


def receive(sock: socket.socket, size: int) -> bytes:
    """So many bytes. Raises EOFError at the end of the stream."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        got = sock.recv_into(view[done:])
        if not got:
            raise EOFError("the stream has ended")
        done += got
    return bytes(data)
