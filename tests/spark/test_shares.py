"""Micro-batches split into input partitions: every message in exactly one; offsets never change."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InvalidArgument
from weft.spark.input_partitions import TASK_MESSAGES, TASKS_MAX, shares, tasks
from weft.spark.offset import Offset


@dataclass(frozen=True)
class FakeSlice:
    name: str
    messages: int


@dataclass(frozen=True)
class FakeReservation:
    number: int
    slices: tuple[FakeSlice, ...]
    bytes: int = 0

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.slices)


RESERVATIONS = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=6), max_size=4).map(
    lambda numbers: [
        FakeReservation(n, tuple(FakeSlice(f"{n}.{k}", count) for k, count in enumerate(sizes)))
        for n, sizes in enumerate(numbers, 5)
    ]
)


@given(RESERVATIONS, st.integers(1, 30))
def test_every_message_is_in_one_share(reserved: list[FakeReservation], at_least: int) -> None:
    cut = shares(reserved, at_least)
    found = [
        (piece.slice.name, index, piece.base + index)
        for share in cut
        for piece in share.pieces
        for index in range(piece.start, piece.stop)
    ]
    expected = []
    for each in reserved:
        place = each.number << 32
        for part in each.slices:
            expected += [(part.name, i, place + i) for i in range(part.messages)]
            place += part.messages
    assert found == expected
    total = len(expected)
    assert len(cut) == min(total, at_least)
    assert (
        {share.messages for share in cut} <= {total // len(cut), -(-total // len(cut))}
        if cut
        else True
    )


def test_tasks_follow_the_amount() -> None:
    assert tasks(0, 0, 4) == 0
    assert tasks(1, 10, 1) == 1
    assert tasks(3 * TASK_MESSAGES, 0, 1) == 3
    assert tasks(10, 1 << 40, 1) == 10
    assert tasks(1000 * TASK_MESSAGES, 0, 1) == TASKS_MAX
    assert tasks(1000 * TASK_MESSAGES, 0, 2 * TASKS_MAX) == 2 * TASKS_MAX


def test_offsets_name_their_reservations() -> None:
    assert list(Offset(7).numbers(Offset(4))) == [5, 6, 7]
    assert list(Offset(7).numbers(Offset(7))) == []
    assert list(Offset(2, begin=0).numbers(Offset(40))) == [1, 2]
    for offset in (Offset(7), Offset(2, begin=0)):
        assert Offset.parse(offset.json()) == offset


@pytest.mark.parametrize("said", [{}, {"r": "7"}, {"index": 3}, {"r": 1, "from": "x"}])
def test_offsets_of_something_else_are_refused(said: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="an offset of another source"):
        Offset.parse(said)
