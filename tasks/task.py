"""A task: a function with a name, and the ways of submission."""

from __future__ import annotations

import datetime
import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from weft import limits
from weft.client import arguments
from weft.client.transport.blocking_link import run
from weft.client.worker.retry_policy import ATTEMPTS_MAX, Backoff, expo
from weft.errors import InvalidArgument
from weft.ids import MessageId

from .blocks.block import Block
from .call import BodyFrame, queue_name
from .future import AsyncFuture, Future, futures_of
from .outcome import RESULT_TTL_S
from .pickled_arguments import pickled_body
from .signature import TaskSignature
from .sites.task_location import check_declared
from .submission import SubmitOptions, push_call, push_calls

if TYPE_CHECKING:
    from .app import App

P = ParamSpec("P")
R = TypeVar("R")

ATTEMPTS: Final = 4
#: The promises about a task; see docs/tasks.
EFFECTS, START, NONE = "effects", "start", "none"
PROMISES: Final = (EFFECTS, START, NONE)
RESULT_TTL_S_MAX: Final = 366 * 24 * 3600
TIME_LIMIT_S_MIN: Final = 0.01
_backoff: Final = expo(1, 60)

log = logging.getLogger("weft.tasks")


@dataclass(frozen=True)
class TaskOptions:
    """The keyword arguments of `app.task`, checked."""

    queue: str = "default"
    attempts: int | None = None
    backoff: Backoff = field(default_factory=lambda: _backoff)
    time_limit: float | None = None
    soft_time_limit: float | None = None
    once: str = EFFECTS
    result_ttl: float = RESULT_TTL_S
    #: True, or the argument with the block or the site of the data.
    near: bool | str = False

    def __post_init__(self) -> None:
        if self.once not in PROMISES:
            raise InvalidArgument(f"once must be one of {', '.join(PROMISES)}, not {self.once!r}")
        attempts = self.attempts
        if attempts is None:
            attempts = 1 if self.once == START else ATTEMPTS
            object.__setattr__(self, "attempts", attempts)
        arguments.check_integer("attempts", attempts, 1, ATTEMPTS_MAX)
        if self.once == START and attempts != 1:
            raise InvalidArgument(
                'a task with once="start" starts at most once, so it has one attempt: leave '
                "attempts out"
            )
        arguments.check_function("backoff", self.backoff)
        for name in ("time_limit", "soft_time_limit"):
            if (limit := getattr(self, name)) is not None:
                arguments.check_number(name, limit, TIME_LIMIT_S_MIN, arguments.WAIT_S_MAX)
        arguments.check_number("result_ttl", self.result_ttl, 1, RESULT_TTL_S_MAX)

    @property
    def attempts_max(self) -> int:
        assert self.attempts is not None, "set in __post_init__"
        return self.attempts

    @property
    def ttl_ms(self) -> int:
        return int(self.result_ttl * 1000)

    def retry_ms(self, attempt: int) -> int:
        """The pause after a failed attempt; the default one if the task's own function fails."""
        try:
            pause = int(self.backoff(attempt) * 1000)
        except Exception as error:
            log.warning("the backoff of a task failed after attempt %d: %r", attempt, error)
            pause = int(_backoff(attempt) * 1000)
        return max(0, min(pause, limits.DELAY_MS_MAX))


class AppTask(Generic[P, R]):
    """A function for workers. Calling the task runs the function here, without a queue.

    @app.task(attempts=4, time_limit=30)
    def resize(path: str, width: int) -> str: ...

    future = resize.submit("a.png", 100)
    """

    def __init__(
        self,
        app: App,
        name: str,
        function: Callable[P, R],
        options: TaskOptions,
        pickle: bool = False,
    ) -> None:
        if not callable(function):
            raise arguments.wrong_type("a task", "a function", function)
        self.app = app
        self.name = name
        self.function = function
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        #: Values that msgpack cannot encode are pickled.
        self.pickles = pickle
        self.signature = TaskSignature(name, function, pickle)
        check_declared(name, options.near, self.signature.parameters)
        self.queue = queue_name(app.name, options.queue)
        self.frame = BodyFrame(name)
        self.aio = AsyncSubmitter(self)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<AppTask {self.name} of {self.app.name}>"

    def submit(self, *args: Any, **kwargs: Any) -> Future:
        """Submits one call; the task is durable when the method returns.

            future = resize.submit("a.png", 100)

        For a delay, a priority, a key or a reply queue see `with_options`. Raises InvalidArgument
        for arguments outside of the signature or without an encoding, and the errors of a push.
        """
        return Submitter(self, _PLAIN).submit(*args, **kwargs)

    def map(self, values: Iterable[Any], **kwargs: Any) -> list[Future]:
        """Submits a call for each value, in few requests; `kwargs` are the same for each call.

            futures = resize.map(paths, width=100)

        All arguments are checked before anything is sent. Raises like `submit`.
        """
        return Submitter(self, _PLAIN).map(values, **kwargs)

    def with_options(
        self,
        *,
        delay: float | None = None,
        at: datetime.datetime | None = None,
        priority: int = 0,
        key: str | None = None,
        reply_to: str | None = None,
        near: Block | Sequence[Block] | str | None = None,
    ) -> Submitter:
        """Returns the task's submissions with options.

            resize.with_options(delay=60, priority=9).submit("a.png", 100)
            resize.with_options(key="order-7", reply_to="done").submit("b.png", 100)

        `delay` is in seconds; `at` is a datetime with a time zone. A higher `priority`, up to 9, is
        delivered first. A second submission with the same `key` within the queue's dedup window
        stores nothing and returns the first one's future. `reply_to` names a queue for a copy
        of the result. `near` is a block, blocks, or the name of a site: the task, which must be
        declared with `near`, runs there if it can. Raises InvalidArgument.
        """
        if near is not None and not self.options.near:
            raise InvalidArgument(
                f"task {self.name} is placed anywhere: declare it with near=True to use near"
            )
        return Submitter(self, SubmitOptions.of(delay, at, priority, key, reply_to, near))

    def future(self, task_id: str) -> Future:
        """The future of a task by its id, with the task's own type of result."""
        number = arguments.as_message_id("task_id", task_id)
        return Future(self.app, self.app.results(number, self.signature.result), number)

    # --- inside ---

    def body(self, args: Any, kwargs: Any, options: SubmitOptions) -> bytes:
        if self.pickles:
            return pickled_body(self, args, kwargs, options.call)
        packed, words = self.signature.pack(args, kwargs)
        return self.frame.body(packed, words, options.call)

    def bodies(
        self, values: Iterable[Any], kwargs: dict[str, Any], options: SubmitOptions
    ) -> list[bytes]:
        arguments.check_iterable("values", values, "first arguments")
        if options.key is not None:
            raise InvalidArgument("a key names one submission: call submit for each value")
        column = values if isinstance(values, list) else list(values)
        if not column:
            return []
        if self.pickles:
            return self._pickled_bodies(column, kwargs, options)
        return self._plain_bodies(column, kwargs, options)

    def _plain_bodies(
        self, column: list[Any], kwargs: dict[str, Any], options: SubmitOptions
    ) -> list[bytes]:
        head, tail, words = self.signature.pack_around(column[0], kwargs)
        around = self.frame.around(head, tail, words, options.call)
        return self.signature.pack_column(column, *around)

    def _pickled_bodies(
        self, column: list[Any], kwargs: dict[str, Any], options: SubmitOptions
    ) -> list[bytes]:
        if not self.signature.opaque:
            try:
                return self._plain_bodies(column, kwargs, options)
            except InvalidArgument:
                pass  # a value that must be pickled, or a wrong one: each is looked at alone
        bodies: list[bytes] = []
        for position, value in enumerate(column):
            try:
                bodies.append(pickled_body(self, (value,), kwargs, options.call))
            except InvalidArgument as error:
                raise InvalidArgument(f"item {position}: {error.message}") from None
        return bodies


class Submitter:
    """The submissions of one task with the same options."""

    def __init__(self, task: AppTask[Any, Any], options: SubmitOptions) -> None:
        self._task = task
        self._options = options

    @property
    def task(self) -> AppTask[Any, Any]:
        return self._task

    @property
    def options(self) -> SubmitOptions:
        return self._options

    @property
    def aio(self) -> AsyncSubmitter:
        return AsyncSubmitter(self._task, self._options)

    def submit(self, *args: Any, **kwargs: Any) -> Future:
        """Submits one call; see `AppTask.submit`."""
        task, app = self._task, self._task.app
        body = task.body(args, kwargs, self._options)
        if app.inline_runner is not None:
            return app.inline_runner.run(body)
        bundle = getattr(app.bundles, "open", None)
        if bundle is not None and self._options.key is None:
            future: Future = bundle.submit(task, body, self._options)
            return future
        number = run(push_call(app.session, task.queue, body, self._options))
        return Future(app, app.results(number, task.signature.result), number)

    def map(self, values: Iterable[Any], **kwargs: Any) -> list[Future]:
        """Submits a call for each value; see `AppTask.map`."""
        task, app = self._task, self._task.app
        bodies = task.bodies(values, kwargs, self._options)
        if app.inline_runner is not None:
            return [app.inline_runner.run(body) for body in bodies]
        stored = run(push_calls(app.session, task.queue, bodies, self._options))
        return futures_of(Future, app, stored, task.signature.result, app.session)


class AsyncSubmitter:
    """The submissions of one task on an event loop: the same names, awaited."""

    def __init__(self, task: AppTask[Any, Any], options: SubmitOptions | None = None) -> None:
        self._task = task
        self._options = _PLAIN if options is None else options

    async def submit(self, *args: Any, **kwargs: Any) -> AsyncFuture:
        """Submits one call; see `AppTask.submit`."""
        task, app = self._task, self._task.app
        body = task.body(args, kwargs, self._options)
        if app.inline_runner is not None:
            return await app.inline_runner.run_async(body)
        session = await app.aio_session()
        number = await push_call(session, task.queue, body, self._options)
        batch = app.results(number, task.signature.result, session)
        return AsyncFuture(app, batch, number)

    async def map(self, values: Iterable[Any], **kwargs: Any) -> list[AsyncFuture]:
        """Submits a call for each value; see `AppTask.map`."""
        task, app = self._task, self._task.app
        bodies = task.bodies(values, kwargs, self._options)
        if app.inline_runner is not None:
            return [await app.inline_runner.run_async(body) for body in bodies]
        session = await app.aio_session()
        stored = await push_calls(session, task.queue, bodies, self._options)
        return futures_of(AsyncFuture, app, stored, task.signature.result, session)

    async def future(self, task_id: str) -> AsyncFuture:
        """The future of a task by its id."""
        number: MessageId = arguments.as_message_id("task_id", task_id)
        session = await self._task.app.aio_session()
        batch = self._task.app.results(number, self._task.signature.result, session)
        return AsyncFuture(self._task.app, batch, number)


_PLAIN: Final = SubmitOptions()
