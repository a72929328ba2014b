"""Results of the tasks of one batch, at a reader in any process.

The writer puts the blocks of a batch on the batch's partition, under one prefix, so a reader finds
them with one scan of one node and then waits for changes there. Outcomes once read are kept:
results never change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from weft.client.key_group import KeyGroup
from weft.client.kv_core import KvCore
from weft.client.routing.session import ClientSession
from weft.errors import TaskFailed
from weft.ids import MessageId

from . import outcome as outcomes
from .call import result_prefix
from .outcome import LargeResult, Outcome, PickledResult, TaskError
from .pickled_result import unpickle_result
from .signature import plain_result

#: One wait at the node.
_WAIT_MS: Final = 20_000


class BatchResults:
    """Coroutines over a client's session, like the other cores of the client."""

    def __init__(
        self,
        session: ClientSession,
        app: str,
        task_id: MessageId,
        result: msgspec.msgpack.Decoder[Any] | None,
        pickle: bool = False,
    ) -> None:
        self.session = session
        self._app = app
        #: The app of the reader unpickles.
        self._pickle = pickle
        self._prefix = result_prefix(app, task_id)
        self._group = KeyGroup(session, self._prefix, task_id.partition)
        self._position = -1
        #: Decodes a result by the task's type, or without a known type.
        self.decode: Callable[[msgspec.Raw], Any] = result.decode if result else plain_result
        self.found: dict[int, Outcome] = {}

    async def wait(self, indexes: Collection[int], deadline: float | None) -> bool:
        """Waits for the outcomes of the indexes; False if some are missing at the deadline."""
        if self._has(indexes):
            return True
        if self._position < 0:
            self._position, entries = await self._group.begin()
            for entry in entries:
                self.found.update(outcomes.outcomes_in(entry.value))
        while not self._has(indexes):
            wait_ms = _WAIT_MS
            if deadline is not None:
                wait_ms = min(wait_ms, int((deadline - time.monotonic()) * 1000))
                if wait_ms <= 0:
                    return False
            self._position, changes = await self._group.changes(self._position, wait_ms)
            if not changes and wait_ms == _WAIT_MS:
                await self.scan()  # see `KeyGroup.begin`
            for change in changes:
                if change.resync:
                    await self.scan()
                elif change.value is not None:
                    self.found.update(outcomes.outcomes_in(change.value))
        return True

    async def scan(self) -> None:
        """Reads all present blocks of the batch."""
        for entry in await self._group.scan():
            self.found.update(outcomes.outcomes_in(entry.value))

    def absorb(self, value: bytes) -> dict[int, Outcome]:
        """Takes a block from another watch, and returns the outcomes."""
        new = outcomes.outcomes_in(value)
        self.found.update(new)
        return new

    @property
    def prefix(self) -> str:
        return self._prefix

    def _has(self, indexes: Collection[int]) -> bool:
        return self.found.keys() >= set(indexes) if len(indexes) > 1 else all(
            index in self.found for index in indexes
        )  # fmt: skip

    async def value(self, task_id: MessageId, index: int) -> Any:
        """Returns the result of an ended task; raises the TaskFailed of a failed one."""
        outcome = self.found[index]
        if isinstance(outcome, TaskError):
            raise outcome.exception(task_id)
        if isinstance(outcome, LargeResult):
            outcome = msgspec.Raw(await self._chunks(task_id, outcome.keys))
        if isinstance(outcome, PickledResult):
            data = await self.pickled(task_id, outcome) if self._pickle else b""
            return unpickle_result(self._app, task_id, data, self._pickle)
        return self.decode(outcome)

    async def pickled(self, task_id: MessageId, result: PickledResult) -> bytes:
        """The pickled result of a task, also from its chunks."""
        return await self._chunks(task_id, result.keys) if result.keys else result.data

    async def large(self, task_id: MessageId, result: LargeResult) -> msgspec.Raw:
        """The encoded result of a task, from its chunks."""
        return msgspec.Raw(await self._chunks(task_id, result.keys))

    async def _chunks(self, task_id: MessageId, keys: list[str]) -> bytes:
        kv = KvCore(self.session)
        parts = [await kv.lookup(key) for key in keys]
        if None in parts:
            raise TaskFailed(f"the result of task {task_id} has expired in part: read it earlier")
        return b"".join(part for part in parts if part is not None)
