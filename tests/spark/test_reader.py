"""The stream reader against a real node, driven as Spark drives it, without a JVM."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from weft import limits
from weft.client.sync_client import Client
from weft.errors import Fenced, QueueNotFound, ReservationLost
from weft.spark.driver import IDLE_S_MAX
from weft.spark.schema import columns
from weft.spark.source import WeftDataSource
from weft.spark.stream_reader import WeftStreamReader
from weft.testing import Cluster

Make = Callable[..., WeftStreamReader]


@pytest.fixture
def make(node: Cluster, queue: str) -> Make:
    """A reader of this test's queue, as a starting driver makes one."""

    def made(schema: StructType | None = None, **options: object) -> WeftStreamReader:
        given = {"servers": node.servers[0], "subscribe": queue, "subscription": "s"}
        source = WeftDataSource(given | {name: str(value) for name, value in options.items()})
        return source.streamReader(schema or source.schema())

    return made


def push(client: Client, queue: str, first: int, count: int, batch: int = 10) -> list[bytes]:
    bodies = [b"m-%05d" % number for number in range(first, first + count)]
    for start in range(0, count, batch):
        client.queue(queue).push_many(bodies[start : start + batch])
    return bodies


def step(reader: WeftStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def rows(reader: WeftStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    """Each input partition is read by a copy of the reader, as in a task."""
    pickled: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    found: list[dict[str, Any]] = []
    for share in reader.partitions(start, end):
        copy, part = pickled.loads(pickled.dumps((reader, share)))
        batches = list(copy.read(part))
        assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
        found += [row for batch in batches for row in batch.to_pylist()]
    return found


def values(reader: WeftStreamReader, start: dict[str, Any], end: dict[str, Any]) -> Counter[bytes]:
    return Counter(row["value"] for row in rows(reader, start, end))


def test_what_was_pushed_is_read_and_acked(make: Make, client: Client, queue: str) -> None:
    pushed = push(client, queue, 0, 500)
    reader = make()
    start = reader.initialOffset()
    assert start == reader.initialOffset() == {"r": 0}
    end = step(reader, start)
    assert end == {"r": 1}
    assert values(reader, start, end) == Counter(pushed)
    assert client.queue(queue).stats().reserved == 500
    assert step(reader, end) is end, "nothing new: the very same offset"
    assert client.queue(queue).stats().reserved == 0
    assert reader.partitions(end, end) == []


def test_columns(make: Make, client: Client, queue: str) -> None:
    before_ms = int(time.time() * 1000)
    ids = client.queue(queue).push_many([b"a", b"b"], headers=[{"h": "1"}, None], keys=["k", None])
    client.queue(queue).push(b"c")
    reader = make(includeHeaders="true")
    found = {row["value"]: row for row in rows(reader, {"r": 0}, step(reader, {"r": 0}))}
    assert found.keys() == {b"a", b"b", b"c"}
    first = found[b"a"]
    assert first["message_id"] == str(ids[0])
    assert first["partition"] == ids[0].partition
    assert (first["topic"], first["key"]) == (queue, b"k")
    assert first["headers"] == [{"key": "h", "value": b"1"}]
    assert before_ms <= first["timestamp"].timestamp() * 1000 <= time.time() * 1000
    assert (found[b"b"]["key"], found[b"c"]["headers"]) == (None, None)
    assert sorted(row["offset"] for row in found.values()) == [(1 << 32) + i for i in range(3)]


def test_the_same_batch_gives_the_same_rows(make: Make, client: Client, queue: str) -> None:
    """From a later driver, too, and with any number of input partitions."""
    push(client, queue, 0, 300)
    first = make()
    end = step(first, {"r": 0})
    before = rows(first, {"r": 0}, end)
    push(client, queue, 300, 50)
    again = rows(make(minPartitions=7), {"r": 0}, end)
    assert again == before


def test_a_driver_that_died_before_its_checkpoint_is_succeeded(
    make: Make, client: Client, queue: str
) -> None:
    pushed = push(client, queue, 0, 100)
    step(make(), {"r": 0})  # reserved, then died
    push(client, queue, 100, 100)
    heir = make()
    start = heir.initialOffset()
    assert start == {"r": 0}
    end = step(heir, start)
    assert end["r"] == 2, "what was reserved, and what has come since"
    assert values(heir, start, {"r": 1}) == Counter(pushed)
    assert values(heir, start, end).total() == 200


def test_a_new_query_begins_where_the_subscription_is(
    make: Make, client: Client, queue: str
) -> None:
    push(client, queue, 0, 10)
    reader = make()
    step(reader, step(reader, {"r": 0}))
    assert make().initialOffset() == {"r": 1}


def test_an_older_driver_is_fenced(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 10)
    older = make()
    end = step(older, older.initialOffset())
    younger = make()
    younger.initialOffset()
    for forbidden in (
        lambda: step(older, end),
        lambda: older.commit(end),
        lambda: older.partitions({"r": 0}, end),
    ):
        with pytest.raises(Fenced):
            forbidden()
    assert values(younger, {"r": 0}, end).total() == 10


def test_limits(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 100)
    by_rows = make(maxOffsetsPerTrigger=30)
    assert by_rows.getDefaultReadLimit() == ReadMaxRows(30)
    end = step(by_rows, {"r": 0})
    assert values(by_rows, {"r": 0}, end).total() == 30
    by_bytes = make(maxBytesPerTrigger=200)
    assert by_bytes.getDefaultReadLimit() == ReadMaxBytes(200)
    more = step(by_bytes, end)
    some = values(by_bytes, end, more)
    assert 0 < some.total() < 70
    everything = by_bytes.latestOffset(more, ReadAllAvailable())
    assert (values(by_bytes, more, everything) + some).total() == 70


def test_oldest_first(make: Make, client: Client, queue: str) -> None:
    """Across all partitions: a watermark drops late rows."""
    for number in range(40):
        client.queue(queue).push(b"m-%05d" % number)
        time.sleep(0.002)  # stamps are in milliseconds
    reader = make(maxOffsetsPerTrigger=10)
    start: dict[str, Any] = {"r": 0}
    for first in range(0, 40, 10):
        end = step(reader, start)
        assert sorted(values(reader, start, end)) == [
            b"m-%05d" % number for number in range(first, first + 10)
        ]
        start = end


def test_available_now_stops(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 50)
    reader = make(maxOffsetsPerTrigger=20)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    read: Counter[bytes] = Counter()
    batches = 0
    while (end := step(reader, start)) != start:
        read += values(reader, start, end)
        start, batches = end, batches + 1
        push(client, queue, 50 + 20 * batches, 20)  # the load never stops
        assert batches < 10
    assert (read.total(), batches) == (50, 3)


def test_what_is_left_of_an_earlier_run_is_read_too(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 30)
    step(make(maxOffsetsPerTrigger=20), {"r": 0})
    reader = make()
    reader.prepareForTriggerAvailableNow()
    end = step(reader, reader.initialOffset())
    assert values(reader, {"r": 0}, end).total() == 30


def test_partitions(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 100)
    reader = make(minPartitions=4)
    end = step(reader, {"r": 0})
    shares = reader.partitions({"r": 0}, end)
    assert [share.messages for share in shares] == [25] * 4  # type: ignore[attr-defined]


def test_others_do_not_see_what_is_reserved(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 20)
    reader = make(maxOffsetsPerTrigger=15)
    step(reader, {"r": 0})
    popped = client.queue(queue).pop_many(100)
    assert len(popped) == 5
    assert step(reader, {"r": 1}) == {"r": 1}, "nor does the reader see what is lent"


def test_the_backlog_is_reported(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 20)
    reader = make(maxOffsetsPerTrigger=15)
    end = step(reader, {"r": 0})
    time.sleep(0.02)
    report = reader.reportLatestOffset()
    assert report is not None
    oldest_ms, size = report.pop("oldestMs"), report.pop("backlogBytes")
    assert report == {"r": end["r"], "queue": queue, "subscription": "s", "backlog": 5}
    assert int(size) > 0
    assert 20 <= int(oldest_ms) < 60_000


def test_commit_acks(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 20)
    reader = make()
    end = step(reader, {"r": 0})
    reader.commit(end)
    assert client.queue(queue).stats().reserved == 0
    reader.commit(end)


def test_an_idle_reader_asks_less_often(make: Make, client: Client, queue: str) -> None:
    reader = make()
    for _ in range(6):
        step(reader, {"r": 0})
    began = time.monotonic()
    step(reader, {"r": 0})
    assert time.monotonic() - began >= IDLE_S_MAX
    push(client, queue, 0, 1)
    assert step(reader, {"r": 0}) == {"r": 1}


def test_a_subscription_that_was_deleted_is_a_loss(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 20)
    reader = make(maxOffsetsPerTrigger=5)
    start = step(reader, step(reader, {"r": 0}))
    assert start == {"r": 2}
    client.delete_subscription(queue, "s")
    with pytest.raises(ReservationLost, match=r"deleted and created again.*failOnDataLoss"):
        step(make(), start)
    with pytest.raises(ReservationLost, match="of the checkpoint no longer exists"):
        make().partitions({"r": 1}, {"r": 2})
    lenient = make(failOnDataLoss="false")
    assert list(lenient.partitions({"r": 1}, {"r": 2})) == []
    end = step(lenient, start)
    assert end == {"r": 1, "from": 0}
    # The second batch was reserved and not acked: it is back in the queue.
    assert values(lenient, start, end).total() == 15
    push(client, queue, 20, 1)
    last = step(lenient, end)
    assert last == {"r": 2}
    assert values(lenient, end, last).total() == 1


def test_an_older_checkpoint_is_a_loss(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 20)
    reader = make(maxOffsetsPerTrigger=10)
    step(reader, step(reader, step(reader, {"r": 0})))
    with pytest.raises(ReservationLost, match="acked through 2"):
        step(make(), {"r": 1})
    push(client, queue, 20, 5)
    lenient = make(failOnDataLoss="false")
    end = step(lenient, {"r": 1})
    assert end == {"r": 3, "from": 2}
    assert values(lenient, {"r": 1}, end).total() == 5


def test_what_was_given_back_is_a_loss(make: Make, client: Client, queue: str) -> None:
    push(client, queue, 0, 20)
    end = step(make(), {"r": 0})
    client.subscription(queue, "s").release_all()
    with pytest.raises(ReservationLost, match="returned before its ack"):
        step(make(), end)
    lenient = make(failOnDataLoss="false")
    more = step(lenient, end)
    assert values(lenient, end, more).total() == 20


def test_what_was_given_back_before_a_checkpoint_named_it_is_no_loss(
    make: Make, client: Client, queue: str
) -> None:
    pushed = push(client, queue, 0, 20)
    step(make(), {"r": 0})  # died before its checkpoint, and stayed away for long
    client.subscription(queue, "s").release_all()
    reader = make()
    end = step(reader, {"r": 0})
    assert end == {"r": 2, "from": 1}
    assert values(reader, {"r": 0}, end) == Counter(pushed)
    assert step(make(), end) == end
    assert client.queue(queue).stats().reserved == 0
    assert client.queue(queue).stats().ready == 0


def test_a_queue_that_is_not_there(node: Cluster) -> None:
    source = WeftDataSource(
        {"servers": node.servers[0], "subscribe": "nowhere", "subscription": "s"}
    )
    with pytest.raises(QueueNotFound):
        source.streamReader(columns(False)).initialOffset()


def test_large_messages(make: Make, client: Client, queue: str) -> None:
    """More than fits into one answer, or one Arrow batch."""
    bodies = [bytes([number]) * (limits.BODY_BYTES_MAX // 2) for number in range(12)]
    client.queue(queue).push_many(bodies)
    reader = make()
    end = step(reader, {"r": 0})
    assert values(reader, {"r": 0}, end) == Counter(bodies)
