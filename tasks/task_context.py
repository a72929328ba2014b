"""The running task: id, attempt, and effects in Weft.

Effects are gathered while the task runs and happen with its result: in the same commit for a task
with once="effects" or once="start", after the run for once="none". A failed task has no
effects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft import limits
from weft.client import arguments
from weft.client.producer.batch import Body, check_body, check_headers
from weft.errors import UsageError
from weft.ids import MessageId

from .blocks.block import TTL_S, Block
from .call import progress_key
from .task_trace import carry

if TYPE_CHECKING:
    from .gangs.gang_member import Gang
    from .graph import Graph
    from .graph_plan import GraphPlan
    from .task import AppTask


#: The least time between two reports of a task's progress.
PROGRESS_S: Final = 1.0


@dataclass(frozen=True)
class EffectPush:
    """A message pushed by the task."""

    queue: str
    body: bytes
    headers: dict[str, str] | None = None
    delay_ms: int = 0
    priority: int = 0


@dataclass(frozen=True)
class EffectWrite:
    """A key of the hash table, written by the task."""

    key: str
    value: bytes
    ttl_ms: int | None = None


@dataclass
class TaskEffects:
    pushes: list[EffectPush] = field(default_factory=list)
    writes: list[EffectWrite] = field(default_factory=list)

    #: Graphs that start with the task's success.
    graphs: list[GraphPlan] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.pushes or self.writes or self.graphs)


class TaskContext:
    """The running task: `weft.tasks.current()`.

    ctx = weft.tasks.current()
    ctx.push("thumbnails", b"a.png")
    print(ctx.id, ctx.attempt)
    """

    __slots__ = (
        "_blocks", "_effects", "_gang", "_number", "_reported", "attempt", "body",
        "failed_parents", "kv", "task",
    )  # fmt: skip

    def __init__(
        self, task: AppTask[Any, Any], number: int, attempt: int, body: bytes = b""
    ) -> None:
        self.task = task
        #: The number of the start, from 1.
        self.attempt = attempt
        self._number = number
        self._reported = float("-inf")
        self._effects = TaskEffects()
        self._gang: Gang | None = None
        #: Of a task of a graph with on_failure="run": the errors of failed parents, by task id.
        self.failed_parents: dict[str, str] = {}
        self._blocks = 0
        #: The encoded call.
        self.body = body
        #: The task's writes to the hash table.
        self.kv = ContextKv(self._effects)

    @property
    def id(self) -> str:
        """The task's id: the key of idempotent effects outside of Weft."""
        return str(MessageId(self._number))

    @property
    def gang(self) -> Gang:
        """The gang of the running member: rank, size, members. Raises UsageError in other tasks."""
        if self._gang is None:
            raise UsageError(f"task {self.task.name} is no gang: define it with app.gang(size=...)")
        return self._gang

    @gang.setter
    def gang(self, gang: Gang) -> None:
        self._gang = gang

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def effects(self) -> TaskEffects:
        return self._effects

    def push(
        self,
        queue: str,
        body: Body,
        *,
        headers: dict[str, str] | None = None,
        delay_ms: int = 0,
        priority: int = 0,
    ) -> None:
        """Pushes a message to any queue when the task has succeeded. Raises InvalidArgument."""
        arguments.check_queue_name("queue", queue)
        arguments.check_push_options(delay_ms, priority)
        if headers is not None:
            check_headers([headers], 1)
        headers = carry(queue, headers)
        self._effects.pushes.append(
            EffectPush(queue, check_body(body), headers, delay_ms, priority)
        )

    def progress(self, done: float, text: str = "") -> None:
        """Reports the progress, 0 to 1, for `future.progress()`: at once, at most once a second.

        A report is no effect: the next attempt begins with the reports of the last one. Raises
        InvalidArgument, and the errors of a table write.
        """
        arguments.check_number("done", done, 0, 1)
        arguments.check_text("text", text, 0, limits.REASON_BYTES_MAX)
        app, now = self.task.app, time.monotonic()
        if app.inline_runner is not None or now - self._reported < PROGRESS_S:
            return
        self._reported = now
        key = progress_key(app.name, MessageId(self._number))
        row = msgspec.msgpack.encode((float(done), text))
        app.client.kv.insert(key, row, ttl_ms=self.task.options.ttl_ms)

    def put_block(self, data: Body, *, ttl: float = TTL_S) -> Block:
        """Stores data in the spill folder of this worker, for other tasks: a file, not a message.

            return tasks.current().put_block(data)

        The block is served to workers of other sites for `ttl` seconds. Its place is committed with
        the task's result. If it is lost, a reader runs the task again, which must be deterministic.
        Raises UsageError outside of a worker, TooLarge, and StorageFull.
        """
        block = self.task.app.blocks.put(self, self._blocks, data, ttl)
        self._blocks += 1
        return block

    def read_block(self, block: Block) -> bytes:
        """The data of a block: from this site, or fetched. Raises BlockLost."""
        return self.task.app.blocks.read(block)

    async def aio_put_block(self, data: Body, *, ttl: float = TTL_S) -> Block:
        """`put_block`, in an `async def` task."""
        return await asyncio.to_thread(self.put_block, data, ttl=ttl)

    async def aio_read_block(self, block: Block) -> bytes:
        """`read_block`, in an `async def` task."""
        return await self.task.app.blocks.aio_read(block)

    def submit(self, task: AppTask[Any, Any], *args: Any, **kwargs: Any) -> None:
        """Submits a task after the success of the running one. Raises like `AppTask.submit`."""
        from .submission import SubmitOptions

        body = task.body(args, kwargs, SubmitOptions())
        self._effects.pushes.append(EffectPush(task.queue, body))

    def graph(self, *, ttl: float | None = None) -> Graph:
        """Returns an empty graph of the task's app, which starts with the success of this task.

            g = weft.tasks.current().graph()
            parts = g.group(resize, paths)
            g.add(pack, parts)
            g.submit()

        Such a graph has at most 1,000 tasks. Raises like `App.graph`.
        """
        from .graph import GRAPH_TTL_S, Graph

        return Graph(self.task.app, GRAPH_TTL_S if ttl is None else ttl, self)

    def add_graph(self, graph: Graph) -> GraphPlan:
        """Plans a graph beside the task's message: it is in the commit of the task."""
        from .graph_plan import InlineNames

        here = slot.get()
        partitions = here.partitions if here is not None else 1
        home = MessageId(self._number).partition
        plan = graph.planned(partitions, InlineNames(partitions), home)
        self._effects.graphs.append(plan)
        return plan


class ContextKv:
    """Writes to the hash table, with the task's result."""

    __slots__ = ("_effects",)

    def __init__(self, effects: TaskEffects) -> None:
        self._effects = effects

    def insert(self, key: str, value: Body, *, ttl_ms: int | None = None) -> None:
        """Sets the value of a key. Raises InvalidArgument and TooLarge."""
        arguments.check_text("key", key, 1, limits.TABLE_KEY_BYTES_MAX)
        if ttl_ms is not None:
            arguments.check_integer("ttl_ms", ttl_ms, 1, limits.TABLE_TTL_MS_MAX)
        data = arguments.as_bytes(
            "value", value, limits.TABLE_VALUE_BYTES_MAX, "split it over several keys"
        )
        writes = self._effects.writes
        writes[:] = [each for each in writes if each.key != key]  # the last write of a key counts
        writes.append(EffectWrite(key, data, ttl_ms))


class ContextSlot:
    """The place of the running task of one thread or asyncio task.

    The context is made on request: most tasks never ask.
    """

    __slots__ = ("context", "make", "partitions")

    def __init__(self, partitions: int = 1) -> None:
        #: The partitions of the cluster.
        self.partitions = partitions
        self.make: Callable[[], TaskContext] | None = None
        self.context: TaskContext | None = None


slot: ContextVar[ContextSlot | None] = ContextVar("weft_task", default=None)


def current() -> TaskContext:
    """Returns the context of the running task. Raises UsageError outside of a task."""
    here = slot.get()
    if here is None or (here.context is None and here.make is None):
        raise UsageError("no task runs here: current() is for the function of a task")
    if here.context is None:
        assert here.make is not None
        here.context = here.make()
    return here.context
