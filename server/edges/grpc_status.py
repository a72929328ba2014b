"""Weft's error codes as status codes of grpcio: the table of ``grpc_code`` in its own type."""

from __future__ import annotations

from typing import Final

import grpc

from .grpc_code import CODES

STATUS: Final[dict[str, grpc.StatusCode]] = {
    code: grpc.StatusCode[status.name] for code, status in CODES.items()
}
