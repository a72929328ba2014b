"""HPACK: the examples of RFC 7541, agreement with an independent implementation, and bounds."""

from __future__ import annotations

import hpack as reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import ProtocolError
from weft.transport import huffman
from weft.transport.hpack import (
    FIELDS_MAX,
    LIST_BYTES_MAX,
    HpackDecoder,
    HpackEncoder,
)
from weft.transport.hpack_table import TABLE_BYTES_MAX, HeaderField

NAMES = st.one_of(
    st.sampled_from([b":path", b":status", b"content-type", b"x-request-id", b"grpc-timeout"]),
    st.binary(min_size=1, max_size=20),
)
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=40)), max_size=12).map(tuple)


def unhexed(text: str) -> bytes:
    return bytes.fromhex(text)


def decoded_by_reference(decoder: reference.Decoder, block: bytes) -> tuple[HeaderField, ...]:
    return tuple((bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True))


#: Appendix C.3 and C.4: three requests on one connection, plain and with Huffman codes.
REQUESTS: list[tuple[HeaderField, ...]] = [
    ((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"),
     (b":authority", b"www.example.com")),
    ((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"),
     (b":authority", b"www.example.com"), (b"cache-control", b"no-cache")),
    ((b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/index.html"),
     (b":authority", b"www.example.com"), (b"custom-key", b"custom-value")),
]  # fmt: skip
PLAIN = [
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
]
CODED = [
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
]


@pytest.mark.parametrize("blocks", [PLAIN, CODED], ids=["plain", "huffman"])
def test_the_requests_of_appendix_c(blocks: list[str]) -> None:
    decoder = HpackDecoder()
    for block, fields in zip(blocks, REQUESTS, strict=True):
        assert decoder.decode(unhexed(block)).fields == fields


def test_the_responses_of_appendix_c_5_evict() -> None:
    """C.5 uses a table of 256 bytes; a size update sets the limit here."""
    decoder = HpackDecoder()
    decoder.decode(unhexed("3fe101"))
    first = decoder.decode(
        unhexed(
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a32312047"
            "4d546e1768747470733a2f2f7777772e6578616d706c652e636f6d"
        )
    )
    assert first.fields[0] == (b":status", b"302")
    second = decoder.decode(unhexed("4803333037c1c0bf"))
    assert second.fields == ((b":status", b"307"), *first.fields[1:])


def test_huffman_lengths_give_the_published_codes() -> None:
    constants = pytest.importorskip("hpack.huffman_constants")
    expected = zip(constants.REQUEST_CODES, constants.REQUEST_CODES_LENGTH, strict=True)
    assert huffman.codes() == list(expected)


@given(st.binary(max_size=64))
def test_huffman_agrees_with_the_reference(text: bytes) -> None:
    block = reference.Encoder().encode([(b"x", text)], huffman=True)
    assert HpackDecoder().decode(bytes(block)).fields == ((b"x", text),)


@pytest.mark.parametrize("coded", ["ff", "ffffffff", "00", "3fffffffff"])
def test_wrong_huffman_padding_is_refused(coded: str) -> None:
    with pytest.raises(ProtocolError):
        huffman.decode(unhexed(coded))


@settings(max_examples=300)
@given(st.lists(FIELDS, max_size=6), st.booleans())
def test_the_decoder_agrees_with_the_reference(
    blocks: list[tuple[HeaderField, ...]], coded: bool
) -> None:
    encoder, decoder = reference.Encoder(), HpackDecoder()
    for fields in [*blocks, *blocks]:
        block = bytes(encoder.encode(list(fields), huffman=coded))
        assert decoder.decode(block).fields == fields


@settings(max_examples=300)
@given(
    st.lists(st.one_of(FIELDS, st.integers(0, 2 * TABLE_BYTES_MAX)), max_size=8),
    FIELDS,
    st.sets(NAMES),
)
def test_the_encoder_agrees_with_the_reference(
    steps: list[tuple[HeaderField, ...] | int],
    repeated: tuple[HeaderField, ...],
    names: set[bytes],
) -> None:
    encoder, decoder = HpackEncoder(repeated, names), reference.Decoder()
    limit = TABLE_BYTES_MAX
    for step in [*steps, repeated, *steps, repeated]:
        if isinstance(step, int):
            limit = min(step, TABLE_BYTES_MAX)
            encoder.limit(step)
            decoder.max_allowed_table_size = max(limit, decoder.header_table_size)
            continue
        assert decoded_by_reference(decoder, encoder.encode(step)) == step
        assert decoder.header_table_size <= limit


def test_a_limit_that_shrank_and_grew_is_told_as_both() -> None:
    """Otherwise the decoder would keep entries that the encoder has dropped."""
    encoder, decoder = HpackEncoder([(b"a", b"b")]), reference.Decoder()
    decoder.decode(encoder.encode(((b"a", b"b"),)))
    encoder.limit(0)
    encoder.limit(TABLE_BYTES_MAX)
    block = encoder.encode(((b"a", b"b"),))
    assert block.startswith(unhexed("203fe11f"))
    assert decoded_by_reference(decoder, block) == ((b"a", b"b"),)


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_decoded_like_the_reference(block: bytes) -> None:
    try:
        expected: tuple[HeaderField, ...] | None = decoded_by_reference(reference.Decoder(), block)
    except reference.HPACKError:
        expected = None
    try:
        fields: tuple[HeaderField, ...] | None = HpackDecoder().decode(block).fields
    except ProtocolError:
        fields = None
    assert fields == expected or fields is None  # the bounds are tighter


def test_a_known_block_is_not_decoded_again_until_the_table_changes() -> None:
    decoder = HpackDecoder()
    decoder.decode(unhexed("4001610162"))  # inserts a: b
    first = decoder.decode(b"\xbe")
    assert decoder.decode(b"\xbe") is first
    decoder.decode(unhexed("4001630164"))  # inserts c: d
    assert decoder.decode(b"\xbe").fields == ((b"c", b"d"),)
    assert decoder.decode(b"\xbf").fields == ((b"a", b"b"),)


def test_indexes_of_one_byte_follow_the_table_through_many_insertions() -> None:
    """As from a client that inserts the deadline of each call: all other indexes move each time."""
    decoder = HpackDecoder(frozenset({b"grpc-timeout"}))
    encoder, expected = reference.Encoder(), reference.Decoder()
    for number in range(400):
        path = b"/weft.v1.Queue/" + (b"Push", b"Pop", b"Ack")[number % 3]
        fields = [
            (b":method", b"POST"), (b":path", path), (b":authority", b"a"), (b"te", b"trailers"),
            (b"grpc-timeout", b"%du" % (50_000_000 - number)), (b"authorization", b"Bearer b"),
        ]  # fmt: skip
        block = bytes(encoder.encode(fields))
        found = decoder.decode(block)
        assert found.varying == (fields[4],)
        whole = tuple(found.varying[0] if name == b"grpc-timeout" else (name, value)
                      for name, value in found.fields)  # fmt: skip
        assert whole == decoded_by_reference(expected, block)


def test_an_index_of_a_field_that_was_evicted_is_refused() -> None:
    """The decoder has decoded the same field before, and must not remember its meaning."""
    decoder = HpackDecoder()
    decoder.decode(unhexed("4001610162"))  # inserts a: b
    assert decoder.decode(b"\x82\xbe").fields[1] == (b"a", b"b")
    assert decoder.decode(b"\x82\xbe\x00\x01c\x01d").fields[1] == (b"a", b"b")
    decoder.decode(unhexed("20"))  # a table of size 0
    with pytest.raises(ProtocolError):
        decoder.decode(b"\x82\xbe\x00\x01c\x01d")


def test_varying_fields_keep_their_place_without_their_value() -> None:
    decoder = HpackDecoder(frozenset({b"x"}))
    encoder = reference.Encoder()
    decoded = decoder.decode(bytes(encoder.encode([(b"a", b"1"), (b"x", b"2"), (b"b", b"3")])))
    assert decoded.fields == ((b"a", b"1"), (b"x", b""), (b"b", b"3"))
    assert decoded.varying == ((b"x", b"2"),)


def test_a_bomb_of_indexes_is_refused() -> None:
    """A large table entry, named again and again: a few bytes would become megabytes."""
    decoder = HpackDecoder()
    value = b"v" * 4000
    decoder.decode(bytes(reference.Encoder().encode([(b"x", value)], huffman=False)))
    with pytest.raises(ProtocolError, match=str(LIST_BYTES_MAX)):
        decoder.decode(b"\xbe" * 16_000)


def test_many_small_fields_are_refused() -> None:
    with pytest.raises(ProtocolError, match=str(FIELDS_MAX)):
        HpackDecoder().decode(b"\x82" * (FIELDS_MAX + 1))


@pytest.mark.parametrize(
    "block",
    ["80", "be", "3fe21f", "8220", "7fffffffffff01", "40", "4005", "0a", "82ff8080808001"],
    ids=[
        "zero",
        "empty table",
        "large table",
        "late size",
        "number",
        "name",
        "cut",
        "value",
        "pad",
    ],
)
def test_invalid_blocks_are_refused(block: str) -> None:
    with pytest.raises(ProtocolError):
        HpackDecoder().decode(unhexed(block))
