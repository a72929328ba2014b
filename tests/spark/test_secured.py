"""The options for TLS and tokens, against a node that requires a certificate and a token.

A query with the options works, on the driver and in its tasks; a query without them gets an error
that names the missing one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import weft
from tests.process.secure_node import Secure

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
COUNT = 300


class Secured:
    """A node, its owner, and the options with which a query reaches the node."""

    def __init__(self, folder: Path) -> None:
        # Tokens created before the start are valid at once.
        self.secure = Secure(folder, mutual=True)
        self.reads = self.secure.token("reads", "consume:in")
        self.writes = self.secure.token("writes", "push:out")
        pair = self.secure.authority.sign("spark")
        self.tls = {
            "tls": str(self.secure.authority.pair.cert),
            "tlsClientCert": str(pair.cert),
            "tlsClientKey": str(pair.key),
        }
        self.secure.node.start()
        tls = weft.Tls(self.tls["tls"], str(pair.cert), str(pair.key))
        self.owner = weft.connect(self.secure.node.grpc, token=self.secure.owner, tls=tls)

    @property
    def server(self) -> dict[str, str]:
        return {"servers": self.secure.node.grpc}

    def source(self, token: str) -> dict[str, str]:
        given = {"subscribe": "in", "subscription": "s", "token": token}
        return self.server | self.tls | given

    def sink(self, token: str) -> dict[str, str]:
        return self.server | self.tls | {"queue": "out", "token": token}

    def close(self) -> None:
        self.owner.close()
        self.secure.node.kill()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        for name in ("in", "out"):
            made.owner.create_queue(name)
        yield made
    finally:
        made.close()


def push(secured: Secured) -> Counter[bytes]:
    bodies = [b"m-%d" % number for number in range(COUNT)]
    for start in range(0, COUNT, 50):
        secured.owner.queue("in").push_many(bodies[start : start + 50])
    return Counter(bodies)


def stream(
    spark: SparkSession, source: dict[str, str], sink: dict[str, str], checkpoint: Path
) -> None:
    frame = spark.readStream.format("weft").options(**source).option("minPartitions", "2").load()
    writer = frame.select("value").writeStream.format("weft").options(**sink)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def test_a_stream_with_certificate_and_tokens(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    """The source has a token to consume, the sink one to push, and neither has more."""
    pushed = push(secured)
    stream(spark, secured.source(secured.reads), secured.sink(secured.writes), tmp_path)
    seen: Counter[bytes] = Counter()
    out = secured.owner.queue("out")
    while messages := out.pop_many(COUNT):
        seen.update(message.body for message in messages)
        out.ack_many(messages)
    assert seen == pushed
    assert secured.owner.queue("in").stats().ready == 0


def test_what_is_wrong_with_a_token_is_said(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    before = secured.owner.queue("in").stats().ready
    push(secured)
    for number, (source, sink, says) in enumerate(
        (
            ("weft_12345678_nonsense", secured.writes, "Unauthenticated: "),
            (secured.writes, secured.writes, "PermissionDenied: writes may not"),
            (secured.reads, secured.reads, "PermissionDenied: reads may not"),
        )
    ):
        with pytest.raises(StreamingQueryException, match=says):
            stream(spark, secured.source(source), secured.sink(sink), tmp_path / str(number))
    assert secured.owner.queue("out").stats().ready == 0
    stats = secured.owner.queue("in").stats()
    assert stats.ready + stats.reserved == before + COUNT, "nothing is lost by a refusal"


def test_without_the_certificate_nothing_is_read_and_a_frame_is_written_with_it(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    bare = {k: v for k, v in secured.source(secured.reads).items() if k not in secured.tls}
    with pytest.raises(StreamingQueryException, match="TlsError: "):
        stream(spark, bare, secured.sink(secured.writes), tmp_path)
    frame = spark.range(5).selectExpr("CAST(id AS STRING) AS value")
    frame.write.format("weft").options(**secured.sink(secured.writes)).mode("append").save()
    assert secured.owner.queue("out").stats().ready == 5
    secured.owner.queue("out").purge()
