"""Each test gets a fresh node in virtual time."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig


@pytest.fixture
def rig() -> Rig:
    """A node with one empty queue, `q`, with leases of ten seconds."""
    rig = Rig()
    rig.create("q", lease_ms=10_000)
    return rig
