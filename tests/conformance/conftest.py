"""Servers under test, each as an address: the suites know nothing else of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.served_address import ServedAddress
from tests.contract.authority import Authority
from tests.process.live_node import LiveNode
from tools.languages import go_programs
from tools.languages.build_cache import Missing
from tools.languages.go_programs import GoProgram

GoTool = Callable[[GoProgram], Path]


@pytest.fixture(scope="session")
def go_tool() -> GoTool:
    """Builds a pinned Go program once, or skips the test with what is missing."""

    def build(program: GoProgram) -> Path:
        try:
            return go_programs.tool(program)
        except Missing as error:
            pytest.skip(f"{program.name}: {error}")

    return build


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedAddress]:
    """A node with default settings."""
    folder = tmp_path_factory.mktemp("conformance")
    with LiveNode(folder / "node") as running:
        yield ServedAddress.of(running.start().grpc)


@pytest.fixture(scope="session")
def tls_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedAddress]:
    """A node with a certificate."""
    folder = tmp_path_factory.mktemp("conformance-tls")
    authority = Authority(folder)
    pair = authority.sign("server")
    with LiveNode(folder / "node", tls_cert=pair.cert, tls_key=pair.key) as running:
        yield ServedAddress.of(running.start().grpc, authority.pair.cert)
