"""gRPC's own interoperability client, from Go, against servers under test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import grpcio_interop
from tests.conformance.conftest import GoTool
from tests.conformance.served_address import ServedAddress
from tools.languages.go_programs import INTEROP_CLIENT

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

#: Every case that needs neither Google's credentials nor compression nor a load balancer.
CASES: Final = (
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong",
    "empty_stream", "timeout_on_sleeping_server", "cancel_after_begin",
    "cancel_after_first_response", "status_code_and_message", "special_status_message",
    "custom_metadata", "unimplemented_method", "unimplemented_service",
)  # fmt: skip
#: Cases about what a server does not have, which a node without the service passes, too.
UNIMPLEMENTED: Final = ("unimplemented_method", "unimplemented_service")
#: A case takes milliseconds; only a hang takes longer.
_CASE_S_MAX: Final = 100.0


@pytest.fixture(scope="module")
def interop() -> Iterator[ServedAddress]:
    """A server with the interoperability service."""
    with grpcio_interop.served() as address:
        yield address


@pytest.mark.parametrize("case", CASES)
def test_a_case_passes(go_tool: GoTool, interop: ServedAddress, case: str) -> None:
    run(go_tool(INTEROP_CLIENT), interop, case)


@pytest.mark.parametrize("case", UNIMPLEMENTED)
def test_a_node_refuses_unknown_methods(go_tool: GoTool, node: ServedAddress, case: str) -> None:
    run(go_tool(INTEROP_CLIENT), node, case)


@pytest.mark.parametrize("case", UNIMPLEMENTED)
def test_a_node_refuses_unknown_methods_over_tls(
    go_tool: GoTool, tls_node: ServedAddress, case: str
) -> None:
    run(go_tool(INTEROP_CLIENT), tls_node, case)


def test_a_wrong_server_fails_the_client(go_tool: GoTool, node: ServedAddress) -> None:
    """The client reports failures: a node has no such service."""
    with pytest.raises(AssertionError, match="Unimplemented"):
        run(go_tool(INTEROP_CLIENT), node, "empty_unary")


def run(program: Path, address: ServedAddress, case: str) -> None:
    words = [str(program), f"--server_host={address.host}", f"--server_port={address.port}"]
    if address.authority is not None:
        words += ["--use_tls", "--use_test_ca", f"--ca_file={address.authority}"]
        words.append("--server_host_override=localhost")
    done = subprocess.run(
        [*words, f"--test_case={case}"],
        capture_output=True,
        text=True,
        timeout=_CASE_S_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{case}: {done.stderr}"
