"""Logs: the last lsn on which two logs agree, and the effect of cutting, trimming and a restart."""

from __future__ import annotations

import random

import pytest

from weft.dht.log import Log, agree, encode
from weft.dht.messages import Lineage
from weft.errors import StoreDamaged
from weft.persistence import layout
from weft.persistence.memory import MemoryStore
from weft.persistence.overlay import Overlay

from .replica_rig import put


def test_how_far_two_logs_agree() -> None:
    start = (0, 0)
    assert agree([start], 0, [start, (1, 1)], 5) == 0
    assert agree([start, (1, 1)], 5, [start, (1, 1)], 3) == 3
    assert agree([start, (1, 1), (2, 4)], 6, [start, (1, 1), (2, 4)], 5) == 5
    assert agree([start, (1, 1), (2, 4)], 6, [start, (1, 1), (3, 4)], 6) == 3


def test_a_trimmed_log_agrees_from_its_base_on() -> None:
    assert agree([(2, 10)], 20, [(0, 0), (1, 1), (2, 5)], 15) == 15
    assert agree([(2, 10), (3, 12)], 20, [(0, 0), (2, 1), (4, 12)], 30) == 11
    # The other log ends before this one begins: only a snapshot helps.
    assert agree([(2, 10)], 20, [(0, 0), (2, 5)], 8) is None
    assert agree([(3, 10)], 20, [(0, 0), (1, 1)], 8) is None


def _epochs(rng: random.Random) -> list[list[int]]:
    """Histories that the protocol allows, as the epoch of each entry.

    An epoch has one primary, which continues an existing log; other replicas have a prefix of the
    entries that the primary wrote.
    """
    logs: list[list[int]] = [[]]
    for epoch in range(1, rng.randrange(2, 8)):
        log = rng.choice(logs) + [epoch] * rng.randrange(0, 4)
        logs.append(log)
        kept = [each for each in log if each < epoch]
        logs.append(log[: rng.randrange(len(kept), len(log) + 1)])
    return logs


def _lineage(epochs: list[int], base: int) -> Lineage:
    lineage = [(epochs[base - 1] if base else 0, base)]
    for lsn in range(base + 1, len(epochs) + 1):
        if epochs[lsn - 1] != lineage[-1][0]:
            lineage.append((epochs[lsn - 1], lsn))
    return lineage


def test_agreement_is_the_longest_common_part_whatever_was_trimmed() -> None:
    rng = random.Random(1)
    trimmed_beyond = 0
    for _ in range(4000):
        logs = _epochs(rng)
        left, right = rng.choice(logs), rng.choice(logs)
        common = 0
        while common < min(len(left), len(right)) and left[common] == right[common]:
            common += 1
        bases = rng.randint(0, len(left)), rng.randint(0, len(right))
        found = agree(
            _lineage(left, bases[0]), len(left), _lineage(right, bases[1]), len(right)
        )  # fmt: skip
        if max(bases) <= common:
            assert found == common, (left, right, bases)
        else:
            trimmed_beyond += 1
            assert found is None, (left, right, bases)
    assert trimmed_beyond > 500


# --- one log ----------------------------------------------------------------------------------


class Kept:
    """A log and its disk."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.overlay = Overlay(self.store)
        self.log = Log(0, self.overlay)

    def write(self) -> None:
        self.store.write(self.overlay.take(), sync=True)

    def read_back(self, base: int, epoch: int) -> Log:
        again = Log(0, Overlay(self.store))
        again.recover(base, epoch)
        return again


def _filled() -> Kept:
    kept = Kept()
    for lsn, epoch in enumerate((1, 1, 2, 2, 4), 1):
        body = layout.body(0, lsn)
        assert kept.log.append(epoch, encode(put(f"k{lsn}")), [(body, layout.seal(body, b"b"))])
    kept.write()
    return kept


def test_a_log_is_read_back_as_it_was() -> None:
    kept = _filled()
    assert kept.log.lineage == [(0, 0), (1, 1), (2, 3), (4, 5)]
    again = kept.read_back(0, 0)
    assert (again.lineage, again.end) == (kept.log.lineage, 5)
    assert [entry[:2] for entry in again.entries(2, 3)] == [(2, 1), (3, 2), (4, 2)]


def test_trimming_keeps_the_epoch_of_the_last_one_that_was_dropped() -> None:
    kept = _filled()
    kept.log.trim(4)
    kept.write()
    assert kept.log.lineage == [(2, 4), (4, 5)]
    assert kept.log.has(4, 2)
    assert not kept.log.has(3, 2)
    assert kept.read_back(4, 2).lineage == kept.log.lineage
    kept.log.trim(2)  # an outdated trim
    assert kept.log.base == 4


def test_a_cut_in_the_middle_of_an_epoch() -> None:
    kept = _filled()
    kept.log.cut(4)
    kept.write()
    assert (kept.log.lineage, kept.log.end) == ([(0, 0), (1, 1), (2, 3)], 3)
    assert kept.read_back(0, 0).end == 3


def test_a_gap_is_damage() -> None:
    kept = _filled()
    kept.store.write([(layout.log(0, 3), None)], sync=True)
    with pytest.raises(StoreDamaged, match="lost entries 3 to 3"):
        kept.read_back(0, 0)


def test_a_flipped_bit_is_damage() -> None:
    kept = _filled()
    kept.store.corrupt(layout.log(0, 3), random.Random(0))
    with pytest.raises(StoreDamaged, match="checksum"):
        kept.read_back(0, 0)


def test_a_restarted_log_is_empty_and_goes_on_after_its_base() -> None:
    kept = _filled()
    kept.log.append(4, encode(put("not written yet")), [])
    kept.log.restart(9, 5)
    kept.write()
    assert kept.log.append(6, encode(put("next")), []) == 10
    kept.write()
    assert kept.read_back(9, 5).lineage == [(5, 9), (6, 10)]
