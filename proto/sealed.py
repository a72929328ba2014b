"""What is sealed: ZeroMQ's protocol inside of records that only the two ends can read.

After the greeting, which names the mechanism, everything is a record: two bytes of length, then a
message of Noise (`noise`). The first record of either end is its handshake; what is in the later
ones, put together, is what `zmtp` would have on an open connection. Frames and records have nothing
to do with each other: small pieces share a record, long ones take several. Pure.

`noise` is loaded with the first connection that needs it: most clients have none, and it takes as
long as all the rest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.errors import ProtocolError
from weft.limits import KIB

from . import zmtp

if TYPE_CHECKING:
    from .noise import Cipher, Handshake

#: Of the greetings of who calls, and of who is called.
MECHANISM: Final = b"NOISE_NK"
CALLS: Final = zmtp.greeting(MECHANISM)
CALLED: Final = zmtp.greeting(MECHANISM, as_server=True)
#: Of Noise with these algorithms: a public or secret key; what proves that a message is whole.
KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
LENGTH_BYTES: Final = 2
#: The record of a handshake: a key, and a tag over nothing.
HANDSHAKE_BYTES: Final = LENGTH_BYTES + KEY_BYTES + TAG_BYTES
_AROUND_BYTES: Final = LENGTH_BYTES + TAG_BYTES
#: What one record holds: a message of Noise has at most 65,535 bytes.
PLAIN_BYTES_MAX: Final = 65_535 - TAG_BYTES
#: Records are sealed and opened on a *desk*: memory that stays in the processor's cache, and that
#: no frame has to be given, and cleared, anew. All connections of one thread share it, for it is
#: empty between two calls; only what is sealed ever lies there. A batch or two.
DESK_BYTES: Final = 256 * KIB
#: Of what is written.
Piece = bytes | memoryview
_PROLOGUE: Final = b"weft 1"
#: A piece of this length is not copied to share a record with its neighbours.
_LONG_BYTES: Final = 4 * 1024


def call(key: bytes, greeting: bytes) -> Handshake:
    """Of the one who calls: with the other's public key, and as it has greeted."""
    from . import noise

    return noise.Handshake(_PROLOGUE + CALLS + greeting, remote=key)


def called(secret: bytes, greeting: bytes) -> Handshake:
    from . import noise

    return noise.Handshake(_PROLOGUE + greeting + CALLED, own=secret)


def say(handshake: Handshake) -> bytes:
    """Its message, as a record."""
    return _record(handshake.say())


def hear(handshake: Handshake, record: bytes) -> None:
    """The other end's, as it came: HANDSHAKE_BYTES. Raises ProtocolError."""
    if LENGTH_BYTES + int.from_bytes(record[:LENGTH_BYTES], "big") != HANDSHAKE_BYTES:
        raise ProtocolError("no handshake at the beginning of an encrypted connection")
    handshake.hear(record[LENGTH_BYTES:])


class Sealer:
    __slots__ = ("_cipher", "_desk")

    def __init__(self, cipher: Cipher, desk: memoryview) -> None:
        assert len(desk) == DESK_BYTES
        self._cipher = cipher
        self._desk = desk

    def seal(self, pieces: Sequence[bytes]) -> Sequence[Piece]:
        """What is to be written for these pieces, in order. All of it must be written; a memoryview
        shows the desk, so what of it cannot be written at once has to be copied (`kept`)."""
        cipher = self._cipher
        if len(pieces) == 1 and len(pieces[0]) <= PLAIN_BYTES_MAX:  # most of what is said
            message = cipher.seal(pieces[0])
            return [len(message).to_bytes(LENGTH_BYTES, "big") + message]
        parts = _parts(pieces)
        if sum(map(len, parts)) + len(parts) * _AROUND_BYTES > DESK_BYTES:
            records: list[bytes] = []
            for part in parts:
                message = cipher.seal(part)
                records += (len(message).to_bytes(LENGTH_BYTES, "big"), message)
            return records
        desk, end = self._desk, 0
        for part in parts:
            start, size = end + LENGTH_BYTES, len(part) + TAG_BYTES
            desk[end], desk[end + 1] = size >> 8, size & 0xFF
            end = start + size
            cipher.seal_into(part, desk[start:end])
        return [desk[:end]]


def kept(piece: Piece, sent: int = 0) -> memoryview:
    """What is left of a piece after so many bytes, to be written later."""
    rest = memoryview(piece)[sent:]
    return memoryview(bytes(rest)) if type(piece) is memoryview else rest


def _parts(pieces: Sequence[bytes]) -> list[Piece]:
    """What is in each record."""
    parts: list[Piece] = []
    small: list[bytes] = []
    size = 0
    for piece in pieces:
        length = len(piece)
        if small and (length >= _LONG_BYTES or size + length > PLAIN_BYTES_MAX):
            parts.append(b"".join(small))
            small, size = [], 0
        if length < _LONG_BYTES:
            small.append(piece)
            size += length
        elif length <= PLAIN_BYTES_MAX:
            parts.append(piece)
        else:
            view = memoryview(piece)
            for place in range(0, length, PLAIN_BYTES_MAX):
                parts.append(view[place : place + PLAIN_BYTES_MAX])
    if small:
        parts.append(b"".join(small))
    return parts


class SealedReader:
    """A `zmtp.Reader` of what was sealed: records are read to the desk, and opened from there."""

    __slots__ = ("_cipher", "_desk", "_plain", "_tail", "commands", "lacks", "messages")

    def __init__(self, cipher: Cipher, plain: zmtp.Reader, desk: memoryview) -> None:
        assert len(desk) == DESK_BYTES
        self._cipher = cipher
        self._plain = plain
        self._desk = desk
        #: A record under way.
        self._tail = b""
        #: As of the other kind of reader.
        self.messages: list[list[Any]] = []
        self.commands: list[bytes] = []
        self.lacks = 0

    @property
    def room(self) -> memoryview:
        """Where to read to, at once; `filled` is told how much it was."""
        tail = self._tail
        if not tail:
            return self._desk
        size = len(tail)
        self._desk[:size] = tail
        return self._desk[size:]

    def filled(self, size: int) -> None:
        """So much was read. Raises ProtocolError; the connection is of no use after that."""
        desk, plain = self._desk, self._plain
        if self._tail:
            size += len(self._tail)
            self._tail = b""
        place = 0
        while size - place >= LENGTH_BYTES:
            start = place + LENGTH_BYTES
            end = start + (desk[place] << 8 | desk[place + 1])
            if end > size:
                break
            if plain.room is None:
                plain.feed(self._cipher.open(desk[start:end]))
            else:
                self._fill(plain, plain.room, desk[start:end])
            place = end
        if place < size:
            self._tail = bytes(desk[place:size])
            self._look_ahead()
        else:
            self.lacks = _sealed_bytes(plain.lacks) if plain.lacks else 0
        if plain.messages:
            self.messages += plain.messages
            plain.messages = []
        if plain.commands:
            self.commands += plain.commands
            plain.commands = []

    def feed(self, data: bytes) -> None:
        """What was read elsewhere."""
        left = memoryview(data)
        while left:
            room = self.room
            size = min(len(left), len(room))
            room[:size] = left[:size]
            left = left[size:]
            self.filled(size)

    def _fill(self, plain: zmtp.Reader, room: memoryview, sealed: memoryview) -> None:
        """Opens a record into the place of the long frame under way, and behind it."""
        size = len(sealed) - TAG_BYTES
        over = size - len(room)
        if size > 0 >= over:
            self._cipher.open_into(sealed, room[:size])
            plain.filled(size)
            return
        opened = self._cipher.open(sealed)
        if over > 0:
            room[:] = opened[:-over]
            plain.filled(len(room))
            plain.feed(opened[-over:])

    def _look_ahead(self) -> None:
        """What is worth reading in one go: never more than is sure to come."""
        plain, has = self._plain.lacks, len(self._tail)
        if has < LENGTH_BYTES:
            self.lacks = _sealed_bytes(plain) - has if plain else 0
            return
        whole = LENGTH_BYTES + int.from_bytes(self._tail[:LENGTH_BYTES], "big")
        beyond = plain - (whole - _AROUND_BYTES)
        self.lacks = whole - has + (_sealed_bytes(beyond) if beyond > 0 else 0)


def desk() -> memoryview:
    """For the connections of one thread."""
    return memoryview(bytearray(DESK_BYTES))


def _record(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def _sealed_bytes(plain: int) -> int:
    """The least that so many bytes can be when they are sealed."""
    return plain + -(-plain // PLAIN_BYTES_MAX) * _AROUND_BYTES
