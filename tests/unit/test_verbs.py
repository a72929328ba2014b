"""The verb table is complete: structs, rows, handlers and gRPC methods fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.stepped_call import RecordingNode, SteppedExchange, SteppedStream, services
from weft.dht import table_verbs
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.proto.handlers import Handlers
from weft.proto.request import Answer, Request
from weft.proto.verb import Partitions, Permission, Route, Verb, Wait
from weft.proto.verbs import ANSWERS, VERBS
from weft.server.core import request_router, routing
from weft.server.core.node_verbs import answer_of
from weft.server.core.operation import operation_of
from weft.server.core.request_checks import check_of
from weft.server.edges.grpc_method import ExchangeMethod, StreamMethod
from weft.server.edges.grpc_methods import METHODS
from weft.server.engine.handlers import handles

ROWS = list(VERBS.values())
#: The driver has no registry: it tells its few verbs apart by type.
DRIVER = "".join(
    path.read_text(encoding="utf-8")
    for path in (Path(__file__).resolve().parents[2] / "server" / "node").glob("*.py")
)


def _name(row: Verb) -> str:
    return row.name


def of_proto(base: type[Any]) -> set[type[Any]]:
    """The structs of `weft.proto`; tests may define others."""
    found = {each for each in base.__subclasses__() if each.__module__.startswith("weft.proto.")}
    return found.union(*map(of_proto, found))


def test_every_request_has_a_row_and_every_answer_is_named_in_one() -> None:
    assert of_proto(Request) == set(VERBS)
    assert of_proto(Answer) == set(ANSWERS)


def test_a_name_is_used_once() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_a_row_has_the_handlers_of_its_route(row: Verb) -> None:
    request = row.request
    here = request in handles.by_request or request in answer_of.by_request
    operates = request in operation_of.by_request
    match row.route:
        case Route.DRIVER:
            assert f"isinstance(request, wire.{request.__name__})" in DRIVER
            assert not here
            assert not operates
        case Route.PRIMARY:
            assert here
            assert operates or row.partitions in (
                Partitions.KEY, Partitions.NUMBER, Partitions.HOME,
            )  # fmt: skip
        case Route.CLUSTER:
            assert here
            assert operates
        case Route.OPERATION:
            assert operates
        case Route.NODE | Route.SEARCH | Route.INTERNAL:
            assert here
            assert not operates


@pytest.mark.parametrize("registry", [handles, answer_of, operation_of, check_of])
def test_a_handler_has_a_row(registry: Handlers[Any]) -> None:
    assert registry.by_request.keys() <= VERBS.keys()


def test_a_handler_without_a_row_or_a_second_handler_is_refused() -> None:
    class Unheard(Request, frozen=True, tag="unheard"):
        pass

    registry = Handlers[Any]()
    with pytest.raises(AssertionError, match="Unheard has no row"):
        registry(Unheard)(print)
    registry(wire.Push)(print)
    with pytest.raises(AssertionError, match="Push has two handlers"):
        registry(wire.Push)(print)


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_the_facts_of_a_row_fit_its_struct(row: Verb) -> None:
    fields = row.request.__struct_fields__
    assert ("wait_ms" in fields) == (row.wait is not Wait.NO)
    needed = {
        Partitions.NUMBER: {"partition"}, Partitions.NUMBERS: {"partitions"},
        Partitions.RECEIPTS: {"receipts"}, Partitions.HOLDS: {"holds"}, Partitions.KEY: {"key"},
        Partitions.KEYS: {"partitions", "keys"}, Partitions.SPAN: {"partitions"},
        Partitions.QUEUE: {"queue"}, Partitions.SUBSCRIPTION: {"queue", "subscription"},
        Partitions.APP: {"queue", "app"},
    }  # fmt: skip
    assert needed.get(row.partitions, set()) <= set(fields)
    assert (row.route is Route.INTERNAL) == (row.permission is Permission.NOBODY)
    if row.cached_access:
        assert "queue" in fields
    assert row.answers


def test_every_rule_for_partitions_is_executed() -> None:
    assert set(routing._RULES) == set(Partitions)


def test_the_table_has_the_verbs_of_the_hash_table() -> None:
    by_key = {row.request for row in ROWS if row.partitions is Partitions.KEY}
    assert table_verbs.transforms.by_request.keys() | table_verbs.writes.by_request.keys() == by_key


def test_a_single_node_answers_the_data_path_by_the_engine_alone() -> None:
    hot = {row.request for row in ROWS if row.cached_access}
    assert hot <= request_router.ENGINE_ALONE
    assert not any(VERBS[each].route is Route.INTERNAL for each in request_router.ENGINE_ALONE)


# --- gRPC -------------------------------------------------------------------------------------


def described() -> dict[str, Any]:
    """The methods of weft.proto, by the names that the verb table uses."""
    return {
        f"{service.name}.{method.name}": method
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def path(method: str) -> str:
    return "/weft.v1." + method.replace(".", "/")


def test_the_rows_name_all_grpc_methods() -> None:
    assert {method for row in ROWS for method in row.grpc} == described().keys()


def test_the_table_of_methods_is_the_proto() -> None:
    assert {method.name for method in METHODS.values()} == described().keys()
    assert METHODS.keys() == {path(name) for name in described()}


@pytest.mark.parametrize("name", sorted(described()))
def test_a_method_is_of_the_kind_that_the_proto_says(name: str) -> None:
    proto, method = described()[name], METHODS[path(name)]
    if isinstance(method, StreamMethod):
        assert proto.server_streaming
        assert method.client_streams == proto.client_streaming
    else:
        assert not proto.server_streaming
        assert not proto.client_streaming


#: Fields without which a call is refused before it reaches the node.
_FIELDS: dict[str, dict[str, Any]] = {
    "Queue.Cancel": {"id": "0" * 32},
    "Queue.Restore": {"backup": bytes(16)},
    "Queue.Produce": {"message": pb.OutMessage()},
    "Queue.Work": {"open": pb.WorkOpen(queue="q"), "credit": 1},
    "Stream.Stage": {"stage": 1},
}


def requests_of(name: str, **fields: Any) -> list[type[Request]]:
    """The requests that a gRPC method sends to the node before its first answer."""
    node = RecordingNode()
    kind = getattr(pb, described()[name].input_type.name)
    message = kind(**_FIELDS.get(name, {}), **fields).SerializeToString()
    if isinstance(METHODS[path(name)], ExchangeMethod):
        SteppedExchange(services(node), path(name)).start(message)
    else:
        stream = SteppedStream(services(node), path(name))
        stream.deliver(message)
        stream.start()
        stream.run()
    assert node.requests, f"{name} did not reach the node"
    return [type(request) for request in node.requests]


@pytest.mark.parametrize("method", sorted(described()))
def test_a_grpc_method_sends_the_verb_that_names_it(method: str) -> None:
    assert all(method in VERBS[sent].grpc for sent in requests_of(method))


def test_a_stage_is_closed_by_a_verb_of_its_own() -> None:
    (closed,) = requests_of("Stream.Stage", close=0)
    assert "Stream.Stage" in VERBS[closed].grpc
    assert VERBS[closed].name == "close_stage"
