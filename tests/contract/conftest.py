"""One node for all tests of a file, one for a test that stops it; clients of a fake cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.client_rig import Rig
from tests.contract.fake_nodes import FakeCluster, fake_nodes
from tests.contract.served import Served, serve


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = serve(tmp_path_factory.mktemp("data"))
    yield served
    served.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    """A node for tests that stop it."""
    served = serve(tmp_path, grace_ms=1000)
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
