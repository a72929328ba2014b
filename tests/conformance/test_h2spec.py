"""A node's gRPC port against h2spec: every rule of RFC 7540 and RFC 7541 that a client can check.

The suite is built by Go from its pinned source; without Go or its proxy the tests are skipped.
"""

from __future__ import annotations

import pytest

from tests.conformance import h2spec
from tests.conformance.conftest import GoTool
from tests.conformance.served_address import ServedAddress
from tools.languages.go_programs import H2SPEC

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


@pytest.mark.parametrize("strict", [False, True], ids=["plain", "strict"])
def test_a_node_follows_http2(go_tool: GoTool, node: ServedAddress, strict: bool) -> None:
    report = h2spec.run(go_tool(H2SPEC), node, strict=strict)
    _check(report, h2spec.STRICT_CASES if strict else h2spec.CASES)


def test_a_node_follows_http2_over_tls(go_tool: GoTool, tls_node: ServedAddress) -> None:
    report = h2spec.run(go_tool(H2SPEC), tls_node, strict=True)
    _check(report, h2spec.STRICT_CASES)


def _check(report: h2spec.Report, cases: int) -> None:
    assert report.total == cases, "h2spec ran another number of cases"
    assert len(report.skipped) <= 1, report.skipped  # no limit of streams: nothing to exceed
    assert not report.failed, "\n".join(report.failed)
