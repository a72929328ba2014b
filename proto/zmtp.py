"""ZeroMQ's protocol (ZMTP 3.0), as far as one end of a connection needs it. Pure.

ZeroMQ's own library moves every message through a thread of its own: on the way to a node and back
that is four threads that must be woken besides the two that do the work, and on an idle machine
waking them takes longer than everything else. A DEALER's or ROUTER's side of an open connection is
little more than lengths before frames, so who waits for an answer reads and writes the connection
itself. Where it is encrypted, all of this stands in records of `sealed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from weft.errors import ProtocolError

NULL: Final = b"NULL"


def greeting(mechanism: bytes, *, as_server: bool = False) -> bytes:
    """The first bytes of every connection: the signature, the version, the mechanism; who is called
    in a mechanism with two roles says so in the byte after it, and 31 bytes are left for later."""
    return (
        b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + mechanism.ljust(20, b"\0")
        + bytes((as_server,)) + bytes(31)
    )  # fmt: skip


GREETING: Final = greeting(NULL)
GREETING_BYTES: Final = len(GREETING)
#: Read at first. What a long frame lacks is then read in one go, and the kernel is told to gather
#: so much of it before it wakes the reader.
PIECE_BYTES: Final = 16 * 1024
GATHER_BYTES_MAX: Final = 256 * 1024
#: A frame of this length is read into its place, if there is one for it.
LONG_BYTES: Final = 64 * 1024
#: Buffers that one call of the kernel takes (IOV_MAX on Linux).
BUFFERS_MAX: Final = 1_024
#: Frames of one message: no request or answer of ours has more, a pop's ranges excepted.
FRAMES_MAX: Final = 65_536

#: Of a message that was read: a long one may be a view of memory that is used again after it.
Frame = bytes | bytearray | memoryview
Room = bytearray | memoryview

_MORE: Final = 1
_LONG: Final = 2
_COMMAND: Final = 4
_SHORT_MAX: Final = 255
_READY: Final = b"\x05READY"
_PING: Final = b"\x04PING"
_PONG: Final = b"\x04PONG"
#: A ping's name and its time to live; what follows is to be sent back, up to 16 bytes of it.
_PING_CONTEXT: Final = len(_PING) + 2
_CONTEXT_MAX: Final = 16


def ready(kind: bytes) -> bytes:
    """The second thing that either end says: which kind of socket it is."""
    body = _READY + _property(b"Socket-Type", kind) + _property(b"Identity", b"")
    return bytes((_COMMAND, len(body))) + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


def kind_of(command: bytes) -> bytes:
    """The kind of socket that the other end's READY names; anything else is a ProtocolError."""
    if not command.startswith(_READY):
        raise ProtocolError(f"{command[:20]!r} in place of READY")
    place = len(_READY)
    while place < len(command):
        start = place + 1 + command[place]
        end = start + 4 + int.from_bytes(command[start : start + 4], "big")
        if end > len(command):
            break
        if command[place + 1 : start].lower() == b"socket-type":
            return command[start + 4 : end]
        place = end
    raise ProtocolError("READY without a Socket-Type")


def pong(command: bytes) -> bytes | None:
    """The answer to a command, if it is a ping."""
    if not command.startswith(_PING):
        return None
    body = _PONG + command[_PING_CONTEXT:][:_CONTEXT_MAX]
    return bytes((_COMMAND, len(body))) + body


def message(frames: Sequence[bytes]) -> list[bytes]:
    """What is to be written for one message, in order; the frames are not copied."""
    last = len(frames) - 1
    if not last and (size := len(frames[0])) <= _SHORT_MAX:  # most of what is said
        return [bytes((0, size)) + frames[0]]
    pieces: list[bytes] = []
    for place, frame in enumerate(frames):
        size, more = len(frame), _MORE if place < last else 0
        if size <= _SHORT_MAX:
            pieces.append(bytes((more, size)) + frame)
        else:
            pieces.append(bytes((more | _LONG,)) + size.to_bytes(8, "big"))
            pieces.append(frame)
    return pieces


def check_greeting(theirs: bytes, mechanism: bytes = NULL) -> None:
    """Raises ProtocolError unless the other end speaks a version that we do, and that mechanism."""
    if theirs[:1] != b"\xff" or theirs[9:10] != b"\x7f":
        raise ProtocolError("the other end does not speak ZeroMQ's protocol")
    if theirs[10] < 3:
        raise ProtocolError(f"the other end speaks ZMTP {theirs[10]}, not 3")
    wants = theirs[12:32].rstrip(b"\0")
    if wants != mechanism:
        raise ProtocolError(
            f"the other end wants the mechanism {wants.decode('ascii', 'replace')}, not "
            f"{mechanism.decode()}: one end is encrypted and the other is not, or otherwise"
        )


class Reader:
    """What comes over one connection, after the greeting, in pieces of any length."""

    __slots__ = (
        "_bytes", "_flags", "_frames", "_head", "_max", "_parts", "_room_for", "_whole",
        "commands", "lacks", "messages", "room",
    )  # fmt: skip

    def __init__(
        self, message_bytes_max: int, room_for: Callable[[int], Room | None] | None = None
    ) -> None:
        """`room_for` gives the place for a long frame; else it is put together from its pieces."""
        self._max = message_bytes_max
        self._room_for = room_for
        #: Whole messages, and the commands between them, for the owner to take. Without `room_for`
        #: all frames are bytes, else they are each a Frame.
        self.messages: list[list[Any]] = []
        self.commands: list[bytes] = []
        #: What the frame under way still lacks, if that is known: worth reading in one go.
        self.lacks = 0
        #: Where that is to be read to, if there is a place; `filled` is told how much it was.
        self.room: memoryview | None = None
        self._whole: Frame = b""
        self._flags = 0
        self._parts: list[bytes] = []
        self._head = b""
        self._frames: list[Frame] = []
        self._bytes = 0

    def filled(self, size: int) -> None:
        """So much was read into `room`."""
        assert self.room is not None
        self.lacks -= size
        if self.lacks:
            self.room = self.room[size:]
        else:
            frame, self._whole, self.room = self._whole, b"", None
            self._take(self._flags, frame)

    def feed(self, data: bytes) -> None:
        """Takes what was read. Raises ProtocolError; the connection is of no use after that."""
        place = 0
        if self.lacks:
            if len(data) < self.lacks:
                self._parts.append(data)
                self.lacks -= len(data)
                return
            place = self.lacks
            self._parts.append(data[:place])  # all of it is not copied
            frame = b"".join(self._parts)
            self._parts = []
            self.lacks = 0
            self._take(self._flags, frame)
            if place == len(data):
                return
        elif self._head:
            data = self._head + data
            self._head = b""
        size = len(data)
        frames = self._frames
        # Written out, and not in functions: every request and every answer comes through here.
        while size - place >= 2:
            flags = data[place]
            if flags & _LONG:
                start = place + 9
                if start > size:
                    break
                length = int.from_bytes(data[place + 1 : start], "big")
            else:
                start = place + 2
                length = data[place + 1]
            total = self._bytes + length
            if flags > (_COMMAND | _LONG) or flags == (_COMMAND | _MORE) or total > self._max:
                raise self._refusal(flags)
            end = start + length
            if end > size:
                self._flags = flags
                self._bytes = total
                self.lacks = end - size
                if self._room_for is not None and length >= LONG_BYTES:
                    whole = self._room_for(length)
                    if whole is not None:
                        self._whole = whole
                        room = memoryview(whole)
                        room[: size - start] = data[start:]
                        self.room = room[size - start :]
                        return
                self._parts = [data[start:]]
                return
            place = end
            if flags & _COMMAND:
                self.commands.append(data[start:end])
                continue
            frames.append(data[start:end])
            if flags & _MORE:
                self._bytes = total
                if len(frames) >= FRAMES_MAX:
                    raise self._refusal(flags)
            else:
                self.messages.append(frames)
                self._frames = frames = []
                self._bytes = 0
        self._head = data[place:]

    def _refusal(self, flags: int) -> ProtocolError:
        if len(self._frames) >= FRAMES_MAX:
            return ProtocolError(f"a message of more than {FRAMES_MAX} frames")
        if flags > (_COMMAND | _LONG) or flags == (_COMMAND | _MORE):
            return ProtocolError(f"a frame with the flags {flags:#x}")
        return ProtocolError(f"a message of more than {self._max} bytes")

    def _take(self, flags: int, frame: Frame) -> None:
        """A frame that came in pieces."""
        if flags & _COMMAND:
            self._bytes -= len(frame)
            self.commands.append(bytes(frame))
            return
        self._frames.append(frame)
        if not flags & _MORE:
            self.messages.append(self._frames)
            self._frames = []
            self._bytes = 0
