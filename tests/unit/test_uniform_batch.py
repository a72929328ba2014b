"""Payloads of uniform bodies are counted as the decoder counts; other payloads are not counted."""

from __future__ import annotations

import random

import pytest

from weft.proto import uniform_batch, wire


@pytest.mark.parametrize("count", [16, 17, 1000, 4096])
@pytest.mark.parametrize("length", [0, 1, 128, 255, 256, 1000, 65_536])
def test_even_bodies_are_counted(count: int, length: int) -> None:
    if count * length > 1 << 23:
        count = 16
    payload = wire.encode(wire.Payload([bytes(length)] * count))
    assert uniform_batch.count(payload) == count


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x93",
        b"\x93\xdc\x00\x00\xc0\xc0",
        b"\x93\xdc\x00\x00\xc4\xc0\xc0",
        wire.encode(wire.Payload([])),
        wire.encode(wire.Payload([b"a"])),
        wire.encode(wire.Payload([b"a"] * 15)),
        wire.encode(wire.Payload([b"a"] * 20 + [b"bc"])),
        wire.encode(wire.Payload([b"a"] * 20, [{"h": "v"}] * 20)),
        wire.encode(wire.Payload([b"a"] * 20, None, ["k"] * 20)),
        wire.encode([["a" * 40] * 20, None, None]),
    ],
    ids=range(11),
)
def test_others_are_left_to_the_decoder(payload: bytes) -> None:
    assert uniform_batch.count(payload) == 0


def test_whatever_is_counted_the_decoder_reads_as_so_many() -> None:
    rng = random.Random(5)
    counted = 0
    for _ in range(20_000):
        length, many = rng.choice([0, 1, 2, 130, 196, 300]), rng.randint(16, 40)
        body = rng.choice([b"\xc4", b"\xc0", b"\x00", b"\xdc"])
        payload = bytearray(wire.encode(wire.Payload([body * length] * many)))
        for _ in range(rng.randint(0, 2)):
            payload[rng.choice([0, 1, 2, 3, 4, 5, 6, rng.randrange(len(payload)), -1])] ^= (
                1 << rng.randrange(8)
            )
        found = uniform_batch.count(bytes(payload))
        if found:
            counted += 1
            columns = wire.decode_payload(payload)
            assert len(columns.bodies) == found
            assert columns.headers is None
            assert columns.keys is None
    assert 5_000 < counted < 19_000
