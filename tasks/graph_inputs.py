"""Results of parents, for the arguments of a task.

A worker remembers the outcomes that it has committed, so a chain on one worker reads nothing. Other
results are read from beside the parent's batch: a look-up of the parent's own block, then a
scan of the blocks of the batch, which finds the results of neighbours, too.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

import msgspec

from weft.client.key_group import KeyGroup
from weft.client.kv_core import KvCore
from weft.client.routing.session import ClientSession
from weft.errors import TaskFailed, UpstreamFailed, UsageError, WeftError
from weft.ids import MessageId

from . import outcome as outcomes
from .batch_results import BatchResults
from .call import result_prefix
from .execution import TaskRun
from .graph_arguments import filled
from .outcome import NIL, LargeResult, Outcome, PickledResult, TaskError, size_of, task_error

log = logging.getLogger("weft.tasks")

#: Outcomes that a worker remembers, and the largest of them in bytes.
REMEMBERED: Final = 20_000
_REMEMBERED_BYTES_MAX: Final = 4_096


class GraphInputs:
    """Belongs to one loop of a worker."""

    def __init__(self, session: ClientSession, app: str) -> None:
        self._session = session
        self._app = app
        self._known: OrderedDict[int, Outcome] = OrderedDict()

    def remember(self, number: int, outcome: Outcome) -> None:
        if size_of(outcome) > _REMEMBERED_BYTES_MAX:
            return
        self._known[number] = outcome
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def ready(self, run: TaskRun) -> bool:
        """Puts the results of parents into the arguments; False: the task is not to be run."""
        try:
            return await self._fill(run)
        except TaskFailed as error:  # a part of a large result has expired
            run.outcome = TaskError(UpstreamFailed.code, UpstreamFailed.__name__, error.message)
            return False
        except WeftError as error:
            log.warning("task %s waits for results: %s", run.message.id, error.message)
            run.give_up(error)
            return False

    async def _fill(self, run: TaskRun) -> bool:
        if run.call is None or run.call.graph is None or not run.call.graph.inputs:
            return True
        links = run.call.graph
        needed = dict.fromkeys(int.from_bytes(each.task, "big") for each in links.inputs)
        found = {number: self._known[number] for number in needed if number in self._known}
        missing = [number for number in needed if number not in found]
        if missing:
            found |= await self._read(missing)
        raws: dict[bytes, msgspec.Raw | PickledResult] = {}
        for number in needed:
            outcome = found.get(number)
            if outcome is None:
                self._gone(run, number)
                return False
            if isinstance(outcome, LargeResult):
                results = BatchResults(self._session, self._app, MessageId(number), None)
                outcome = await results.large(MessageId(number), outcome)
            if isinstance(outcome, PickledResult) and outcome.keys:
                results = BatchResults(self._session, self._app, MessageId(number), None)
                outcome = PickledResult(await results.pickled(MessageId(number), outcome))
            if isinstance(outcome, TaskError):
                run.failed_parents[str(MessageId(number))] = f"{outcome.error}: {outcome.text}"
            raws[number.to_bytes(16, "big")] = NIL if isinstance(outcome, TaskError) else outcome
        try:
            run.call = filled(run.call, links.inputs, raws.__getitem__)
        except UsageError as error:
            run.outcome = task_error(error)
            return False
        return True

    def _gone(self, run: TaskRun, number: int) -> None:
        text = f"the result of task {MessageId(number)} has expired: raise the ttl of app.graph"
        run.outcome = TaskError(UpstreamFailed.code, UpstreamFailed.__name__, text)

    async def _read(self, missing: list[int]) -> dict[int, Outcome]:
        by_batch: dict[int, list[MessageId]] = {}
        for number in map(MessageId, missing):
            by_batch.setdefault(number - number.index, []).append(number)
        found: dict[int, Outcome] = {}
        for first, numbers in by_batch.items():
            results = BatchResults(self._session, self._app, MessageId(first), None)
            if len(numbers) == 1:
                (number,) = numbers
                prefix = result_prefix(self._app, number)
                key = KeyGroup(self._session, prefix, number.partition).key(f"{number.index:x}")
                data = await KvCore(self._session).lookup(key)
                results.found |= outcomes.outcomes_in(data) if data is not None else {}
            if any(number.index not in results.found for number in numbers):
                await results.scan()
            for index, outcome in results.found.items():
                found[first + index] = outcome
                self.remember(first + index, outcome)
        return found
