"""Settings for every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Hypothesis draws the same examples in every run, and nothing of it depends on the clock of a busy
# machine. A search that differs every time is for a developer: HYPOTHESIS_PROFILE=search.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("weft", PATIENT, derandomize=True, max_examples=100)
settings.register_profile("search", PATIENT, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "weft"))

# A shell that starts the tests in the background ignores SIGINT, and every process started from
# here would inherit that; tests that interrupt a command need the default handler.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def same_servers() -> Iterator[None]:
    """`weft worker` and `weft provision` name the servers for their children in the environment;
    run in this process, they would name them for later tests, too."""
    before = os.environ.get("WEFT_SERVERS")
    yield
    if before is None:
        os.environ.pop("WEFT_SERVERS", None)
    else:
        os.environ["WEFT_SERVERS"] = before
