"""The calls of one lease to one function, decoded in one step and run one after the other.

Most leases have many calls of one task without options. Their column has no object for a call
beyond the message: the arguments are decoded by one function in C, an end is an index with an
encoded result, and the column's end is one transaction. A call that differs, by keywords, options,
time limits, effects or a failure, is a `TaskRun`: it never enters the column, or leaves it.

The column belongs to the thread of the loop. `take` may be called by another thread: an end is
appended in one step, and taken in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from weft.client.consumer.lease import ClientLease
from weft.client.consumer.message import BaseMessage
from weft.errors import InvalidArgument
from weft.ids import MessageId

from .call import decode_call
from .cancellation import Marks
from .task import START, AppTask
from .task_context import TaskContext

#: Fewer messages of one lease are cheaper one by one.
COLUMN_MIN: Final = 4
#: A larger result leaves its column: blocks are small.
COLUMN_RESULT_MAX: Final = 16_384

#: The index of a call in its batch, and its encoded result.
ColumnEnd = tuple[int, bytes]

_lease_of = attrgetter("_lease")


class RunColumn:
    __slots__ = (
        "_marked", "arguments", "ended", "first", "function", "lease", "marks_seen", "message",
        "task",
    )  # fmt: skip

    def __init__(
        self, task: AppTask[Any, Any], lease: ClientLease, first: int, arguments: list[Any]
    ) -> None:
        self.task = task
        self.function: Callable[..., Any] = task.function
        self.lease = lease
        self.first = first
        #: The positional arguments of the calls, in the order of their indexes.
        self.arguments = arguments
        #: The running call.
        self.message: BaseMessage | None = None
        self.ended: list[ColumnEnd] = []
        #: The count of marks at the last look for a cancelled call.
        self.marks_seen = 0
        self._marked = False

    def has_cancelled(self, marks: Marks) -> bool:
        """True if a call of the column is among the cancelled tasks: each is looked at alone then.
        Marks live for a day, so those of other tasks must not cost the column."""
        if self.marks_seen != marks.added:
            self.marks_seen = marks.added
            lent, numbers = self.lease.lent, marks.numbers
            first = MessageId.of(lent.partition, lent.producer, lent.batch, self.first)
            self._marked = any(map(numbers.__contains__, range(first, first + len(self.arguments))))
        return self._marked

    def take(self) -> list[ColumnEnd]:
        """Removes and returns the ends so far."""
        ended = self.ended[:]
        del self.ended[: len(ended)]
        return ended

    def context(self) -> TaskContext:
        """The context of the running call, made when the function asks."""
        assert self.message is not None
        return TaskContext(self.task, self.message.id, self.message.deliveries, self.message.body)


def columns_of(
    messages: Sequence[BaseMessage], tasks: Mapping[str, AppTask[Any, Any]]
) -> dict[ClientLease, RunColumn]:
    """The columns among popped messages."""
    found: dict[ClientLease, RunColumn] = {}
    if len(messages) < COLUMN_MIN:
        return found
    for lease, group in groupby(messages, _lease_of):
        some = list(group)
        if len(some) >= COLUMN_MIN and lease not in found:
            column = _column_of(lease, some, tasks)
            if column is not None:
                found[lease] = column
    return found


def _column_of(
    lease: ClientLease, messages: list[BaseMessage], tasks: Mapping[str, AppTask[Any, Any]]
) -> RunColumn | None:
    try:
        task = tasks.get(decode_call(messages[0].body).name)
    except InvalidArgument:
        return None
    if task is None or not fits_column(task) or lease.deliveries is not None:
        return None  # a traced call has a span of its own
    if lease.lent.deliveries > task.options.attempts_max:
        return None
    first, count = messages[0]._index, len(messages)
    if messages[-1]._index != first + count - 1:
        return None
    try:
        arguments = task.signature.unpack_column([message.body for message in messages])
    except Exception:  # also of the code of an argument's class
        return None  # one call differs: each is looked at alone
    return None if arguments is None else RunColumn(task, lease, first, arguments)


def fits_column(task: AppTask[Any, Any]) -> bool:
    """True for a synchronous task without a claim and without time limits."""
    options = task.options
    return (
        options.once != START
        and options.time_limit is None
        and options.soft_time_limit is None
        and not task.is_async
        and not task.signature.opaque  # its values may have to be pickled
    )
