"""gRPC's message framing: any pieces, limits before memory, gzip, timeouts, status messages."""

from __future__ import annotations

import gzip
import zlib
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.transport.grpc_messages import (
    INTERNAL,
    RESOURCE_EXHAUSTED,
    MessageFault,
    MessageReader,
    prefix,
    status_message,
    timeout_s,
)

LIMIT = 1000


def framed(message: bytes, compressed: int = 0) -> bytes:
    return prefix.pack(compressed, len(message)) + message


@given(st.lists(st.binary(max_size=50), max_size=6), st.data())
def test_messages_in_any_pieces(messages: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(map(framed, messages))
    reader = MessageReader(LIMIT, gzip=False)
    found: list[bytes] = []
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        found += reader.feed([sent[:size]])
        sent = sent[size:]
    assert found == messages
    assert reader.size == 0


def refused(reader: MessageReader, sent: bytes, status: int) -> None:
    with pytest.raises(MessageFault) as caught:
        reader.feed([sent])
    assert caught.value.status == status


def test_the_length_is_checked_before_the_message_arrives() -> None:
    refused(MessageReader(LIMIT, gzip=True), prefix.pack(0, LIMIT + 1), RESOURCE_EXHAUSTED)
    refused(MessageReader(LIMIT, gzip=True), prefix.pack(1, (1 << 32) - 1), RESOURCE_EXHAUSTED)
    assert MessageReader(LIMIT, gzip=True).feed([framed(bytes(LIMIT))]) == [bytes(LIMIT)]


def test_gzip() -> None:
    assert MessageReader(LIMIT, gzip=True).feed([framed(gzip.compress(b"text"), 1)]) == [b"text"]
    refused(MessageReader(LIMIT, gzip=False), framed(gzip.compress(b"text"), 1), INTERNAL)
    refused(MessageReader(LIMIT, gzip=True), framed(b"text", 1), INTERNAL)
    refused(MessageReader(LIMIT, gzip=True), framed(gzip.compress(b"text")[:-9], 1), INTERNAL)
    refused(MessageReader(LIMIT, gzip=True), framed(b"text", 2), INTERNAL)


def test_a_bomb_is_inflated_no_further_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(bytes(900_000))
    assert len(bomb) < LIMIT
    produced: list[int] = []
    real = zlib.decompressobj

    class Watched:
        def __init__(self, kind: int) -> None:
            self._inner = real(kind)

        def decompress(self, data: bytes, most: int) -> bytes:
            plain = self._inner.decompress(data, most)
            produced.append(len(plain))
            return plain

    monkeypatch.setattr("weft.transport.grpc_messages.zlib.decompressobj", Watched)
    refused(MessageReader(LIMIT, gzip=True), framed(bomb, 1), RESOURCE_EXHAUSTED)
    assert produced == [LIMIT + 1]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"5u", 5e-6), (b"6n", 6e-9),
        (b"99999999S", 99999999), (b"", None), (b"S", None), (b"1", None), (b"1s", None),
        (b"123456789S", None), (b"-1S", None), (b"1.5S", None),
    ],
)  # fmt: skip
def test_timeouts(value: bytes, seconds: float | None) -> None:
    found = timeout_s(value)
    assert found == (None if seconds is None else pytest.approx(seconds))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_status_message_survives_a_header(text: str) -> None:
    encoded = status_message(text)
    assert all(0x20 <= byte < 0x7F for byte in encoded)
    assert unquote(encoded.decode()) == text
