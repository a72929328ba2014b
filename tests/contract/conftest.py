"""One node for all tests of a file, and one for a test that stops it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
