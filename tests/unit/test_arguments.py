"""Every public argument of a wrong type or range is an InvalidArgument that names the argument.

The test finds the public methods of both clients and their parameters by inspection: a new method
or a new parameter fails until it has a row in VALID (an accepted value, for the calls that test
another parameter) and in WRONG (values that must be refused).
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import weft
from weft import aio
from weft.client.admin.queues import QueueSettings
from weft.client.async_kv import AsyncKv
from weft.client.consumer.lease import ClientLease
from weft.client.routing.cluster_view import ClusterView
from weft.client.routing.discovery import Discovery
from weft.client.sync_client import Client as SyncClient
from weft.client.sync_kv import Kv
from weft.proto import wire

HUGE: Final = 1 << 70
NO_INTEGER: Final = ("high", 1.5, None, True, [1], math.nan)
WRONG_INTEGER: Final = (*NO_INTEGER, -1, HUGE)
OPTIONAL_INTEGER: Final = tuple(value for value in WRONG_INTEGER if value is not None)
WRONG_NUMBER: Final = ("high", None, True, -1, math.nan, math.inf)
WRONG_NAME: Final = (5, None, b"orders", "", "no spaces", "x" * 81, "..", ["orders"])
WRONG_BYTES: Final = ("text", 5, None, [b"x"], 1.5)
WRONG_TEXT: Final = (5, b"text", ["text"], "\ud800")
WRONG_ITERABLE: Final = (5, "text", b"bytes", ["text"], [None], [5])
WRONG_TEXTS: Final = (5, "k", [5], [b"k"], ["\ud800"], ["a", "b"], {"a": "b"})
WRONG_FLAG: Final = (1, "yes", None)

WRONG_KEYS: Final[tuple[Any, ...]] = (
    5,
    None,
    "text",
    b"bytes",
    [5],
    [None],
    [[]],
    [""],
    ["k" * 1025],
    ["\ud800"],
)

#: Accepted values, by parameter; (method, parameter) takes precedence over the parameter alone.
VALID: Final[dict[Any, Any]] = {
    "app": "app",
    "attempt": 0,
    "batch": 1,
    "bodies": [b"x"],
    "body": b"x",
    "handler": print,
    "key": "k",
    "lease_ms": 1000,
    "limit": 1,
    "message_id": "0" * 32,
    "messages": [],
    "name": "orders",
    "new": b"new",
    "number": 1,
    "old": b"old",
    "partition": 0,
    "queue": "orders",
    "queues": ["orders"],
    "topic": "prices",
    "items": {"k": b"v"},
    "keys": ["k"],
    "slice": weft.Slice(0, 1, 1, ()),
    "value": b"v",
    "winners": [],
}

#: Refused values, by parameter; (method, parameter) takes precedence over the parameter alone.
WRONG: Final[dict[Any, tuple[Any, ...]]] = {
    "ack_linger_ms": WRONG_NUMBER,
    ("scan", "after"): (*WRONG_TEXT, None, "k" * 1025),
    ("scan", "limit"): (*WRONG_INTEGER, 0, 10_001),
    ("watch", "after"): (5, "text", [1], {-1: 1}, {1: -1}, {1: "1"}, {"1": 1}),
    ("watch", "key"): (5, b"text", ["text"], "", "k" * 1025),
    "app": WRONG_NAME,
    "attempt": WRONG_INTEGER,
    "batch": WRONG_INTEGER,
    "batch_bytes": WRONG_INTEGER,
    "batch_count": WRONG_INTEGER,
    "bodies": WRONG_ITERABLE,
    "body": WRONG_BYTES,
    "buffer_bytes": WRONG_INTEGER,
    "access": WRONG_TEXT,
    "ack": WRONG_FLAG,
    "buffers": WRONG_INTEGER,
    "concurrency": (*WRONG_INTEGER, 0),
    "confirm": WRONG_FLAG,
    "conflict_key": (*WRONG_TEXT, "", "x" * 257),
    "connect_timeout_ms": WRONG_INTEGER,
    "dead_letter": WRONG_TEXT,
    "dedup_key": (*WRONG_TEXT, "", "x" * 257),
    "dedup_keys": (*WRONG_TEXTS, [""], ["x" * 257]),
    "dedup_window_ms": WRONG_INTEGER,
    "delay_ms": WRONG_INTEGER,
    "delayed": WRONG_FLAG,
    "drain_s": WRONG_NUMBER,
    "epoch": OPTIONAL_INTEGER,
    "expire_idle_ms": WRONG_INTEGER,
    "final": WRONG_FLAG,
    "graphs": WRONG_FLAG,
    "group": (*WRONG_TEXT, "", "x" * 257),
    "tenant": (*WRONG_TEXT, "", "x" * 257),
    "tenants": (*WRONG_TEXTS, [""], ["x" * 257]),
    "grouped": WRONG_FLAG,
    "groups": (*WRONG_TEXTS, [""], ["x" * 257]),
    "handler": (5, None, "text"),
    "headers": (5, "k", {"k": 5}, {5: "v"}, {"k": None}, {"k": b"v"}, {"k": "\ud800"}),
    ("push_many", "headers"): (5, "k", {"k": "v"}, [5], [{"k": 5}], [{5: "v"}], [{}, {}]),
    ("bind", "headers"): (5, "k", {"k": 5}, {5: "v"}, {"": "v"}),
    "prefixes": (5, "k", {"k": 5}, {5: "v"}, {"": "v"}),
    "idle_ms": OPTIONAL_INTEGER,
    "if_version": OPTIONAL_INTEGER,
    ("remove", "if_version"): (*OPTIONAL_INTEGER, 0),
    "in_flight": WRONG_INTEGER,
    "items": (5, None, "text", ["k"], {"": b"v"}, {5: b"v"}, {"k" * 1025: b"v"}, {"k": "v"}),
    "keep_leases": WRONG_FLAG,
    "key": WRONG_TEXT,
    "keys": WRONG_TEXTS,
    ("lookup_entries", "keys"): WRONG_KEYS,
    ("lookup_many", "keys"): WRONG_KEYS,
    ("remove_many", "keys"): WRONG_KEYS,
    "kind": WRONG_TEXT,
    "lease_ms": WRONG_INTEGER,
    "limit": WRONG_INTEGER,
    "linger_ms": WRONG_NUMBER,
    "max_bytes": WRONG_INTEGER,
    "max_deliveries": WRONG_INTEGER,
    "max_messages": WRONG_INTEGER,
    "max_hops": WRONG_INTEGER,
    "message_id": (5, None, b"0" * 32, "0", "x" * 32, ["0" * 32]),
    "messages": (5, "text", [5], [None], [[]]),
    "name": WRONG_NAME,
    "new": tuple(value for value in WRONG_BYTES if value is not None),
    "number": WRONG_INTEGER,
    "old": tuple(value for value in WRONG_BYTES if value is not None),
    "now": WRONG_FLAG,
    "on_error": (5, "text"),
    "on_lost": (5, "text"),
    "ordered": WRONG_FLAG,
    "partition": WRONG_INTEGER,
    "prefetch": WRONG_INTEGER,
    ("work", "prefetch"): OPTIONAL_INTEGER,
    ("worker", "prefetch"): OPTIONAL_INTEGER,
    "prefix": (*WRONG_TEXT, None),
    "priority": WRONG_INTEGER,
    "queue": WRONG_NAME,
    "queues": (5, "orders", None, [], [5], ["a", "a"], ["not a name"]),
    "topic": WRONG_NAME,
    "reason": (*WRONG_TEXT, None, "x" * 1025),
    "renew_for_ms": WRONG_INTEGER,
    "retention_ms": WRONG_INTEGER,
    "retry": (5, None, "text"),
    "servers": (5, [5], b"127.0.0.1"),
    "max_in_flight": WRONG_INTEGER,
    "rate_limit": WRONG_INTEGER,
    "share": (*WRONG_NUMBER, 1.1, 0.0004, [0.3]),
    "skip_lost": WRONG_FLAG,
    "slice": (5, None, "text"),
    "start": WRONG_INTEGER,
    "stop_when_empty": WRONG_FLAG,
    "time_limit_s": ("high", True, -1, 0, math.nan, math.inf),
    "timeout_ms": OPTIONAL_INTEGER,
    "timeout_s": WRONG_NUMBER,
    ("connect", "timeout_ms"): WRONG_INTEGER,
    "tls": (5, b"ca.pem"),
    "token": (5, b"token"),
    "ttl_ms": WRONG_INTEGER,
    ("insert", "ttl_ms"): (*OPTIONAL_INTEGER, 0, -5),
    ("insert_many", "ttl_ms"): (*OPTIONAL_INTEGER, 0, -5),
    "update": WRONG_FLAG,
    "value": WRONG_BYTES,
    "wait_ms": WRONG_INTEGER,
    "winners": (5, "text", [5], [(1,)], [("a", "b")], [(1, True)]),
}


def _discovery() -> Discovery:
    """A node that gets no request: a wrong argument is refused before anything is sent."""
    discovery = Discovery(["127.0.0.1:1"])
    node = wire.NodeInfo("n", "127.0.0.1:1", "127.0.0.1:1", "member", True)
    discovery.note(ClusterView.of(wire.ViewInfo("c", 1, 8, [node], 2, [0] * 8), "127.0.0.1:1"))
    return discovery


def _lease(owner: Any) -> ClientLease:
    return ClientLease("orders", wire.Lent(0, 1, 1, 0, 1, 1, 1, 1, 1, 1000), None, None, owner)


async def _targets(*, asynchronous: bool) -> list[object]:
    """One instance of each public class, without a connection."""
    discovery = _discovery()
    client: Any = (aio.Client if asynchronous else SyncClient)(discovery, 1000)
    queue = client.queue("orders")
    core = queue if asynchronous else queue._core
    message: Any = aio.Message if asynchronous else weft.Message
    return [
        client, queue, client.kv, queue.producer(), client.subscription("orders", "s", epoch=1),
        client.stage("orders", "app", 1, 0, 0), message(b"x", _lease(core), 0),
        queue.consume(), queue.worker(print), client.topic("prices"),
    ]  # fmt: skip


def _methods(target: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(target, callable):
        if not name.startswith("_") and name not in INTERNAL:
            yield name, method


#: Methods of the asyncio queue for its consumers; their arguments were checked by public methods.
INTERNAL: Final = {
    "ack_claims", "by_node", "confirm_acks", "give_back", "hand_out", "pop_groups", "push_reply",
    "send_claims", "settle",
}  # fmt: skip


def _parameters(method: Callable[..., Any]) -> Iterator[str]:
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            yield name
        else:
            yield from QueueSettings.__annotations__


def _required(name: str, method: Callable[..., Any]) -> dict[str, Any]:
    return {
        parameter: VALID[name, parameter] if (name, parameter) in VALID else VALID[parameter]
        for parameter, kind in inspect.signature(method).parameters.items()
        if kind.default is kind.empty and kind.kind is not kind.VAR_KEYWORD
    }


def _cases(target: object) -> Iterator[tuple[str, Callable[..., Any], str, Any]]:
    for name, method in _methods(target):
        for parameter in _parameters(method):
            row = WRONG.get((name, parameter), WRONG.get(parameter))
            assert row is not None, f"no row for {type(target).__name__}.{name}({parameter})"
            for value in row:
                yield f"{type(target).__name__}.{name}", method, parameter, value


async def _error_of(method: Callable[..., Any], given: dict[str, Any]) -> Exception | None:
    try:
        result = method(**given)
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        return error
    return None


async def _refused(target: object) -> int:
    count = 0
    for name, method, parameter, value in _cases(target):
        given = _required(name.rpartition(".")[2], method) | {parameter: value}
        error = await _error_of(method, given)
        what = f"{name}({parameter}={value!r})"
        assert isinstance(error, weft.InvalidArgument), f"{what}: {error!r}"
        assert parameter in error.message, f"{what}: {error.message}"
        count += 1
    return count


@pytest.mark.parametrize("asynchronous", [False, True])
def test_every_public_method_names_the_argument_that_is_wrong(asynchronous: bool) -> None:
    async def scenario() -> None:
        for target in await _targets(asynchronous=asynchronous):
            methods = [name for name, method in _methods(target) if list(_parameters(method))]
            assert await _refused(target) >= len(methods)

    asyncio.run(scenario())


@pytest.mark.parametrize("connect", [weft.connect, aio.connect])
def test_connect_names_the_argument_that_is_wrong(connect: Callable[..., Any]) -> None:
    for parameter in inspect.signature(connect).parameters:
        for value in WRONG.get(("connect", parameter), WRONG.get(parameter, ())):
            with pytest.raises(weft.InvalidArgument, match=parameter):
                connect(**{parameter: value})
        assert parameter in WRONG or ("connect", parameter) in WRONG


def test_both_tables_of_keys_are_of_the_same_class() -> None:
    """The table's class is not exported; tests reach it through `client.kv`, as above."""
    nothing: Any = None
    ours, theirs = _methods(Kv(nothing, nothing)), _methods(AsyncKv(nothing, nothing))
    assert {name for name, _ in ours} == {name for name, _ in theirs}


def test_a_setting_of_a_wrong_name_is_named_with_those_that_there_are() -> None:
    client = SyncClient(_discovery(), 1000)
    with pytest.raises(weft.InvalidArgument, match=r"leese_ms.*lease_ms"):
        client.create_queue("orders", leese_ms=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "parameter", "values"),
    [
        (weft.Retry, "attempts", (*WRONG_INTEGER, 0)),
        (weft.Retry, "backoff", (5, None, "text")),
        (weft.expo, "first_s", (*WRONG_NUMBER, 61)),
        (weft.expo, "most_s", WRONG_NUMBER),
        (weft.expo, "factor", (*WRONG_NUMBER, 0.5)),
        (weft.RetryLater, "delay_s", WRONG_NUMBER),
    ],
)
def test_a_retry_policy_names_the_argument_that_is_wrong(
    make: Callable[..., Any], parameter: str, values: tuple[Any, ...]
) -> None:
    for value in values:
        with pytest.raises(weft.InvalidArgument, match=parameter):
            make(**{parameter: value})
