"""An exact check of one table key's history: some sequential order explains all answers.

Wing and Gong's search with a memo, as in ``tests/mpsc/history.py``: an operation may come next if
no other one that ended before it began is still to be placed. A node of the search is the set of
placed operations and the row that they leave. An operation without an answer (an *untold* call) may
take effect at any time after it began, or never.

A row may expire at any moment from its insert's beginning plus the time to live on, and never
before: an operation that ended earlier must find the row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from weft.proto import wire

#: The version in the answer of a write that was part of a batch: the answer tells none.
BATCHED: Final = -1
#: A search that needs more states is reported instead of running for hours.
STATES_MAX: Final = 300_000

Single = wire.Put | wire.RemoveKey | wire.AppendKey | wire.SwapKey | wire.LookupMany


@dataclass(slots=True, eq=False)
class KeyCall:
    """A call for one key; the keys of a batch are calls with the same times."""

    request: Single
    began: float
    ended: float = math.inf
    #: `KeyWritten`, `Swapped`, or a `FoundRows` of one key; None: no answer.
    answer: wire.AnyAnswer | None = None


class KeyState(NamedTuple):
    value: bytes | None = None
    #: None: written by a call without an answer, which would have told.
    version: int | None = 0
    #: The highest version known so far.
    highest: int = 0
    #: The row expires at this time or later.
    expires: float = math.inf


class Undecided(Exception):
    """The search visited STATES_MAX states without an end."""


def linearizable(calls: Sequence[KeyCall]) -> bool:
    """True if some order of the calls, within their times, gives all the answers."""
    told = [call for call in calls if call.answer is not None]
    #: Optional: a call without an answer may be placed or left out. A lookup changes nothing.
    untold = [
        call
        for call in calls
        if call.answer is None and not isinstance(call.request, wire.LookupMany)
    ]
    return _Search(sorted(told, key=lambda call: call.ended), untold).run()


class _Search:
    """Depth first; two rules keep the search exact and small.

    - A told call that read, or refused to write, comes next if it may come next and leaves the
      state as it is: moving it forward in an order that explains the answers gives another such
      order. This does not hold for writes, which may restore a value later.
    - Of two nodes with the same told calls and the same state, the one with fewer untold calls
      placed can reach whatever the other can.
    """

    def __init__(self, told: Sequence[KeyCall], untold: Sequence[KeyCall]) -> None:
        self._told = told
        self._untold = untold
        #: For each set of told calls and state, the sets of untold calls with which it was met.
        self._met: defaultdict[tuple[int, KeyState], list[int]] = defaultdict(list)
        self._states = 0

    def run(self) -> bool:
        all_told = (1 << len(self._told)) - 1
        open_ = [(0, 0, KeyState())]
        while open_:
            told, untold, state = open_.pop()
            if told == all_told:
                return True
            met = self._met[told, state]
            if any(not each & ~untold for each in met):
                continue
            met.append(untold)
            self._states += 1
            if self._states > STATES_MAX:
                raise Undecided(f"no order and no proof of none after {STATES_MAX} states")
            open_ += self._next(told, untold, state)
        return False

    def _next(self, told: int, untold: int, state: KeyState) -> list[tuple[int, int, KeyState]]:
        """The nodes after this one; the last is visited first."""
        rest = [at for at in range(len(self._told)) if not told >> at & 1]
        end = self._told[rest[0]].ended  # calls are sorted by their ends
        found: list[tuple[int, int, KeyState]] = []
        for at in reversed(rest):
            call = self._told[at]
            if call.began > end:
                continue
            for after in _after(call, state, end):
                if after == state and _is_read(call):
                    return [(told | 1 << at, untold, state)]
                found.append((told | 1 << at, untold, after))
        optional = [
            (told, untold | 1 << at, after)
            for at, call in enumerate(self._untold)
            if not untold >> at & 1 and call.began <= end
            for after in _after(call, state, end)
            if after != state
        ]
        return optional + found


def _is_read(call: KeyCall) -> bool:
    """True for an answered call that wrote nothing."""
    match call.answer:
        case wire.KeyWritten():
            return not call.answer.done
        case wire.Swapped():
            return not call.answer.swapped
    return isinstance(call.request, wire.LookupMany)


def _after(call: KeyCall, state: KeyState, end: float) -> Iterator[KeyState]:
    """The states after the call, for the answers that agree with its answer.

    `end`: the first end of a call that is not placed. A row that expires before this call does so
    before all of these ends, since the calls come after it.
    """
    yield from _applied(call, state)
    if state.value is not None and end >= state.expires and state.expires < math.inf:
        gone = KeyState(None, 0, max(state.highest, state.version or 0))
        yield from _applied(call, gone)


def _applied(call: KeyCall, state: KeyState) -> Iterator[KeyState]:
    request, answer, value = call.request, call.answer, state.value
    match request:
        case wire.LookupMany():
            assert isinstance(answer, wire.FoundRows | None)
            if answer is None:
                yield state
            elif answer.values[0] == value:
                yield from _read(state, answer.versions[0])
        case wire.Put():
            expires = call.began + request.ttl_ms * 1000 if request.ttl_ms else math.inf
            for holds in _holds(request.if_version, state):
                if holds:
                    yield from _written(call, state, request.value, expires)
                else:
                    yield from _kept(call, state)
        case wire.RemoveKey():
            for holds in _holds(request.if_version, state):
                if holds and value is not None:
                    yield from _written(call, state, None, math.inf)
                else:
                    yield from _kept(call, state)
        case wire.AppendKey():
            long = (value or b"") + request.value
            if not isinstance(answer, wire.KeyWritten) or answer.size == len(long):
                yield from _written(call, state, long, state.expires)
        case wire.SwapKey():
            yield from _swapped(call, request, state)


def _swapped(call: KeyCall, request: wire.SwapKey, state: KeyState) -> Iterator[KeyState]:
    answer, fits = call.answer, state.value == request.old
    assert isinstance(answer, wire.Swapped | None)
    if answer is not None and (answer.swapped, answer.current) != (fits, state.value):
        return
    if fits and (request.new is not None or state.value is not None):
        version = None if answer is None or request.new is None else answer.version
        yield from _new(state, request.new, version, math.inf)
    else:
        yield state


def _holds(if_version: int, state: KeyState) -> list[bool]:
    """Whether a condition holds; both, if the version is not known."""
    if if_version <= 0:
        return [if_version < 0 or state.value is None]
    if state.value is not None and state.version is None:
        return [True, False]
    return [state.value is not None and state.version == if_version]


def _written(
    call: KeyCall, state: KeyState, value: bytes | None, expires: float
) -> Iterator[KeyState]:
    if call.answer is None:
        yield from _new(state, value, None, expires)
    elif isinstance(call.answer, wire.KeyWritten) and call.answer.done:
        known = None if call.answer.version == BATCHED else call.answer.version
        yield from _new(state, value, known, expires)


def _kept(call: KeyCall, state: KeyState) -> Iterator[KeyState]:
    if call.answer is None:
        yield state
    elif isinstance(call.answer, wire.KeyWritten) and not call.answer.done:
        if call.answer.version == BATCHED:
            yield state
        else:
            yield from _read(state, call.answer.version)


def _read(state: KeyState, version: int) -> Iterator[KeyState]:
    """The state after its version was read."""
    if state.version is None and version > state.highest:
        yield state._replace(version=version, highest=version)
    elif state.version == version:
        yield state


def _new(
    state: KeyState, value: bytes | None, version: int | None, expires: float
) -> Iterator[KeyState]:
    """The state after a write: every version is higher than all before."""
    if version is not None and version <= state.highest:
        return
    highest = max(state.highest, version or 0)
    if value is None:
        yield KeyState(None, 0, highest)
    else:
        yield KeyState(value, version, highest, expires)
