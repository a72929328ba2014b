"""An app: tasks by name, their queues, and the client that submits them."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from weft.client import arguments
from weft.client.async_client import AsyncClient
from weft.client.async_client import connect as async_connect
from weft.client.routing.session import ClientSession
from weft.client.sync_client import Client, connect
from weft.client.transport.blocking_link import run
from weft.client.worker.retry_policy import ATTEMPTS_MAX, Backoff
from weft.errors import InvalidArgument, UsageError
from weft.ids import MessageId

from .batch_results import BatchResults
from .blocks.app_blocks import AppBlocks
from .blocks.block import Block
from .bundle import Bundle
from .call import TASK_NAME_MAX, batch_of, check_app_name, check_queue
from .failed_call import retry_task
from .future import AsyncFuture, Future
from .gangs.gang_job import jobs_queue
from .gangs.gang_registry import GangRegistry
from .graph_app import AppGraphs
from .outcome import RESULT_TTL_S
from .schedule import TICK, Schedule, record_key, run_tick
from .task import EFFECTS, AppTask, TaskOptions

if TYPE_CHECKING:
    from .inline import InlineRunner

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


class App(GangRegistry, AppGraphs):
    """Tasks that workers run.

    app = weft.tasks.App("shop")

    @app.task(attempts=4, time_limit=30)
    def resize(path: str, width: int) -> str: ...

    Submitters and workers make an App each, from the same code. `servers`, `token` and
    `tls` are as for `weft.connect`; by default the environment decides (WEFT_SERVERS). The app
    connects at the first submission. With `pickle=True` arguments and results that msgpack cannot
    encode are pickled (`weft[pickle]`): workers run such calls only with `--allow-pickle`, and
    the app unpickles results of its workers. Raises InvalidArgument for a malformed name.
    """

    def __init__(
        self,
        name: str,
        servers: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        tls: Any = None,
        pickle: bool = False,
    ) -> None:
        self.name = check_app_name(name)
        self.tasks: dict[str, AppTask[Any, Any]] = {}
        super().__init__()
        self.schedules: dict[str, Schedule] = {}
        self._connect: dict[str, Any] = {"servers": servers, "token": token, "tls": tls}
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._aio: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient]
        self._aio = weakref.WeakKeyDictionary()
        arguments.check_flag("pickle", pickle)
        self.pickle = pickle
        #: A worker of this process, or the inline runner, may unpickle arguments.
        self.pickle_allowed = False
        self.inline_runner: InlineRunner | None = None
        #: Has the open bundle of each thread.
        self.bundles = threading.local()
        #: Blocks of data in the spill folders of the workers.
        self.blocks = AppBlocks(self)
        #: A map-reduce job may read blocks, although no task is near data.
        self.reads_blocks = False

    def __repr__(self) -> str:
        return f"<App {self.name}, {len(self.tasks)} tasks>"

    @overload
    def task(self, function: Callable[..., Any], /) -> AppTask[..., Any]: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        attempts: int | None = None,
        backoff: Backoff | None = None,
        time_limit: float | None = None,
        soft_time_limit: float | None = None,
        once: str = EFFECTS,
        result_ttl: float = RESULT_TTL_S,
        near: bool | str = False,
    ) -> Callable[[Callable[..., Any]], AppTask[..., Any]]: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        attempts: int | None = None,
        backoff: Backoff | None = None,
        time_limit: float | None = None,
        soft_time_limit: float | None = None,
        once: str = EFFECTS,
        result_ttl: float = RESULT_TTL_S,
        near: bool | str = False,
    ) -> Any:
        """Registers a function as a task of this app, under its own name or `name`.

            @app.task(queue="slow", attempts=4, backoff=weft.expo(1, 60), time_limit=30)
            def resize(path: str, width: int) -> str: ...

        `attempts` counts starts, with or without the death of a worker. `backoff` gives the pause
        after a failed attempt. After `soft_time_limit` seconds the task gets a TaskTimedOut, after
        `time_limit` seconds its worker process is killed. `once` is the promise: "effects" (the
        default: effects in Weft happen exactly once), "start" (the function starts at
        most once) or "none". `result_ttl` is in seconds. `near` is the name of the argument with
        the block, or the site, of the task's data: workers of that site run the task if they can.
        `near=True`: the submission names the place. Raises InvalidArgument, also for a type
        unknown to msgpack and for a taken name.
        """
        check_queue(self.name, queue)
        extra = {} if backoff is None else {"backoff": backoff}
        options = TaskOptions(
            queue=queue,
            attempts=attempts,
            time_limit=time_limit,
            soft_time_limit=soft_time_limit,
            once=once,
            result_ttl=result_ttl,
            near=near,
            **extra,
        )

        def register(function: Callable[..., Any]) -> AppTask[..., Any]:
            named = name if name is not None else str(getattr(function, "__name__", ""))
            arguments.check_text("name", named, 1, TASK_NAME_MAX)
            task = AppTask(self, named, function, options, self.pickle)
            if named in self.tasks:
                raise InvalidArgument(
                    f"the app {self.name} has a task {named!r} already: pass another name="
                )
            self.tasks[named] = task
            return task

        return register if function is None else register(function)

    def schedule(
        self,
        name: str,
        task: AppTask[Any, Any],
        *,
        cron: str,
        tz: str = "UTC",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        missed: str = "once",
    ) -> Schedule:
        """Submits a task at the times of a cron expression, by the workers of its queue.

            app.schedule("nightly", resize, cron="0 2 * * *", tz="Europe/Berlin", args=["a.png", 9])

        The expression has five fields, or six with seconds first. Each tick happens once. See
        docs/tasks/schedules.md for daylight saving time, and for `missed`: "once", "skip" or "all".
        Raises InvalidArgument for a bad expression or time zone, and MissingExtra without the extra
        `weft[tasks]`.
        """
        check_queue(self.name, name)
        if task.app is not self:
            raise InvalidArgument(f"the task {task.name} is of another app")
        if name in self.schedules:
            raise InvalidArgument(f"the app {self.name} has a schedule {name!r} already")
        made = Schedule.of(name, task, cron, tz, missed, args, dict(kwargs or {}))
        if TICK not in self.tasks:

            def tick(name: str, generation: str, due: float) -> str:
                return run_tick(self, name, generation, due)

            self.task(name=TICK, queue=task.options.queue, attempts=ATTEMPTS_MAX)(tick)
        self.schedules[name] = made
        return made

    def end_schedule(self, name: str) -> bool:
        """Ends a schedule: its next tick does nothing. Returns False if there was none.

        A worker with the schedule in the code begins the schedule again at the worker's start.
        """
        check_queue(self.name, name)
        return self.client.kv.remove(record_key(self.name, name))

    def future(self, task_id: str | MessageId) -> Future:
        """The future of a task by its id, in any process.

            future = app.future("00c9...")
            future.result(timeout=10)

        The result has plain types; `task.future(id)` gives the task's own. Raises InvalidArgument
        for a malformed id.
        """
        number = arguments.as_message_id("task_id", task_id)
        return Future(self, self.results(number, None), number)

    def retry(self, task_id: str | MessageId) -> Future:
        """Submits the call of a failed task again, as a new task, and returns its future.

            print(app.retry("00c9...").result(timeout=10))

        The failed task keeps its failure; a second `retry` returns the same future. Raises
        InvalidArgument for a task that has not failed, and for a call that is not kept.
        """
        number = arguments.as_message_id("task_id", task_id)
        return self.future(run(retry_task(self.session, self.name, number)))

    async def aio_retry(self, task_id: str | MessageId) -> AsyncFuture:
        """Submits the call of a failed task again; see `retry`."""
        number = arguments.as_message_id("task_id", task_id)
        session = await self.aio_session()
        return await self.aio_future(await retry_task(session, self.name, number))

    async def aio_future(self, task_id: str | MessageId) -> AsyncFuture:
        """The future of a task by its id, on this event loop."""
        number = arguments.as_message_id("task_id", task_id)
        session = await self.aio_session()
        return AsyncFuture(self, self.results(number, None, session), number)

    def read_block(self, block: Block) -> bytes:
        """The data of a block that a task has put, fetched from a worker and verified.

            data = app.read_block(future.result())

        Raises BlockLost, and the errors of a client.
        """
        return self.blocks.read(block)

    async def aio_read_block(self, block: Block) -> bytes:
        """`read_block`, on an event loop."""
        return await self.blocks.aio_read(block)

    def bundle(self) -> Bundle:
        """Gathers the submissions of this thread into few pushes, as long as the block is open.

            with app.bundle():
                futures = [resize.submit(path, 100) for path in paths]

        In the block a task is durable when its future has an id: after the block at the latest. The
        block's end, or a `submit` in it, raises the errors of a push. `map` needs no bundle.
        """
        return Bundle(self)

    # --- clients ---

    @property
    def client(self) -> Client:
        """The app's client; connects at the first use."""
        with self._lock:
            if self._client is None:
                self._client = connect(**self._connect)
            return self._client

    async def aio_client(self) -> AsyncClient:
        """The app's client on the running event loop; connects at the first use."""
        loop = asyncio.get_running_loop()
        client = self._aio.get(loop)
        if client is None:
            client = await async_connect(**self._connect)
            client = self._aio.setdefault(loop, client)
        return client

    def connect(
        self,
        servers: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        tls: Any = None,
    ) -> None:
        """Chooses the cluster, for example in a test; an open client of the app is closed."""
        self.close()
        self._connect = {"servers": servers, "token": token, "tls": tls}

    def close(self) -> None:
        """Closes the app's synchronous client; the next call opens another one."""
        with self._lock:
            client, self._client = self._client, None
        self.blocks.close()
        if client is not None:
            client.close()

    async def aio_close(self) -> None:
        """Closes the app's client of the running event loop."""
        client = self._aio.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @contextmanager
    def inline(self, *, allow_pickle: bool = False) -> Iterator[InlineRunner]:
        """Runs tasks in the submitting thread, without nodes and workers, for tests.

            with app.inline() as runner:
                assert resize.submit("a.png", 100).result() == "a-100.png"
                assert runner.pushed == []

        Arguments and results are encoded as for a worker; a failing task is repeated, without
        pauses, until no attempt is left. `allow_pickle` is the worker's `--allow-pickle`.
        """
        from .inline import InlineRunner

        if self.inline_runner is not None:
            raise UsageError(f"the app {self.name} runs inline already")
        self.inline_runner = InlineRunner(self)
        before, self.pickle_allowed = self.pickle_allowed, allow_pickle
        try:
            yield self.inline_runner
        finally:
            self.inline_runner, self.pickle_allowed = None, before

    # --- inside ---

    @property
    def servers(self) -> str | None:
        """The addresses that the app was given; None: the environment decides."""
        servers: str | Sequence[str] | None = self._connect["servers"]
        return servers if servers is None or isinstance(servers, str) else ",".join(servers)

    @property
    def queues(self) -> list[str]:
        """The full names of the queues of all tasks, and of waiting jobs of gangs."""
        jobs = {jobs_queue(gang.queue) for gang in self.gangs.values()}
        return sorted({task.queue for task in self.tasks.values()} | jobs)

    def is_sited(self, queues: Iterable[str]) -> bool:
        """True if workers of the queues need a site: tasks are near data, or read blocks."""
        names = set(queues)
        near = any(task.options.near and task.queue in names for task in self.tasks.values())
        return near or self.reads_blocks

    @property
    def session(self) -> ClientSession:
        return self.client._session

    async def aio_session(self) -> ClientSession:
        return (await self.aio_client())._session

    def results(
        self,
        task_id: MessageId,
        result: msgspec.msgpack.Decoder[Any] | None,
        session: ClientSession | None = None,
    ) -> BatchResults:
        return BatchResults(session or self.session, self.name, task_id, result, self.pickle)

    def batches(
        self,
        numbers: list[MessageId],
        result: msgspec.msgpack.Decoder[Any] | None,
        session: ClientSession | None = None,
    ) -> Iterator[tuple[BatchResults, list[MessageId]]]:
        """The ids of a submission by batch, with the shared results of the futures."""
        for _, some in groupby(numbers, batch_of):
            ids = list(some)
            yield self.results(ids[0], result, session), ids
