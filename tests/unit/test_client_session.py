"""A session learns which queues are ordered, from the partitions that store its batches."""

from __future__ import annotations

from typing import cast

import pytest

from weft.client.routing.router import Router
from weft.client.routing.session import ClientSession

ORDERED_PLACE = 7


class OnePlace:
    """A router that maps every queue name to one partition."""

    def of_text(self, text: str) -> int:
        return ORDERED_PLACE


@pytest.mark.parametrize("answers", [1, 2, 3, 4])
def test_any_number_of_forwarded_pushes_tells_that_a_queue_is_ordered(answers: int) -> None:
    session = ClientSession(cast(Router, OnePlace()))
    for _ in range(answers):
        session.learn_place("q", 3, ORDERED_PLACE)
    assert session.ordered == {"q"}
    for _ in range(answers):
        session.learn_place("q", ORDERED_PLACE, 5)
    assert session.ordered == set()


def test_a_push_that_was_stored_where_it_went_tells_nothing() -> None:
    session = ClientSession(cast(Router, OnePlace()))
    session.learn_place("q", 3, 3)
    assert session.ordered == set()
    session.learn_place("q", 3, ORDERED_PLACE)
    session.learn_place("q", ORDERED_PLACE, ORDERED_PLACE)
    assert session.ordered == {"q"}
