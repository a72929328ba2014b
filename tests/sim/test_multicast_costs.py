"""The messages between nodes of a multicast to several ordered queues."""

from __future__ import annotations

import pytest

from .multicast_costs import counted, total


@pytest.mark.parametrize("destinations", [2, 3, 4])
def test_a_multicast_to_d_ordered_queues_costs_8d_minus_2_messages(destinations: int) -> None:
    assert total(counted(destinations)) <= 8 * destinations - 2
