"""The short forms of the campaigns with long tasks: each task starts once."""

from __future__ import annotations

import pytest

from tests.tasks.long_tasks import held, rolling

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_rolling_restart_starts_no_task_twice() -> None:
    assert rolling(2, 1) == [1, 1]


def test_a_task_that_holds_the_interpreter_for_three_leases_starts_once() -> None:
    assert held(3, lease_ms=1000) == [1]
