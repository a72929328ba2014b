"""The hash table over gRPC: names, conditions, batches and pages, on a node and a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import cluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=[1, 3])
def table(request: pytest.FixtureRequest) -> Iterator[weft_pb2_grpc.TableStub]:
    with cluster(request.param) as nodes:
        nodes.settled()
        with grpc.insecure_channel(nodes.servers[0]) as channel:
            yield weft_pb2_grpc.TableStub(channel)  # type: ignore[no-untyped-call]


def test_a_named_write_is_executed_once(table: weft_pb2_grpc.TableStub) -> None:
    request = pb.AppendKeyRequest(key="log", value=b"x", name=pb.WriteName(producer=7, number=1))
    first = table.AppendKey(request)
    assert (first.done, first.length) == (True, 1)
    assert table.AppendKey(request) == first
    assert table.AppendKey(pb.AppendKeyRequest(key="log", value=b"y")).length == 2
    with pytest.raises(grpc.RpcError, match="at least 1"):
        table.AppendKey(pb.AppendKeyRequest(key="log", name=pb.WriteName(producer=7)))


def test_conditions_and_swaps(table: weft_pb2_grpc.TableStub) -> None:
    made = table.Put(pb.PutRequest(key="k", value=b"1", if_version=0))
    assert made.done
    refused = table.Put(pb.PutRequest(key="k", value=b"2", if_version=0))
    assert (refused.done, refused.version) == (False, made.version)
    swap = table.SwapKey(pb.SwapKeyRequest(key="k", old=b"1", new=b"2"))
    assert (swap.swapped, swap.current) == (True, b"1")
    assert not table.RemoveKey(pb.RemoveKeyRequest(key="k", if_version=made.version)).done
    assert table.RemoveKey(pb.RemoveKeyRequest(key="k", if_version=swap.version)).done


def test_batches_and_pages(table: weft_pb2_grpc.TableStub) -> None:
    keys = [f"b/{number:03}" for number in range(100)]
    request = pb.InsertManyRequest(keys=keys, values=[key.encode() for key in keys])
    assert list(table.InsertMany(request).done) == [True] * 100
    found = table.LookupMany(pb.LookupManyRequest(keys=[*keys, "absent"])).entries
    assert [(entry.key, entry.value) for entry in found] == [(key, key.encode()) for key in keys]
    seen, page = list[str](), pb.ScanResponse(more=True)
    while page.more:
        page = table.Scan(pb.ScanRequest(prefix="b/", after=page.after, limit=30))
        seen += [entry.key for entry in page.entries]
    assert seen == keys
    removed = table.RemoveMany(pb.RemoveManyRequest(keys=["b/000", "absent"]))
    assert list(removed.done) == [True, False]
    with pytest.raises(grpc.RpcError) as refused:
        table.InsertMany(pb.InsertManyRequest(keys=["k"], values=[b"v"], ttl_ms=-1))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError, match="limit"):
        table.Scan(pb.ScanRequest(limit=-1))


def test_a_watch_is_a_stream(table: weft_pb2_grpc.TableStub) -> None:
    stream = table.Watch(pb.WatchRequest(prefix="w/"), timeout=100)
    begun = next(stream)
    assert begun.positions
    assert not begun.changes
    keys = [f"w/{number}" for number in range(30)]
    table.InsertMany(pb.InsertManyRequest(keys=[*keys, "x"], values=[b"v"] * 31))
    table.RemoveKey(pb.RemoveKeyRequest(key="w/0"))
    seen: dict[str, bytes | None] = {}
    positions = dict(begun.positions)
    while len(seen) < 30 or seen["w/0"] is not None:
        response = next(stream)
        assert not response.resync
        positions.update(response.positions)
        for change in response.changes:
            seen[change.key] = change.value if change.HasField("value") else None
    assert set(seen) == set(keys)
    stream.cancel()
    table.Put(pb.PutRequest(key="w/1", value=b"later"))
    stream = table.Watch(pb.WatchRequest(prefix="w/", after=positions), timeout=100)
    found = [change for _ in range(2) for change in next(stream).changes]
    assert [(change.key, change.value) for change in found] == [("w/1", b"later")]
    stream.cancel()
