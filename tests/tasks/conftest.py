"""One node for all tests of a file, and the fixtures that users have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weft.tasks.testing import inline_tasks, task_worker
from weft.testing import Cluster, cluster

__all__ = ["inline_tasks", "task_worker"]


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster(durability="os") as running:
        yield running
