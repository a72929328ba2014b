"""Tools that operators use on any gRPC server: grpcurl and grpc_health_probe."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.conftest import GoTool
from tests.conformance.served_address import ServedAddress
from tools.languages.go_programs import GRPCURL, HEALTH_PROBE

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

_CALL_S_MAX: Final = 100.0
SERVICES: Final = ("weft.v1.Cluster", "weft.v1.Queue", "weft.v1.Stream", "weft.v1.Table")


def test_grpcurl_lists_and_calls_by_reflection(go_tool: GoTool, node: ServedAddress) -> None:
    program = go_tool(GRPCURL)
    plain = ["-plaintext", str(node)]
    assert set(SERVICES) <= set(_run(program, *plain, "list").split())
    assert "rpc Push" in _run(program, *plain, "describe", "weft.v1.Queue")
    created = _call(program, node, "CreateQueue", {"queue": "grpcurl"})
    assert created == {"created": True}
    bodies = ["b25l", "dHdv"]
    messages = [{"body": body, "headers": {"from": "grpcurl"}} for body in bodies]
    pushed = _call(program, node, "Push", {"queue": "grpcurl", "messages": messages})
    assert len(pushed["ids"]) == 2
    popped = _call(program, node, "Pop", {"queue": "grpcurl", "limit": 10})["messages"]
    assert [each["body"] for each in popped] == bodies
    assert popped[0]["headers"] == {"from": "grpcurl"}
    receipts = [each["receipt"] for each in popped]
    assert _call(program, node, "Ack", {"queue": "grpcurl", "receipts": receipts}) == {"done": "2"}


def test_grpcurl_shows_the_code_of_an_error(go_tool: GoTool, node: ServedAddress) -> None:
    words = [str(go_tool(GRPCURL)), "-v", "-plaintext", "-d", '{"queue": "absent"}']
    done = subprocess.run(
        [*words, str(node), "weft.v1.Queue/Pop"],
        capture_output=True,
        text=True,
        timeout=_CALL_S_MAX,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Code: NotFound" in said
    assert "weft-code: QUEUE_NOT_FOUND" in said
    assert "weft-retriable: false" in said


def test_grpcurl_over_tls(go_tool: GoTool, tls_node: ServedAddress) -> None:
    words = ["-cacert", str(tls_node.authority), str(tls_node), "list"]
    assert set(SERVICES) <= set(_run(go_tool(GRPCURL), *words).split())


def test_a_health_probe(go_tool: GoTool, node: ServedAddress, tls_node: ServedAddress) -> None:
    program = go_tool(HEALTH_PROBE)
    assert "SERVING" in _run(program, f"-addr={node}")
    assert "SERVING" in _run(program, f"-addr={node}", "-service=weft.v1.Queue")
    authority = f"-tls-ca-cert={tls_node.authority}"
    assert "SERVING" in _run(program, f"-addr={tls_node}", "-tls", authority)


def test_a_health_probe_of_an_unknown_service(go_tool: GoTool, node: ServedAddress) -> None:
    with pytest.raises(AssertionError, match=r"NotFound|unknown service"):
        _run(go_tool(HEALTH_PROBE), f"-addr={node}", "-service=weft.v1.Absent")


def _call(program: Path, node: ServedAddress, method: str, request: dict[str, Any]) -> Any:
    words = ["-plaintext", "-d", json.dumps(request), str(node), f"weft.v1.Queue/{method}"]
    return json.loads(_run(program, *words))


def _run(program: Path, *words: str) -> str:
    done = subprocess.run(
        [str(program), *words],
        capture_output=True,
        text=True,
        timeout=_CALL_S_MAX,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said
