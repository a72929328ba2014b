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
    __slots__ = ("_cipher",)

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    def seal(self, pieces: Sequence[bytes]) -> list[bytes]:
        """What is to be written for these pieces, in order. All of it must be written."""
        cipher = self._cipher
        if len(pieces) == 1 and len(pieces[0]) <= PLAIN_BYTES_MAX:  # most of what is said
            return [_record(cipher.seal(pieces[0]))]
        records: list[bytes] = []
        small: list[bytes] = []
        size = 0
        for piece in pieces:
            length = len(piece)
            if small and (length >= _LONG_BYTES or size + length > PLAIN_BYTES_MAX):
                records.append(_record(cipher.seal(b"".join(small))))
                small, size = [], 0
            if length < _LONG_BYTES:
                small.append(piece)
                size += length
                continue
            view = memoryview(piece)
            for place in range(0, length, PLAIN_BYTES_MAX):
                sealed = cipher.seal(view[place : place + PLAIN_BYTES_MAX])
                records += (len(sealed).to_bytes(LENGTH_BYTES, "big"), sealed)
        if small:
            records.append(_record(cipher.seal(b"".join(small))))
        return records


class SealedReader:
    """A `zmtp.Reader` of what was sealed: it is fed with records, in pieces of any length."""

    __slots__ = ("_cipher", "_has", "_parts", "_plain", "commands", "lacks", "messages", "room")

    def __init__(self, cipher: Cipher, plain: zmtp.Reader) -> None:
        self._cipher = cipher
        self._plain = plain
        #: As of the other kind of reader.
        self.messages: list[list[Any]] = []
        self.commands: list[bytes] = []
        self.lacks = 0
        self.room: None = None  # records are opened, not read, into their place
        #: A record under way, and its length so far.
        self._parts: list[memoryview] = []
        self._has = 0

    def feed(self, data: bytes) -> None:
        """Takes what was read. Raises ProtocolError; the connection is of no use after that."""
        left = memoryview(data)
        if self._parts:
            left = self._complete(left)
        place, size = 0, len(left)
        while size - place >= LENGTH_BYTES:
            start = place + LENGTH_BYTES
            end = start + (left[place] << 8 | left[place + 1])
            if end > size:
                break
            self._open(left[start:end])
            place = end
        if place < size:
            self._parts = [left[place:]]
            self._has = size - place
        self._look_ahead()
        plain = self._plain
        if plain.messages:
            self.messages += plain.messages
            plain.messages = []
        if plain.commands:
            self.commands += plain.commands
            plain.commands = []

    def _complete(self, data: memoryview) -> memoryview:
        """Opens the record under way, if this ends it; what follows it."""
        self._parts.append(data)
        self._has += len(data)
        over = self._has - self._whole_bytes() if self._has >= LENGTH_BYTES else -1
        if over < 0:
            return data[:0]
        last = self._parts[-1]
        self._parts[-1] = last[: len(last) - over]
        record = b"".join(self._parts)
        self._parts, self._has = [], 0
        self._open(memoryview(record)[LENGTH_BYTES:])
        return data[len(data) - over :]

    def _whole_bytes(self) -> int:
        """The length of the record under way, with that of its length."""
        if len(self._parts[0]) < LENGTH_BYTES:
            self._parts = [memoryview(b"".join(self._parts))]
        return LENGTH_BYTES + int.from_bytes(self._parts[0][:LENGTH_BYTES], "big")

    def _open(self, sealed: memoryview) -> None:
        if len(sealed) < TAG_BYTES:
            raise ProtocolError("a record without a seal")
        plain = self._plain
        room = plain.room
        if room is not None and (size := len(sealed) - TAG_BYTES) <= len(room):
            self._cipher.open_into(sealed, room[:size])
            if size:
                plain.filled(size)
            return
        opened = self._cipher.open(sealed)
        if room is not None:
            over = len(room)
            room[:] = opened[:over]
            plain.filled(over)
            opened = opened[over:]
        plain.feed(opened)

    def _look_ahead(self) -> None:
        """What is worth reading in one go: never more than is sure to come."""
        plain, has = self._plain.lacks, self._has
        if has < LENGTH_BYTES:
            self.lacks = _sealed_bytes(plain) - has if plain else 0
            return
        whole = self._whole_bytes()
        beyond = plain - (whole - _AROUND_BYTES)
        self.lacks = whole - has + (_sealed_bytes(beyond) if beyond > 0 else 0)


def _record(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def _sealed_bytes(plain: int) -> int:
    """The least that so many bytes can be when they are sealed."""
    return plain + -(-plain // PLAIN_BYTES_MAX) * _AROUND_BYTES
