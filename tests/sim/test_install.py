"""A state on its way to a learner: pieces, losses, restarts in between."""

from __future__ import annotations

import random

import pytest

from weft.dht import sending
from weft.dht.messages import AnyMessage, Appended, Install, Installed
from weft.dht.mutant import Mutant

from .troupe import Troupe, put

KEYS = 40


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PIECE_BYTES", 200)


def _far_behind(mutant: Mutant | None = None) -> Troupe:
    """`a` and `b` hold many values and have dropped the log: `c`, who joins, needs all of it."""
    troupe = Troupe("abc", mutant)
    troupe.active("ab")
    for number in range(KEYS):
        troupe.propose("a", put(f"k{number:02}", b"x" * 20))
    for _ in range(3):
        troupe.play()
        troupe.remind("a")
    assert troupe["a"].log.base == KEYS
    return troupe


def _same(troupe: Troupe) -> None:
    assert troupe.players["c"].state() == troupe.players["a"].state()
    assert len(troupe.players["c"].state()) >= KEYS


def test_a_learner_gets_the_whole_state_in_pieces_and_then_the_log() -> None:
    troupe = _far_behind()
    pieces: list[Install] = []

    def count(_: str, __: str, message: AnyMessage) -> bool:
        pieces.extend([message] if isinstance(message, Install) else [])
        return False

    troupe.place(1, "ab", "c")
    troupe.play(drop=count)
    assert len(pieces) > 5
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    _same(troupe)
    troupe.propose("a", put("later"))
    troupe.play()
    troupe.remind("a")
    troupe.play()
    _same(troupe)


def test_pieces_and_answers_that_are_lost_are_sent_again() -> None:
    rng = random.Random(5)

    def lossy(_: str, __: str, message: AnyMessage) -> bool:
        return isinstance(message, Install | Installed) and rng.random() < 0.5

    troupe = _far_behind()
    troupe.place(1, "ab", "c")
    for _ in range(200):
        troupe.play(drop=lossy)
        troupe.remind("a")
    troupe.play()
    assert troupe["c"].log.base == KEYS
    _same(troupe)


def test_pieces_that_come_twice_and_late_change_nothing() -> None:
    troupe = _far_behind()
    kept: list[tuple[str, str, AnyMessage]] = []

    def keep(sender: str, to: str, message: AnyMessage) -> bool:
        kept.append((sender, to, message))
        return False

    troupe.place(1, "ab", "c")
    troupe.play(drop=keep)
    troupe.propose("a", put("later"))
    troupe.play()
    installs = [each for each in kept if isinstance(each[2], Install)]
    for sender, to, message in reversed(installs):
        troupe.hear(sender, to, message)
        assert isinstance(troupe.flying[-1][2], Appended), "it has all of it already"
    troupe.remind("a")
    troupe.play()
    _same(troupe)


def test_a_learner_that_restarts_in_the_middle_begins_again() -> None:
    troupe = _far_behind()
    troupe.place(1, "ab", "c")
    troupe.play(drop=lambda _, __, message: isinstance(message, Install) and message.number > 3)
    assert 0 < len(troupe.players["c"].state()) < KEYS
    troupe.restart("c")
    assert not troupe["c"].empty  # it knows that what it has is a part only
    assert troupe["c"].log.end == 0
    troupe.place(1, "ab", "c", of="c")
    for _ in range(10):
        troupe.remind("a")
        troupe.play()
    _same(troupe)


def test_a_late_copy_of_the_first_piece_does_not_begin_again() -> None:
    troupe = _far_behind()
    kept: list[AnyMessage] = []

    def keep(_: str, __: str, message: AnyMessage) -> bool:
        first = isinstance(message, Install) and message.number == 0
        kept.extend([message] if first else [])
        return isinstance(message, Install) and message.number > 3

    troupe.place(1, "ab", "c")
    troupe.play(drop=keep)
    held = len(troupe.players["c"].state())
    troupe.hear("a", "c", kept[0])
    assert len(troupe.players["c"].state()) == held
    troupe.remind("a")
    troupe.play()
    _same(troupe)
    # And when the log has moved on and been trimmed, it still does not wipe what is whole.
    for number in range(5):
        troupe.propose("a", put(f"later {number}"))
        troupe.play()
        troupe.remind("a")  # a learner gets what has gathered
        troupe.play()
    assert troupe["c"].log.base > KEYS
    troupe.hear("a", "c", kept[0])
    assert isinstance(troupe.flying[-1][2], Appended)
    _same(troupe)


def test_half_a_state_is_never_taken_for_a_whole_one() -> None:
    """The mutant says that it is whole from the first piece on, and a restart believes it."""
    for marks_early in (False, True):
        mutant = Mutant()
        mutant.install_whole_early = marks_early
        troupe = _far_behind(mutant)
        troupe.place(1, "ab", "c")
        troupe.play(drop=lambda _, __, message: isinstance(message, Install) and message.number > 3)
        troupe.restart("c")
        troupe.place(1, "ab", "c", of="c")
        for _ in range(10):
            troupe.remind("a")
            troupe.play()
        level = troupe["a"].want_grow("c")
        same = troupe.players["c"].state() == troupe.players["a"].state()
        assert level
        assert same is not marks_early


def test_a_primary_that_changes_in_the_middle_starts_anew() -> None:
    troupe = _far_behind()
    troupe.place(1, "ab", "c")
    troupe.play(drop=lambda _, __, message: isinstance(message, Install) and message.number > 3)
    troupe.place(2, "ba", "c")
    for _ in range(5):
        troupe.play()
        troupe.remind("b")
    troupe.propose("b", put("later"))
    for _ in range(5):
        troupe.play()
        troupe.remind("b")
    _same(troupe)


def test_the_log_is_kept_from_where_a_state_was_taken_until_it_has_arrived() -> None:
    troupe = _far_behind()
    troupe.place(1, "ab", "c")
    troupe.play(drop=lambda _, __, message: isinstance(message, Install) and message.number > 3)
    for number in range(30):
        troupe.propose("a", put(f"meanwhile {number}"))
        troupe.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert troupe["a"].log.base == KEYS
    for _ in range(60):
        troupe.remind("a")
        troupe.play()
    assert troupe["c"].log.end == KEYS + 30
    _same(troupe)
    troupe.propose("a", put("k"))
    troupe.play()
    assert troupe["a"].log.base >= KEYS + 30


def test_a_learner_that_falls_silent_does_not_hold_the_log_for_ever() -> None:
    troupe = _far_behind()
    troupe.place(1, "ab", "c")
    troupe.players["a"].dead.add("c")
    troupe.remind("a")
    assert troupe["a"].installing_others == 0
