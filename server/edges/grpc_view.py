"""The gRPC method View. The view seldom changes: the encoded response is kept as long as the node
answers with the same object (`ViewReport`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.proto import weft_pb2 as pb
from weft.proto import wire

from . import grpc_translation as translate
from .grpc_method import Asked, parse
from .grpc_services import GrpcServices

_ASKED: Final = Asked(wire.GetView())


def ask_view(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    if message:  # fields of a later version
        parse(message, pb.ViewRequest)
    return _ASKED


def reply_view(
    services: GrpcServices, asked: Asked, answer: wire.ViewInfo, frames: Sequence[bytes]
) -> bytes:
    known = services.view
    if known is None or known[0] is not answer:
        known = services.view = answer, translate.view(answer).SerializeToString()
    return known[1]
