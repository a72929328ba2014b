"""Conversations of HTTP/2 frames for the gRPC port: mostly plausible, in any order, with damage."""

from __future__ import annotations

import socket
from typing import Final

import hpack
from hypothesis import strategies as st

from tests.process.test_frames import METHODS
from weft.transport import http2_frames as h2
from weft.transport.grpc_messages import prefix

from .target import Target

_CONNECT_S: Final = 5.0
_NUMBERS: Final = st.sampled_from([0, 1, 2, 3, 5, 7, 9, h2.NUMBER_MAX])
_FLAGS: Final = st.sampled_from([0, h2.END_STREAM, h2.END_HEADERS, 5, 13, 37, 255])
_PATHS: Final = st.sampled_from(
    [f"/weft.v1.{service}/{method}" for service, method in METHODS]
    + ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/none", "*"]
)
_TIMEOUTS: Final = st.sampled_from([None, "0n", "1m", "1S", "soon"])
_BODIES: Final = st.one_of(
    st.binary(max_size=60).map(lambda body: prefix.pack(0, len(body)) + body),
    st.binary(max_size=30).map(lambda body: prefix.pack(1, len(body)) + body),
    st.sampled_from([b"", prefix.pack(0, 0xFFFFFFFF), prefix.pack(0, 9)]),
    st.binary(max_size=40),
)


@st.composite
def _block(draw: st.DrawFn) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", draw(_PATHS)),
              ("content-type", "application/grpc"), ("te", "trailers")]  # fmt: skip
    if (timeout := draw(_TIMEOUTS)) is not None:
        fields.append(("grpc-timeout", timeout))
    if draw(st.booleans()):
        fields.append(("grpc-encoding", draw(st.sampled_from(["gzip", "identity", "br"]))))
    fields = draw(st.permutations(fields)) if draw(st.integers(0, 9)) == 0 else fields
    return bytes(hpack.Encoder().encode(fields))


_FRAMES: Final = st.one_of(
    st.builds(lambda n, f, b: h2.frame(h2.HEADERS, f, n, b), _NUMBERS, _FLAGS, _block()),
    st.builds(lambda n, f, b: h2.frame(h2.DATA, f, n, b), _NUMBERS, _FLAGS, _BODIES),
    st.builds(lambda n, c: h2.reset(n, c), _NUMBERS, st.integers(0, 15)),
    st.builds(h2.window_update, _NUMBERS, st.sampled_from([0, 1, 100, h2.NUMBER_MAX])),
    st.builds(
        lambda key, value: h2.frame(h2.SETTINGS, 0, 0, h2.setting.pack(key, value)),
        st.integers(0, 7),
        st.sampled_from([0, 1, 10, 4096, 16_384, h2.NUMBER_MAX, 0xFFFFFFFF]),
    ),
    st.builds(h2.frame, st.integers(0, 11), _FLAGS, _NUMBERS, st.binary(max_size=40)),
)


@st.composite
def http2_conversations(draw: st.DrawFn) -> list[bytes]:
    """Frames after a valid preface, each sent alone; a few bytes may be changed."""
    sent = [h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0), *draw(st.lists(_FRAMES, max_size=12))]
    if draw(st.integers(0, 4)) == 0:
        place = draw(st.integers(0, len(sent) - 1))
        damaged = bytearray(sent[place])
        damaged[draw(st.integers(0, len(damaged) - 1))] = draw(st.integers(0, 255))
        sent[place] = bytes(damaged)
    return sent


def http2(target: Target, sent: list[bytes]) -> None:
    """The node answers with frames alone, or ends the connection."""
    host, number = target.ports["grpc"].rsplit(":", 1)
    with socket.create_connection((host, int(number)), timeout=_CONNECT_S) as connection:
        try:
            for piece in sent:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            said = b""
            while piece := connection.recv(1 << 16):
                said += piece
        except TimeoutError:
            raise
        except OSError:
            return  # rightly disconnected
    while said:
        word, _, _ = h2.frame_header.unpack_from(said)
        assert word & 255 <= h2.CONTINUATION, "the node has sent a frame of no known type"
        assert word >> 8 <= h2.FRAME_BYTES_MAX
        said = said[h2.HEADER_BYTES + (word >> 8) :]
