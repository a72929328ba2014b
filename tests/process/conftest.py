"""One node for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weft.testing import Cluster, cluster


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster() as running:
        yield running
