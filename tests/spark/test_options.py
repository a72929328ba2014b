"""Options: all are checked, and the error for a wrong one names the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import InvalidArgument
from weft.spark.options import OPTIONS, BatchRead, Options, StreamRead, Use, Write
from weft.spark.schema import columns
from weft.spark.source import WeftDataSource

READ = {"servers": "h:1", "subscribe": "clicks", "subscription": "hits"}


def test_a_stream_needs_a_queue_and_a_subscription() -> None:
    read = StreamRead.of(Options(READ))
    assert (read.queue, read.subscription, read.fail_on_data_loss) == ("clicks", "hits", True)
    for missing in ("subscribe", "subscription"):
        given = {name: value for name, value in READ.items() if name != missing}
        with pytest.raises(InvalidArgument, match=f"option {missing} is missing"):
            StreamRead.of(Options(given))


def test_names_are_known_however_they_are_written() -> None:
    """Spark passes option names in lower case."""
    given = {"maxoffsetspertrigger": "10", "MINPARTITIONS": "4", "failOnDataLoss": "FALSE"}
    read = StreamRead.of(Options(READ | given))
    assert (read.messages_max, read.partitions_min, read.fail_on_data_loss) == (10, 4, False)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("subscribr", "x", "did you mean subscribe"),
        ("zzz", "x", "the options are servers, subscribe"),
        ("kafka.bootstrap.servers", "x", "it is `servers` here"),
        ("path", "/x", "use `subscribe` to read"),
        ("startingOffsets", "latest", "a queue has no past"),
        ("startingOffsets", '{"clicks": {"0": 5}}', "a queue has no past"),
        ("maxOffsetsPerTrigger", "many", "is a whole number, not 'many'"),
        ("maxOffsetsPerTrigger", "0", "must be 1 to"),
        ("minPartitions", "10001", "must be 1 to 10000"),
        ("failOnDataLoss", "no", "is true or false"),
        ("subscribe", "a queue", "is 1 to 80 of"),
        ("delivery", "once", "is exactly-once or at-least-once"),
        ("servers", " ", "is empty"),
        ("tlsClientCert", "c.pem", "go together"),
    ],
)
def test_what_is_wrong_is_said(name: str, value: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        WeftDataSource(READ | {name: value})


def test_earliest_is_what_happens_anyway() -> None:
    StreamRead.of(Options(READ | {"startingOffsets": "earliest"}))


@pytest.mark.parametrize(
    ("use", "name", "value"),
    [
        (Use.STREAM_READ, "queue", "q"),
        (Use.STREAM_READ, "maxMessages", "10"),
        (Use.BATCH_READ, "subscription", "s"),
        (Use.STREAM_WRITE, "txnVersion", "1"),
        (Use.BATCH_WRITE, "subscribe", "q"),
    ],
)
def test_an_option_of_another_kind_of_query_is_refused(use: Use, name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"option {name} is for .*, not for"):
        Options({name: value}).check(use)


def test_a_sink_takes_either_name_of_its_queue() -> None:
    for name in ("queue", "topic"):
        assert Write.of(Options({name: "out"}), Use.STREAM_WRITE).queue == "out"
    with pytest.raises(InvalidArgument, match="different queues"):
        Write.of(Options({"queue": "a", "topic": "b"}), Use.STREAM_WRITE)
    with pytest.raises(InvalidArgument, match="option queue is missing"):
        Write.of(Options({}), Use.STREAM_WRITE)


def test_a_batch_write_is_named_in_full_or_not_at_all() -> None:
    with pytest.raises(InvalidArgument, match="go together"):
        Write.of(Options({"queue": "a", "txnAppId": "job"}), Use.BATCH_WRITE)
    named = Write.of(Options({"queue": "a", "txnAppId": "job", "txnVersion": "7"}), Use.BATCH_WRITE)
    assert (named.app, named.version) == ("job", 7)
    with pytest.raises(InvalidArgument, match="no meaning with delivery=at-least-once"):
        Write.of(
            Options({"queue": "a", "txnAppId": "job", "delivery": "at-least-once"}),
            Use.STREAM_WRITE,
        )


def test_sparks_own_options_pass() -> None:
    Write.of(Options({"queue": "a", "checkpointLocation": "/c"}), Use.STREAM_WRITE)


def test_the_environment_names_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SERVERS", "a:1,b:2")
    assert Options({}).access.servers == "a:1,b:2"
    assert Options({"servers": "c:3"}).access.servers == "c:3"
    monkeypatch.delenv("WEFT_SERVERS")
    assert Options({}).access.servers == "127.0.0.1:7700"


def test_a_token_is_not_shown() -> None:
    """Readers are printed in query plans."""
    read = BatchRead.of(Options({"subscribe": "q", "token": "hush"}))
    assert "hush" not in repr(read)


def test_the_document_lists_every_option_and_column() -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    for option in OPTIONS:
        assert f"| `{option.name}` |" in text, f"docs/spark.md does not list {option.name}"
    for field in columns(include_headers=True):
        assert f"| `{field.name}` |" in text, f"docs/spark.md does not list {field.name}"
