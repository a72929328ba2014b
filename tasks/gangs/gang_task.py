"""A task for a gang: a function that runs on several workers at once, from the app's side."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.client import arguments
from weft.client.consumer.message import BaseMessage
from weft.client.queue_core import QueueCore
from weft.client.routing.session import ClientSession
from weft.client.transport.blocking_link import run
from weft.client.worker.retry_policy import ATTEMPTS_MAX
from weft.errors import InvalidArgument, QueueNotFound, UsageError
from weft.ids import MessageId
from weft.tasks.future import AsyncFuture, Future
from weft.tasks.outcome import RESULT_TTL_S
from weft.tasks.signature import TaskSignature, encode
from weft.tasks.task import AppTask, TaskOptions

from .gang_job import GANG_SIZE_MAX, GangJob, create_gang_queues, jobs_queue
from .gang_member import run_member

if TYPE_CHECKING:
    from weft.tasks.app import App

ASSEMBLE_S_MIN: Final = 0.1


class GangTask:
    """A function for `size` workers at once. Made by `app.gang`.

    @app.gang(size=4)
    def simulate(steps: int) -> float:
        gang = weft.tasks.current().gang
        return work(gang.rank, gang.size, gang.members)

    results = simulate.submit(1000).result(timeout=60)  # a list, by rank
    """

    def __init__(
        self, app: App, name: str, function: Callable[..., Any], size: int, attempts: int,
        assemble_timeout: float, options: TaskOptions,
    ) -> None:  # fmt: skip
        arguments.check_integer("size", size, 1, GANG_SIZE_MAX)
        arguments.check_integer("attempts", attempts, 1, ATTEMPTS_MAX)
        arguments.check_number(
            "assemble_timeout", assemble_timeout, ASSEMBLE_S_MIN, arguments.WAIT_S_MAX
        )
        self.app = app
        self.name = name
        self.function = function
        self.size = size
        self.attempts = attempts
        self.assemble_timeout = assemble_timeout
        self.wait = False
        self.signature = TaskSignature(name, function)
        returns = typing.get_type_hints(function, include_extras=True).get("return", Any)
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            list.__class_getitem__(returns)
        )
        member = functools.partial(run_member, self)
        #: The task of one member, known to workers under the name of the gang.
        self.member: AppTask[Any, Any] = AppTask(app, name, _member_of(member), options)
        if AppTask(app, name, function, TaskOptions()).is_async:
            raise InvalidArgument(f"gang {name}: the function of a gang must not be `async def`")
        self.queue = self.member.queue

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<GangTask {self.name} of {self.app.name}, {self.size} workers>"

    def with_options(
        self, *, size: int | None = None, wait: bool | None = None,
        assemble_timeout: float | None = None,
    ) -> GangTask:  # fmt: skip
        """Returns the gang with other options for its submissions.

            simulate.with_options(size=8, wait=True).submit(1000)

        With `wait` a job that is larger than all present workers, or was not assembled within
        `assemble_timeout` seconds, waits for more workers behind the other jobs, instead of
        failing. Raises InvalidArgument.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        if size is not None:
            arguments.check_integer("size", size, 1, GANG_SIZE_MAX)
            other.size = size
        if wait is not None:
            other.wait = bool(wait)
        if assemble_timeout is not None:
            arguments.check_number(
                "assemble_timeout", assemble_timeout, ASSEMBLE_S_MIN, arguments.WAIT_S_MAX
            )
            other.assemble_timeout = assemble_timeout
        return other

    def submit(self, *args: Any, **kwargs: Any) -> Future:
        """Submits one job. The future's result is the list of the members' results, by rank.

        Raises InvalidArgument for arguments outside of the signature, and the errors of a push.
        """
        body = self._body(args, kwargs)
        number = run(_push(self.app.session, self.queue, body))
        return Future(self.app, self.app.results(number, self._decoder), number)

    async def aio_submit(self, *args: Any, **kwargs: Any) -> AsyncFuture:
        """Submits one job on this event loop; see `submit`."""
        body = self._body(args, kwargs)
        session = await self.app.aio_session()
        number = await _push(session, self.queue, body)
        return AsyncFuture(self.app, self.app.results(number, self._decoder, session), number)

    def _body(self, args: Any, kwargs: Any) -> bytes:
        if self.app.inline_runner is not None:
            raise UsageError(
                f"gang {self.name} needs {self.size} workers: a gang does not run inline. Call "
                "the function itself in a test"
            )
        packed, words = self.signature.pack(args, kwargs)
        job = GangJob(
            self.name, self.size, packed, words, self.attempts, self.assemble_timeout, self.wait,
            self.member.options.ttl_ms,
        )  # fmt: skip
        return encode(job)


def made_gang(
    app: App, function: Callable[..., Any], size: int, *, name: str | None, queue: str,
    attempts: int, assemble_timeout: float, time_limit: float | None,
    soft_time_limit: float | None, result_ttl: float = RESULT_TTL_S,
) -> GangTask:  # fmt: skip
    """The gang of `app.gang`, registered with its app."""
    limits = [
        None if each is None else each + assemble_timeout for each in (time_limit, soft_time_limit)
    ]
    options = TaskOptions(
        queue=queue, attempts=1, time_limit=limits[0], soft_time_limit=limits[1],
        result_ttl=result_ttl,
    )  # fmt: skip
    named = name if name is not None else str(getattr(function, "__name__", ""))
    gang = GangTask(app, named, function, size, attempts, assemble_timeout, options)
    if named in app.tasks:
        raise InvalidArgument(
            f"the app {app.name} has a task {named!r} already: pass another name="
        )
    app.tasks[named] = gang.member
    app.gangs[named] = gang
    return gang


def gang_queues(app: App, queues: Sequence[str]) -> list[str]:
    """Those of the queues with gangs. Raises InvalidArgument if a worker cannot serve them."""
    found = sorted({gang.queue for gang in app.gangs.values()} & set(queues))
    if found and any(task.is_async and task.queue in queues for task in app.tasks.values()):
        raise InvalidArgument(
            "a worker with async tasks on its queues runs no gangs: a member would wait for "
            f"another one on the same event loop. Start a worker for {', '.join(found)} (-q)"
        )
    return found


def _member_of(member: Callable[..., object]) -> Callable[..., object]:
    def gang_member(
        job: str, epoch: str, rank: int, size: int, args: bytes, words: bytes
    ) -> object:
        return member(job, epoch, rank, size, args, words)

    return gang_member


async def _push(session: ClientSession, queue: str, body: bytes) -> MessageId:
    core = QueueCore(session, jobs_queue(queue), BaseMessage)
    while True:
        try:
            return await core.push(body)
        except QueueNotFound:
            await create_gang_queues(session, queue)
