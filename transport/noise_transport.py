"""Noise transport: ZeroMQ's protocol inside encrypted records. Pure.

After the greeting, which names the mechanism, all bytes are records: two bytes of length, then a
Noise message (`noise`). The first record of either end is the handshake. The plaintexts of the
later records, concatenated, are the byte stream that `zmtp` has on an unencrypted connection.
Frames and records are independent: small pieces share a record, a long piece takes several records.

`noise` is imported with the first encrypted connection: most clients have none, and the import
takes as long as the import of the rest of the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.errors import ProtocolError
from weft.limits import KIB

from . import zmtp

if TYPE_CHECKING:
    from .noise import Cipher, Handshake

#: The mechanism's name, and the greetings of the client and of the node.
MECHANISM: Final = b"NOISE_NK"
CALLS: Final = zmtp.greeting(MECHANISM)
CALLED: Final = zmtp.greeting(MECHANISM, as_server=True)
#: Sizes in Noise with these algorithms: a public or secret key, and the authentication tag.
KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
LENGTH_BYTES: Final = 2
#: The record of a handshake: a key, and a tag over an empty plaintext.
HANDSHAKE_BYTES: Final = LENGTH_BYTES + KEY_BYTES + TAG_BYTES
_AROUND_BYTES: Final = LENGTH_BYTES + TAG_BYTES
#: Plaintext bytes in one record: a Noise message has at most 65,535 bytes.
PLAIN_BYTES_MAX: Final = 65_535 - TAG_BYTES
#: The size of the scratch buffer in which records are sealed and opened. The buffer stays in the
#: processor's cache, and saves allocating and clearing memory for each frame. All connections of
#: one thread share the buffer, which is empty between two calls and only ever holds ciphertext.
#: The size is enough for a batch or two.
DESK_BYTES: Final = 256 * KIB
#: A piece of the output.
Piece = bytes | memoryview
_PROLOGUE: Final = b"weft 1"
#: A piece of at least this length is not copied to share a record with its neighbours.
_LONG_BYTES: Final = 4 * 1024


def call(key: bytes, greeting: bytes) -> Handshake:
    """The client's handshake, from the node's public key and the node's greeting."""
    from . import noise

    return noise.Handshake(_PROLOGUE + CALLS + greeting, remote=key)


def called(secret: bytes, greeting: bytes) -> Handshake:
    from . import noise

    return noise.Handshake(_PROLOGUE + greeting + CALLED, own=secret)


def say(handshake: Handshake) -> bytes:
    """The handshake message to send, as a record."""
    return _record(handshake.say())


def hear(handshake: Handshake, record: bytes) -> None:
    """Processes the peer's handshake record of HANDSHAKE_BYTES. Raises ProtocolError."""
    if LENGTH_BYTES + int.from_bytes(record[:LENGTH_BYTES], "big") != HANDSHAKE_BYTES:
        raise ProtocolError("no handshake at the beginning of an encrypted connection")
    handshake.hear(record[LENGTH_BYTES:])


class Sealer:
    __slots__ = ("_cipher", "_scratch")

    def __init__(self, cipher: Cipher, scratch: memoryview) -> None:
        assert len(scratch) == DESK_BYTES
        self._cipher = cipher
        self._scratch = scratch

    def seal(self, pieces: Sequence[bytes]) -> Sequence[Piece]:
        """Encrypts the pieces and returns the output in order. The caller must write all output. A
        memoryview points into the scratch buffer, so the caller must copy any part not written at
        once (`kept`)."""
        cipher = self._cipher
        if len(pieces) == 1 and len(pieces[0]) <= PLAIN_BYTES_MAX:  # the common case
            message = cipher.seal(pieces[0])
            return [len(message).to_bytes(LENGTH_BYTES, "big") + message]
        parts = _parts(pieces)
        if sum(map(len, parts)) + len(parts) * _AROUND_BYTES > DESK_BYTES:
            records: list[bytes] = []
            for part in parts:
                message = cipher.seal(part)
                records += (len(message).to_bytes(LENGTH_BYTES, "big"), message)
            return records
        scratch, end = self._scratch, 0
        for part in parts:
            start, size = end + LENGTH_BYTES, len(part) + TAG_BYTES
            scratch[end], scratch[end + 1] = size >> 8, size & 0xFF
            end = start + size
            cipher.seal_into(part, scratch[start:end])
        return [scratch[:end]]


def kept(piece: Piece, sent: int = 0) -> memoryview:
    """The rest of a piece after `sent` bytes, safe to be written later."""
    rest = memoryview(piece)[sent:]
    return memoryview(bytes(rest)) if type(piece) is memoryview else rest


def _parts(pieces: Sequence[bytes]) -> list[Piece]:
    """The plaintexts of the records."""
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
    """A `zmtp.FrameReader` for encrypted connections: reads records into the scratch buffer, and
    decrypts from there."""

    __slots__ = ("_cipher", "_plain", "_scratch", "_tail", "commands", "lacks", "messages")

    def __init__(self, cipher: Cipher, plain: zmtp.FrameReader, scratch: memoryview) -> None:
        assert len(scratch) == DESK_BYTES
        self._cipher = cipher
        self._plain = plain
        self._scratch = scratch
        #: The beginning of an incomplete record.
        self._tail = b""
        #: As in `zmtp.FrameReader`.
        self.messages: list[list[Any]] = []
        self.commands: list[bytes] = []
        self.lacks = 0

    @property
    def room(self) -> memoryview:
        """The buffer for the next read. Read at once, then call `filled` with the size."""
        tail = self._tail
        if not tail:
            return self._scratch
        size = len(tail)
        self._scratch[:size] = tail
        return self._scratch[size:]

    def filled(self, size: int) -> None:
        """Processes `size` bytes read into `room`. Raises ProtocolError: close the connection."""
        scratch, plain = self._scratch, self._plain
        if self._tail:
            size += len(self._tail)
            self._tail = b""
        place = 0
        while size - place >= LENGTH_BYTES:
            start = place + LENGTH_BYTES
            end = start + (scratch[place] << 8 | scratch[place + 1])
            if end > size:
                break
            if plain.room is None:
                plain.feed(self._cipher.open(scratch[start:end]))
            else:
                self._fill(plain, plain.room, scratch[start:end])
            place = end
        if place < size:
            self._tail = bytes(scratch[place:size])
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
        """Processes bytes that were not read into `room`."""
        left = memoryview(data)
        while left:
            room = self.room
            size = min(len(left), len(room))
            room[:size] = left[:size]
            left = left[size:]
            self.filled(size)

    def _fill(self, plain: zmtp.FrameReader, room: memoryview, sealed: memoryview) -> None:
        """Decrypts a record into the incomplete long frame; `plain` gets bytes after the frame."""
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
        """Computes `lacks`, the bytes to read in one go: never more than are sure to come."""
        plain, has = self._plain.lacks, len(self._tail)
        if has < LENGTH_BYTES:
            self.lacks = _sealed_bytes(plain) - has if plain else 0
            return
        whole = LENGTH_BYTES + int.from_bytes(self._tail[:LENGTH_BYTES], "big")
        beyond = plain - (whole - _AROUND_BYTES)
        self.lacks = whole - has + (_sealed_bytes(beyond) if beyond > 0 else 0)


def scratch() -> memoryview:
    """A scratch buffer for all connections of one thread."""
    return memoryview(bytearray(DESK_BYTES))


def _record(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def _sealed_bytes(plain: int) -> int:
    """The least number of bytes on the wire for `plain` bytes of plaintext."""
    return plain + -(-plain // PLAIN_BYTES_MAX) * _AROUND_BYTES
