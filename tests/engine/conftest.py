"""Each test gets a fresh node in virtual time; hypothesis is deterministic from run to run."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.engine.rig import Rig

# A search that differs every time is for a developer: HYPOTHESIS_PROFILE=search.
settings.register_profile("weft", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "weft"))


@pytest.fixture
def rig() -> Rig:
    """A node with one empty queue, `q`, with leases of ten seconds."""
    rig = Rig()
    rig.create("q", lease_ms=10_000)
    return rig
