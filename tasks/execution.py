"""One run of one task: decode the call, call the function, encode the outcome."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from weft.errors import (
    InvalidArgument,
    TaskCancelled,
    TaskFailed,
    TaskTimedOut,
    TooLarge,
    UpstreamFailed,
    UsageError,
    WorkerLost,
)

from .call import TaskCall, decode_call
from .cancellation import CANCELLED
from .graph_links import CANCELLED_REASON
from .outcome import RESULT_BYTES_MAX, Outcome, TaskError, task_error
from .pickled_arguments import decode_arguments
from .pickled_result import pickle_result
from .schedule import UnknownSchedule
from .signature import RESULT, encode
from .task import START, AppTask
from .task_context import ContextSlot, TaskContext, TaskEffects
from .task_trace import traced, within

#: The stored error of a message without a decodable body.
_NO_TASK: Final = InvalidArgument.code

#: The pause of a task that could not be started, because the cluster did not answer.
GIVEN_UP_MS: Final = 1_000


class TaskRun:
    """A message in a worker, from its pop to the settlement of its outcome."""

    __slots__ = (
        "begun", "call", "effects", "failed_parents", "message", "outcome", "retry_ms", "task",
        "unknown",
    )  # fmt: skip

    def __init__(self, message: Any) -> None:
        self.message = message
        self.task: AppTask[Any, Any] | None = None
        self.call: TaskCall | None = None
        #: The end of the task.
        self.outcome: Outcome | None = None
        self.effects: TaskEffects | None = None
        #: The attempt failed: the task is delivered again after the pause.
        self.retry_ms = -1
        #: False: the attempt was given up before the start, so it is not counted.
        self.begun = True
        #: No task of this name: the message is given back, uncounted.
        self.unknown = ""
        #: Of a task of a graph with on_failure="run": the errors of failed parents, by id.
        self.failed_parents: dict[str, str] = {}

    @property
    def ready(self) -> bool:
        """False if the outcome is known without a run."""
        return self.outcome is None and not self.unknown

    def cancel(self) -> None:
        """The task was cancelled before the start."""
        self.outcome = CANCELLED

    def give_up(self, error: BaseException) -> None:
        """The task was not started, and is delivered again after a pause, uncounted."""
        self.outcome = task_error(error)
        self.retry_ms = GIVEN_UP_MS
        self.begun = False


def prepared(message: Any, tasks: Mapping[str, AppTask[Any, Any]]) -> TaskRun:
    """Finds the task of a message; some runs are over before the start."""
    run = TaskRun(message)
    try:
        call = run.call = decode_call(message.body)
    except InvalidArgument as error:
        run.outcome = TaskError(_NO_TASK, type(error).__name__, error.message)
        return run
    name = call.name if call.graph is None else call.graph.name
    if call.pickled is not None:
        name = call.pickled.name
    task = run.task = tasks.get(name)
    if call.graph is not None and message.dead_reason and not message.dead_origin:
        run.outcome = upstream_error(message.dead_reason)
    elif task is None:
        run.unknown = name
    elif task.options.once != START and message.deliveries > task.options.attempts_max:
        # A task with once="start" has its claim instead: a delivery alone starts nothing.
        run.outcome = lost_error(task, message.deliveries - 1)
    return run


def upstream_error(reason: str) -> TaskError:
    """The end of a task of a graph whose parent has failed, or whose graph was cancelled."""
    if reason == CANCELLED_REASON:
        return CANCELLED
    return TaskError(UpstreamFailed.code, UpstreamFailed.__name__, reason)


def lost_error(task: AppTask[Any, Any], starts: int) -> TaskError:
    times = "once" if starts == 1 else f"{starts} times"
    text = f"the worker ended while it ran the task, {times}: killed, out of memory, or crashed"
    if (limit := task.options.time_limit) is not None:
        text += f", or past its time limit of {limit} s"
    return TaskError(WorkerLost.code, WorkerLost.__name__, text)


def execute(run: TaskRun, slot: ContextSlot) -> None:
    """Runs a synchronous task in this thread."""
    task = run.task
    assert task is not None
    arguments = _unpacked(run)
    if arguments is None:
        return
    slot.context = None
    slot.make = _context_maker(run)
    try:
        if traced(run.message):
            with within(task.name, run.message):
                value = task.function(*arguments[0], **arguments[1])
        else:
            value = task.function(*arguments[0], **arguments[1])
    except BaseException as error:
        raised(run, error)
    else:
        succeeded(run, value, slot.context)
    finally:
        slot.make = slot.context = None


async def execute_async(
    run: TaskRun, slot: ContextSlot, call_sync: Callable[..., Awaitable[Any]]
) -> None:
    """Runs a task on this event loop; a synchronous one by `call_sync`."""
    task = run.task
    assert task is not None
    arguments = _unpacked(run)
    if arguments is None:
        return
    slot.make = _context_maker(run)
    try:
        async with asyncio.timeout(_limit_of(task)) as limit:
            with within(task.name, run.message):
                if task.is_async:
                    value = await task.function(*arguments[0], **arguments[1])
                else:
                    value = await call_sync(task.function, *arguments[0], **arguments[1])
    except TimeoutError as error:
        failed(run, TaskTimedOut(_time_up(task)) if limit.expired() else error)
    except BaseException as error:
        raised(run, error)
    else:
        succeeded(run, value, slot.context)
    finally:
        slot.make = slot.context = None


def _unpacked(run: TaskRun) -> tuple[Sequence[Any], dict[str, Any]] | None:
    """The arguments; None if the arguments do not match the signature, at every attempt, if they
    are pickled and this worker does not unpickle, or if code of an argument's class failed."""
    assert run.task is not None
    assert run.call is not None
    try:
        if run.call.pickled is None:
            return run.task.signature.unpack(run.call.args, run.call.kwargs)
        return decode_arguments(run.task, run.call)
    except UsageError as error:
        run.outcome = task_error(error)
    except TaskFailed:  # an interrupt
        raise
    except Exception as error:
        failed(run, error)
    return None


def _limit_of(task: AppTask[Any, Any]) -> float | None:
    """The limit of a task on an event loop: a coroutine is cancelled at either limit."""
    limits = (task.options.soft_time_limit, task.options.time_limit)
    return min((each for each in limits if each is not None), default=None)


def _time_up(task: AppTask[Any, Any]) -> str:
    return f"the time limit of {_limit_of(task)} s is over"


def _context_maker(run: TaskRun) -> Callable[[], TaskContext]:
    def make() -> TaskContext:
        assert run.task is not None
        message = run.message
        context = TaskContext(run.task, message.id, message.deliveries, message.body)
        context.failed_parents = run.failed_parents
        return context

    return make


def succeeded(run: TaskRun, value: Any, context: TaskContext | None) -> None:
    """Takes the result of an attempt."""
    assert run.task is not None
    signature = run.task.signature
    if signature.opaque and signature.is_opaque(RESULT, value):
        _succeeded_pickled(run, value, "", context)
        return
    try:
        data = encode(value)
    except TaskFailed:  # an interrupt
        raise
    except Exception as error:  # also of the code of the value's class
        _succeeded_pickled(run, value, str(error), context)
        return
    if len(data) > RESULT_BYTES_MAX:
        what = f"the result has {len(data)} bytes, at most {RESULT_BYTES_MAX} are allowed"
        run.outcome = task_error(TooLarge(f"{what}: store it elsewhere and return its address"))
        return
    run.outcome = msgspec.Raw(data)
    if context is not None and context.effects:
        run.effects = context.effects


def _succeeded_pickled(run: TaskRun, value: Any, refusal: str, context: TaskContext | None) -> None:
    """Takes a result that msgpack cannot encode; `refusal` says why."""
    assert run.task is not None
    try:
        run.outcome = pickle_result(run.task, value, refusal)
    except UsageError as error:
        run.outcome = task_error(error)
        return
    if context is not None and context.effects:
        run.effects = context.effects


def raised(run: TaskRun, error: BaseException) -> None:
    """Takes the exception of a task's function."""
    if isinstance(error, UnknownSchedule):
        assert run.task is not None
        run.unknown = f"{run.task.name} {error}"
    else:
        failed(run, error)


def failed(run: TaskRun, error: BaseException) -> None:
    """Decides about a failed attempt: another one, or the end."""
    task = run.task
    assert task is not None
    attempt = run.message.deliveries
    if attempt < task.options.attempts_max and not isinstance(error, TaskCancelled):
        run.retry_ms = task.options.retry_ms(attempt)
    run.effects = None  # an interrupt may come after the function's return
    run.outcome = task_error(error, trace=_trace_of(error))


def _trace_of(error: BaseException) -> str:
    if error.__traceback__ is None:
        return ""
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # of the exception's own code
        return "".join(traceback.format_tb(error.__traceback__))
