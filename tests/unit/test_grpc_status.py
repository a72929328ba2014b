"""Every error has a gRPC status, and the statuses have the meaning that gRPC defines."""

from __future__ import annotations

import grpc

from weft.errors import BY_CODE
from weft.server.edges.grpc_status import STATUS


def test_the_table_is_complete_and_has_nothing_else() -> None:
    assert STATUS.keys() == BY_CODE.keys()


def test_unavailable_is_for_what_may_be_tried_again() -> None:
    # gRPC's retry policies repeat an UNAVAILABLE call unchanged.
    for code, status in STATUS.items():
        if status is grpc.StatusCode.UNAVAILABLE:
            assert BY_CODE[code].retriable, code


def test_no_error_is_a_success() -> None:
    assert grpc.StatusCode.OK not in STATUS.values()
