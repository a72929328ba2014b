"""The public names are a contract, and importing them is quick."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest

import weft
from weft import aio, errors
from weft.client.admin.queues import QueueSettings
from weft.client.pipeline.subscription import SubscriptionStats
from weft.client.stats import QueueStats
from weft.proto import pipelines, wire
from weft.proto.settings import Settings


def test_the_names_of_weft() -> None:
    assert set(weft.__all__) == {
        "Client", "Consumer", "Message", "MessageId", "Producer", "Queue", "QueueStats",
        "Published", "Reservation", "ReservedBatch", "Slice", "Stage", "Subscription",
        "SubscriptionStats", "Tls", "Topic", "__version__", "aio", "connect", "tasks",
        "Reject", "Retry", "RetryLater", "Worker", "WorkerStats", "expo",
        "KvChange", "KvEntry", "KvPage", "Transaction", "lots", "CallAnswer",
        *(error.__name__ for error in errors.BY_CODE.values()),
    }  # fmt: skip
    assert len(weft.__all__) == len(set(weft.__all__))
    for name in weft.__all__:
        assert getattr(weft, name) is not None
        assert name in dir(weft)


def test_the_names_of_weft_aio() -> None:
    assert set(aio.__all__) == {
        "Client", "Consumer", "Message", "Producer", "Queue", "Stage", "Subscription", "Topic",
        "Transaction", "Worker", "connect",
    }  # fmt: skip
    for name in aio.__all__:
        assert getattr(aio, name) is not None


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        weft.conect  # noqa: B018


@pytest.mark.parametrize(
    "kind",
    [
        "Client",
        "Queue",
        "Message",
        "Producer",
        "Consumer",
        "Stage",
        "Subscription",
        "Topic",
        "Worker",
    ],
)
def test_both_flavours_have_the_same_names(kind: str) -> None:
    def public(module: object) -> set[str]:
        return {name for name in dir(getattr(module, kind)) if not name.startswith("_")}

    internal = {
        "ack_claims", "alone", "breaks", "by_node", "confirm_acks", "give_back", "hand_out",
        "pop_groups", "push_reply", "quiet", "send_claims", "settle",
        "name", "queue", "count",  # an instance attribute in one, a property in the other
    }  # fmt: skip
    assert public(weft) - internal == public(aio) - internal


def test_stats_and_settings_have_the_names_of_the_wire() -> None:
    assert tuple(field.name for field in fields(QueueStats)) == wire.QueueInfo.__struct_fields__
    assert (
        tuple(field.name for field in fields(SubscriptionStats))
        == pipelines.SubscriptionInfo.__struct_fields__
    )
    assert tuple(QueueSettings.__annotations__) == Settings.__struct_fields__


def test_importing_loads_neither_grpc_nor_the_client() -> None:
    code = (
        "import sys, weft; assert not {'grpc', 'zmq', 'asyncio'} & set(sys.modules), "
        "'import weft'; weft.connect; assert 'grpc' not in sys.modules, 'weft.connect'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
