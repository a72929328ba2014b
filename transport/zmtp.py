"""ZeroMQ's protocol (ZMTP 3.0), as far as one end of a connection needs it. Pure.

ZeroMQ's own library moves every message through an I/O thread. A request to a node and its answer
wake four such threads besides the two that do the work, and on an idle machine the wake-ups take
longer than everything else. A DEALER's or ROUTER's side of an unencrypted connection is little more
than lengths before frames, so the thread that waits for an answer reads and writes the connection
itself. On an encrypted connection, ZMTP runs inside the records of `noise_transport`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from weft.errors import ProtocolError

NULL: Final = b"NULL"


def greeting(mechanism: bytes, *, as_server: bool = False) -> bytes:
    """The first bytes of every connection: signature, version, mechanism, the as-server byte (set
    by the called end in a mechanism with two roles), and 31 reserved bytes."""
    return (
        b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + mechanism.ljust(20, b"\0")
        + bytes((as_server,)) + bytes(31)
    )  # fmt: skip


GREETING: Final = greeting(NULL)
GREETING_BYTES: Final = len(GREETING)
#: The size of the first read. The rest of a long frame is then read in one go, and the kernel
#: gathers up to GATHER_BYTES_MAX of the rest before waking the reader.
PIECE_BYTES: Final = 16 * 1024
GATHER_BYTES_MAX: Final = 256 * 1024
#: A frame of at least this length is read straight into its buffer, if there is one.
LONG_BYTES: Final = 64 * 1024
#: Buffers that one system call takes (IOV_MAX on Linux).
BUFFERS_MAX: Final = 1_024
#: Frames of one message: no request or answer of Weft has more, except for a pop's ranges.
FRAMES_MAX: Final = 65_536

#: A received frame. A long frame may be a view of a buffer that is reused afterwards.
Frame = bytes | bytearray | memoryview
Room = bytearray | memoryview

_MORE: Final = 1
_LONG: Final = 2
_COMMAND: Final = 4
_SHORT_MAX: Final = 255
_READY: Final = b"\x05READY"
_PING: Final = b"\x04PING"
_PONG: Final = b"\x04PONG"
#: A ping's name and time to live precede the context, of which the pong returns up to 16 bytes.
_PING_CONTEXT: Final = len(_PING) + 2
_CONTEXT_MAX: Final = 16


def ready(kind: bytes) -> bytes:
    """The READY command, which either end sends after the greeting: names the socket type."""
    body = _READY + _property(b"Socket-Type", kind) + _property(b"Identity", b"")
    return bytes((_COMMAND, len(body))) + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


def kind_of(command: bytes) -> bytes:
    """The socket type in the peer's READY. Raises ProtocolError for any other command."""
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
    """The answer to a ping; None for any other command."""
    if not command.startswith(_PING):
        return None
    body = _PONG + command[_PING_CONTEXT:][:_CONTEXT_MAX]
    return bytes((_COMMAND, len(body))) + body


def message(frames: Sequence[bytes]) -> list[bytes]:
    """The bytes to write for one message, in order; long frames are not copied."""
    last = len(frames) - 1
    if not last and (size := len(frames[0])) <= _SHORT_MAX:  # the common case
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
    """Raises ProtocolError unless the peer speaks ZMTP 3 or later with the same mechanism."""
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


class FrameReader:
    """Decodes the bytes of one connection after the greeting, in pieces of any length."""

    __slots__ = (
        "_bytes", "_flags", "_frames", "_head", "_max", "_parts", "_room_for", "_whole",
        "commands", "lacks", "messages", "room",
    )  # fmt: skip

    def __init__(
        self, message_bytes_max: int, room_for: Callable[[int], Room | None] | None = None
    ) -> None:
        """`room_for` returns the buffer for a long frame; without one, the pieces are joined."""
        self._max = message_bytes_max
        self._room_for = room_for
        #: Complete messages, and the commands in between, for the owner to take. Without `room_for`
        #: all frames are bytes, otherwise each is a Frame.
        self.messages: list[list[Any]] = []
        self.commands: list[bytes] = []
        #: The missing bytes of the incomplete frame, if known: worth reading in one go.
        self.lacks = 0
        #: The buffer for the missing bytes, if there is one; after a read, call `filled`.
        self.room: memoryview | None = None
        self._whole: Frame = b""
        self._flags = 0
        self._parts: list[bytes] = []
        self._head = b""
        self._frames: list[Frame] = []
        self._bytes = 0

    def filled(self, size: int) -> None:
        """Processes `size` bytes read into `room`."""
        assert self.room is not None
        self.lacks -= size
        if self.lacks:
            self.room = self.room[size:]
        else:
            frame, self._whole, self.room = self._whole, b"", None
            self._take(self._flags, frame)

    def feed(self, data: bytes) -> None:
        """Processes bytes that were read. Raises ProtocolError: close the connection."""
        place = 0
        if self.lacks:
            if len(data) < self.lacks:
                self._parts.append(data)
                self.lacks -= len(data)
                return
            place = self.lacks
            self._parts.append(data[:place])  # a slice of all bytes is no copy
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
        # Inlined for speed: every request and every answer passes through here.
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
                self._begin(data[start:], length)
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

    def _begin(self, first: bytes, length: int) -> None:
        """Stores the first bytes of an incomplete frame, in the frame's own buffer if it is long.

        The call is once per incomplete frame, so `feed` does not inline this step.
        """
        if self._room_for is not None and length >= LONG_BYTES:
            whole = self._room_for(length)
            if whole is not None:
                self._whole = whole
                room = memoryview(whole)
                room[: len(first)] = first
                self.room = room[len(first) :]
                return
        self._parts = [first]

    def _refusal(self, flags: int) -> ProtocolError:
        if len(self._frames) >= FRAMES_MAX:
            return ProtocolError(f"a message of more than {FRAMES_MAX} frames")
        if flags > (_COMMAND | _LONG) or flags == (_COMMAND | _MORE):
            return ProtocolError(f"a frame with the flags {flags:#x}")
        return ProtocolError(f"a message of more than {self._max} bytes")

    def _take(self, flags: int, frame: Frame) -> None:
        """Takes a completed frame that arrived in pieces."""
        if flags & _COMMAND:
            self._bytes -= len(frame)
            self.commands.append(bytes(frame))
            return
        self._frames.append(frame)
        if not flags & _MORE:
            self.messages.append(self._frames)
            self._frames = []
            self._bytes = 0
        elif len(self._frames) >= FRAMES_MAX:
            raise self._refusal(flags)
