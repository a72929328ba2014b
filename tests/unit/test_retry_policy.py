"""Retries of a worker: growing pauses, with a random part, within limits."""

from __future__ import annotations

import pytest

import weft
from weft import limits


def test_pauses_double_up_to_the_longest() -> None:
    pause_s = weft.expo(1, 60)
    for attempt, full in enumerate([1, 2, 4, 8, 16, 32, 60, 60], 1):
        drawn = [pause_s(attempt) for _ in range(200)]
        assert full / 2 <= min(drawn) < max(drawn) <= full
    assert pause_s(10_000) <= 60


@pytest.mark.parametrize(("first", "most", "factor"), [(-1, 60, 2), (5, 1, 2), (1, 60, 0.5)])
def test_wrong_pauses_are_refused(first: float, most: float, factor: float) -> None:
    with pytest.raises(weft.InvalidArgument, match=r"first_s|factor"):
        weft.expo(first, most, factor=factor)


def test_a_pause_fits_into_a_nack() -> None:
    assert weft.Retry(backoff=lambda attempt: 1.5).delay_ms(1) == 1500
    assert weft.Retry(backoff=lambda attempt: -1).delay_ms(1) == 0
    assert weft.Retry(backoff=lambda attempt: 1e12).delay_ms(1) == limits.DELAY_MS_MAX


def test_attempts_and_delays_have_limits() -> None:
    with pytest.raises(weft.InvalidArgument, match="attempts"):
        weft.Retry(attempts=0)
    with pytest.raises(weft.InvalidArgument, match="delay_s"):
        weft.RetryLater(-1)
