"""The limit on the frames of one message holds however the frames arrive."""

from __future__ import annotations

import pytest

from weft.errors import ProtocolError
from weft.transport.zmtp import FRAMES_MAX, FrameReader

#: MORE, one byte, "x".
FRAME = b"\x01\x01x"


def feed(reader: FrameReader, pieces: tuple[bytes, ...]) -> None:
    for _ in range(FRAMES_MAX + 1):
        for piece in pieces:
            reader.feed(piece)


@pytest.mark.parametrize("pieces", [(FRAME,), (FRAME[:2], FRAME[2:])], ids=["whole", "split"])
def test_a_message_of_too_many_frames_is_refused(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(ProtocolError, match=f"more than {FRAMES_MAX} frames"):
        feed(FrameReader(1 << 30), pieces)
