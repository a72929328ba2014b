"""Bugs that are planted in a node for one run, each against one rule of the protocol.

Those that are switches of the cluster core are in ``weft.dht.mutant``. These here replace a part
of the engine or of the loom by a wrong one, as long as `planted` lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.dht.confirmation import Confirmations
from weft.dht.core import Core
from weft.dht.mutant import Mutant
from weft.dht.replica import Replica
from weft.proto import wire
from weft.server.engine import in_order
from weft.server.engine.dedup import DedupWindow
from weft.server.engine.state import Answered, State
from weft.server.loom.held import Held
from weft.server.loom.loom import Loom
from weft.server.loom.news import News

_expire = DedupWindow.expire
_learn = News.learn


def _not_held(loom: Loom, answered: Answered) -> None:
    loom._out.append(answered)


def _trims_all(replica: Replica, last: int) -> None:
    """Whether anybody still needs it or not, and whether it was applied or not."""
    if replica.log.end > replica.log.base:
        replica.log.trim(replica.log.end)
        replica._save()


def _never_lost(loom: Loom, number: int) -> bool:
    return False


def _no_barrier(confirmations: Confirmations, number: int) -> int:
    return 1 << 62


def _never_old(held: Held, now: int) -> list[tuple[Answered, int]]:
    """As if who leads could not change between a question and the answer to it."""
    return []


def _pending_not_needed(replica: Replica) -> list[str]:
    """As if whoever is pending had no say."""
    return [*replica.place.sync[1:]]


def _expires_early(window: DedupWindow, now: int) -> None:
    """The clock of whoever looks is ten minutes ahead."""
    _expire(window, now + 600_000_000)


def _buries_at_once(news: News) -> None:
    _learn(news)
    if news._reader.engine.state.strays:
        news._reader.engine.bury_strays()


def _counts_entries(news: News) -> int:
    """As if what was written without an entry were nothing."""
    return news._reader.core.replicas[news._reader.core.catalogue].log.end


def _answers_unsure(state: State, to: object, answer: wire.AnyAnswer, *more: Any, **_: Any) -> None:
    """As if whoever once led a partition could say what is not there."""
    state.answers.append(Answered(to, answer, *more))


def _no_leases(state: State, partition: int) -> dict[int, list[Any]]:
    """Whoever leads next knows nothing of what is lent of an ordered queue."""
    return {}


#: name -> (class or module, attribute, what is put in its place)
_PLANTS: dict[str, tuple[object, str, Callable[..., Any] | property]] = {
    "answers_not_held": (Loom, "_hold", _not_held),
    "trimmed_too_early": (Replica, "trim", _trims_all),
    "turn_ignored": (Loom, "_is_lost", _never_lost),
    "no_barrier": (Confirmations, "level", _no_barrier),
    "late_word_counts": (Held, "old", _never_old),
    "unheard_trusted": (Core, "met", Core.alive),
    "pending_not_asked": (Replica, "needed", property(_pending_not_needed)),
    "ordered_leases_lost": (in_order, "load", _no_leases),
    "dedup_by_clock": (DedupWindow, "expire", _expires_early),
    "strays_buried_early": (News, "learn", _buries_at_once),
    "not_sure": (State, "answer", _answers_unsure),
    "records_not_counted": (News, "_all", _counts_entries),
}
SWITCHES = tuple(name for name in vars(Mutant) if not name.startswith("_"))
ALL = (*SWITCHES, *_PLANTS)


@contextmanager
def planted(name: str) -> Iterator[str]:
    """The bug is there; gives the name of the switch to be set, if it is one."""
    if name in SWITCHES:
        yield name
        return
    owner, attribute, wrong = _PLANTS[name]
    right = getattr(owner, attribute)
    setattr(owner, attribute, wrong)
    try:
        yield ""
    finally:
        setattr(owner, attribute, right)
