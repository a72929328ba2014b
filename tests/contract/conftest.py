"""Fixtures: a node for a file or for one test, clients of a fake cluster, an edge, and a link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.client_rig import Rig
from tests.contract.edge_rig import EdgeRig
from tests.contract.fake_nodes import FakeCluster, fake_nodes
from tests.contract.link_rig import LinkRig
from tests.contract.served import Served, serve


@pytest.fixture(scope="module", params=["native", "grpcio"])
def grpc_server(request: pytest.FixtureRequest) -> str:
    """Both servers of gRPC run the same tests."""
    return str(request.param)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, grpc_server: str) -> Iterator[Served]:
    served = serve(tmp_path_factory.mktemp("data"), grpc_server=grpc_server)
    yield served
    served.close()


@pytest.fixture
def own(tmp_path: Path, grpc_server: str) -> Iterator[Served]:
    """A node for tests that stop it."""
    served = serve(tmp_path, grace_ms=1000, grpc_server=grpc_server)
    yield served
    served.close()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_nodes(3) as cluster:
        yield cluster


@pytest.fixture(params=["blocking", "async"])
def rig(request: pytest.FixtureRequest, cluster: FakeCluster) -> Iterator[Rig]:
    rig = Rig(request.param, cluster)
    yield rig
    for thread in rig.threads:
        thread.join()


@pytest.fixture
def edge_rig() -> Iterator[EdgeRig]:
    rig = EdgeRig()
    yield rig
    rig.close()


@pytest.fixture(params=["blocking", "async"])
def link_rig(request: pytest.FixtureRequest) -> Iterator[LinkRig]:
    rig = LinkRig(request.param)
    yield rig
    for peer in rig.peers:
        peer.close()
