"""A node whose disk fails answers the calls under way, on both gRPC servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.served import Served, eventually, refused
from weft import errors
from weft.proto import weft_pb2 as pb


def test_calls_under_way_are_told_that_the_node_has_failed(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = own.make()
    waiting = own.queue.Pop.future(pb.PopRequest(queue=name, wait_ms=60_000))
    eventually(lambda: own.describe(name).waiting_pops == 1)
    other = own.make()

    def fail(*_: Any, **__: Any) -> None:
        raise errors.StorageError("the disk is gone")

    monkeypatch.setattr(type(own.store), "write", fail)
    push = pb.PushRequest(queue=other, messages=[pb.OutMessage(body=b"x")])
    refused(lambda: own.queue.Push(push), errors.Unavailable, "may or may not")
    refused(waiting.result, errors.Unavailable, "may or may not")
    assert isinstance(own.node.failure, errors.StorageError)
