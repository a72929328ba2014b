"""Sends the verb `Increment` through a node.

Run by ``test_toy_verb.py``, in a copy of the code that has this verb.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest

import weft
from tests.engine.rig import Rig
from tests.sim.stage import Stage
from weft import errors
from weft.client.routing.cluster_view import ClusterNode, ClusterView
from weft.client.routing.discovery import Discovery
from weft.client.routing.router import Router
from weft.client.routing.session import passes
from weft.client.transport.pending_calls import PendingCalls
from weft.client.transport.runtime import BlockingRuntime
from weft.dht import placement
from weft.proto import wire
from weft.proto.verbs import VERBS
from weft.server.core.routing import places
from weft.server.security.access import Access, Grant, Principal
from weft.server.security.audit import Audit, audited
from weft.server.security.caller import Caller

#: The present code does not have the struct, so it is looked up by name.
Increment: Any = vars(wire)["Increment"]
ADD: wire.Request = Increment("visits", 3)
PARTITIONS = 4


class _Tokens:
    def __init__(self, *grants: str) -> None:
        self._known = Principal("ann", tuple(map(Grant.parse, grants)))

    def principal(self, token: str) -> Principal:
        return self._known


def test_the_copy_is_imported() -> None:
    assert Path(weft.__file__).is_relative_to(Path.cwd())
    assert Increment in VERBS


def test_the_decoder_reads_it() -> None:
    frame = wire.encode(wire.Call(wire.WIRE_VERSION, 7, ADD, "token"))
    assert wire.decode_call(frame).request == ADD


def test_access_wants_the_permission_of_its_row() -> None:
    Access(_Tokens("table:vis*")).check("t", ADD)
    for grant in ("table:other", "push:*", "consume:*", "admin:*", "watch:*"):
        with pytest.raises(errors.PermissionDenied, match="may not Increment 'visits'"):
            Access(_Tokens(grant)).check("t", ADD)


def test_it_is_audited(tmp_path: Path) -> None:
    assert audited(ADD)
    audit = Audit(tmp_path / "audit.jsonl", "node1")
    audit.done(Caller(None, "10.0.0.7"), ADD, wire.Done(3))
    audit.close()
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert (line["action"], line["on"], line["result"]) == ("Increment", "visits", "OK")


def test_a_client_repeats_it_only_if_it_was_not_executed() -> None:
    assert passes(ADD, errors.NotPrimary("not me"))
    assert not passes(ADD, errors.DeadlineExceeded("no answer"))
    assert not passes(ADD, errors.Unavailable("in doubt"))


def test_a_client_sends_it_to_the_primary_of_its_key() -> None:
    discovery = Discovery(["127.0.0.1:1"])
    discovery.view = ClusterView("c", PARTITIONS, (ClusterNode("n", "127.0.0.1:1", "127.0.0.1:2"),))
    router = Router(BlockingRuntime(), discovery)
    assert router.place_of(ADD) == placement.of_text("visits", PARTITIONS)
    router.close()


def test_a_connection_sends_one_copy() -> None:
    now = time.monotonic()
    calls = PendingCalls(attempt_s=1.0)
    call = calls.start(ADD, (), now + 60, now)
    calls.send(lambda frames: True, now)
    calls.lost()
    calls.restored()
    with pytest.raises(errors.ConnectionLost, match="increment"):
        call.result()


def test_the_engine_executes_it() -> None:
    rig = Rig()
    assert rig.call(ADD) == wire.Done(3)
    assert rig.call(Increment("visits")) == wire.Done(4)
    rig.crash()
    assert rig.call(Increment("visits", 0)) == wire.Done(4)
    assert rig.call(wire.Lookup("visits")) == wire.Value((4).to_bytes(8, "big"))


def test_a_payload_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="1 payload frames"):
        Rig().call(ADD, b"payload")


def test_a_cluster_routes_it_to_the_primary_of_its_key() -> None:
    stage = Stage(3, PARTITIONS)
    number = placement.of_text("visits", PARTITIONS)
    primary = stage.primary(number)
    assert places(primary.node_core, ADD) == (number,)
    others = [each for each in stage.world.machines.values() if each is not primary]
    # A smart client that asks the wrong node is told so; for a plain client every node forwards.
    refused = cast(wire.Failure, stage.ask(others[0], ADD))
    assert refused.code == "NOT_PRIMARY"
    assert stage.ask(primary, ADD) == wire.Done(3)
    assert stage.ask(primary, Increment("visits"), plain=True) == wire.Done(4)
    for count, machine in enumerate(others, 5):
        assert stage.ask(machine, Increment("visits"), plain=True) == wire.Done(count)
    assert stage.ask(others[0], wire.Lookup("visits"), plain=True) == wire.Value(
        (4 + len(others)).to_bytes(8, "big")
    )
