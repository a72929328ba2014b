"""watch: the changes of keys, as they are committed.

A watcher asks for the changes of some partitions after a version of each (a long poll, as a waiting
pop). Its answer waits in the commit gate like the answer of the write itself, so a watcher never
sees a change that a failover could undo. The history of a partition is in the memory of its primary
(``table_history``): after a failover, or too long a pause, the partition is reported as lost, and
the watcher reads the rows again.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from weft import limits
from weft.errors import InvalidArgument, Overloaded
from weft.proto import wire

from .handlers import handles
from .state import EngineState
from .table_history import TableHistory
from .table_scan import check_prefix, span_of
from .table_state import KeyWatcher

#: A history without a watcher's request for so long ends. A watcher asks again at the latest after
#: `WAIT_MS_MAX`.
_KEPT_US: Final = 2 * limits.WAIT_MS_MAX * 1000
#: Bytes of changes in one answer, except that all changes of one version stay together.
_ANSWER_BYTES: Final = limits.MIB
_MOVED: Final = wire.Failure("NOT_PRIMARY", "another node leads a watched partition", True)


@handles(wire.WatchKeys)
def watch_keys(state: EngineState, request: wire.WatchKeys, to: object) -> None:
    limits.check_range("wait_ms", request.wait_ms, 0, limits.WAIT_MS_MAX)
    check_prefix(request.prefix)
    numbers = span_of(state, request.partitions)
    if len(request.after) != len(numbers):
        raise InvalidArgument(f"{len(numbers)} partitions have {len(request.after)} versions")
    watchers = state.table.watchers
    if to in watchers:
        return  # the same request, resent by the caller
    answer, rests_on = _changes(state, request, numbers)
    begins = -1 in request.after
    if answer.keys or answer.lost or begins or not request.wait_ms:
        state.answer(to, answer, (), rests_on)
        return
    if len(watchers) >= limits.TABLE_WATCHERS_MAX:
        raise Overloaded(f"{limits.TABLE_WATCHERS_MAX} watches wait at this node already")
    number = state.entropy()
    watchers[to] = KeyWatcher(number, to, request, numbers)
    state.table.watcher_names[number] = to
    state.table.watch_timers.set(number, state.now + request.wait_ms * 1000)
    for partition in numbers:
        state.table.waiting_at.setdefault(partition, {})[to] = None


def _changes(
    state: EngineState, request: wire.WatchKeys, numbers: list[int]
) -> tuple[wire.KeyChanges, set[int]]:
    """The answer as of now, and the partitions that it rests on."""
    answer, rests_on, size = wire.KeyChanges([], [], [], [], []), set[int](), 0
    for number, after in zip(numbers, request.after, strict=True):
        history = _history(state, number)
        # A version above the last lsn is of another cluster, or of data that was lost.
        found = history.since(after) if 0 <= after <= state.lsns[number] else None
        if found is None:
            answer.positions.append(state.lsns[number])
            rests_on.add(number)
            if after >= 0:
                answer.lost.append(number)
            continue
        position = after
        for change in found:
            if size >= _ANSWER_BYTES and change.version != position:
                break
            position = change.version
            if _matches(request, change.key):
                rests_on.add(number)
                answer.keys.append(change.key)
                answer.values.append(change.value)
                answer.versions.append(change.version)
                size += len(change.key) + len(change.value or b"")
        answer.positions.append(position)
    return answer, rests_on


def _matches(request: wire.WatchKeys, key: str) -> bool:
    return key == request.prefix if request.exact else key.startswith(request.prefix)


def _history(state: EngineState, partition: int) -> TableHistory:
    histories = state.table.histories
    history = histories.get(partition)
    if history is None:
        history = histories[partition] = TableHistory(state.lsns[partition])
    history.watched = state.now
    return history


def serve(state: EngineState) -> None:
    """Answers the watchers of the partitions changed in this round."""
    table = state.table
    changed, table.changed = table.changed, set()
    for partition in changed:
        for to in list(table.waiting_at.get(partition, ())):
            watcher = table.watchers[to]
            answer, rests_on = _changes(state, watcher.request, watcher.numbers)
            if answer.keys or answer.lost:
                end(state, watcher)
                state.answer(to, answer, (), rests_on)
            else:  # changes of other keys must not count as missed when the history drops them
                request = structs.replace(watcher.request, after=answer.positions)
                table.watchers[to] = watcher._replace(request=request)


def time_out(state: EngineState, number: int) -> None:
    """Answers a watcher whose wait is over; the positions have moved past other keys."""
    to = state.table.watcher_names.get(number)
    if to is not None:
        watcher = state.table.watchers[to]
        end(state, watcher)
        answer, rests_on = _changes(state, watcher.request, watcher.numbers)
        state.answer(to, answer, (), rests_on)


def cancel(state: EngineState, to: object) -> None:
    """Ends the wait of a caller that is gone, or of a node that stops."""
    watcher = state.table.watchers.get(to)
    if watcher is not None:
        end(state, watcher)
        state.answer(to, wire.KeyChanges(watcher.request.after, [], [], [], []))


def end(state: EngineState, watcher: KeyWatcher) -> None:
    """Unregisters a watcher."""
    table = state.table
    del table.watchers[watcher.to]
    del table.watcher_names[watcher.number]
    table.watch_timers.clear(watcher.number)
    for partition in watcher.numbers:
        waiting = table.waiting_at[partition]
        del waiting[watcher.to]
        if not waiting:
            del table.waiting_at[partition]


def abandon(state: EngineState, partitions: set[int]) -> None:
    """Ends the waits at partitions that this node no longer leads."""
    for partition in partitions:
        state.table.histories.pop(partition, None)
        for to in list(state.table.waiting_at.get(partition, ())):
            end(state, state.table.watchers[to])
            state.answer(to, _MOVED)


def forget(state: EngineState) -> None:
    """Ends the histories of partitions that no client watches any more."""
    histories, waiting = state.table.histories, state.table.waiting_at
    for number in [n for n, each in histories.items() if state.now - each.watched > _KEPT_US]:
        if number not in waiting:
            del histories[number]
