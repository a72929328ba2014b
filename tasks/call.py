"""A task on its queue: the body of its message, the text of its id, the keys of its result.

A body is one msgpack array: the task's name, its positional arguments, its keyword arguments and,
only if the submission has any, its options. The arguments stay encoded until a worker with
the task decodes the arguments by type. A message is one task; the bundles are the batches and
leases of the queue, so no layer of bundles is added.
"""

from __future__ import annotations

from typing import Final

import msgspec

from weft.client import arguments
from weft.errors import InvalidArgument
from weft.ids import INDEX_BITS, MessageId

from .graph_links import GraphLinks
from .signature import NO_KEYWORDS, encode

#: The most characters of the name of an app, and of a queue of an app, which share a queue's name.
APP_NAME_MAX: Final = 40
TASK_NAME_MAX: Final = 200
#: The name in the body of a call with pickled arguments: no worker of an older version knows it, so
#: such a worker gives the message back.
PICKLED_TASK: Final = "weft.pickle"

#: The position or keyword of an argument, and the position in it, or -1 for the whole argument.
Slot = tuple[int | str, int]


class CallOptions(msgspec.Struct, array_like=True, frozen=True):
    """Options of one submission for the worker. New fields are added at the end."""

    #: The queue for a copy of the result; "" for none.
    reply_to: str = ""
    #: The site of the task's data; "" for any.
    near: str = ""


NO_OPTIONS: Final = CallOptions()


class PickledSlots(msgspec.Struct, array_like=True, frozen=True):
    """The app of the submitter asks for pickled arguments. New fields are added at the end."""

    #: The task's own name.
    name: str
    #: The pickled arguments; a task of a graph may get pickled results, too.
    slots: list[Slot] = []
    #: The Python version of the submitter.
    python: str = ""


class TaskCall(msgspec.Struct, array_like=True, frozen=True):
    """The decoded body of a message. New fields are added at the end, with defaults."""

    name: str
    args: msgspec.Raw
    kwargs: msgspec.Raw = msgspec.Raw(NO_KEYWORDS)
    options: CallOptions = CallOptions()
    #: Of a task of a graph; `name` is then GRAPH_TASK, which no worker of an older version knows.
    graph: GraphLinks | None = None
    #: `name`, or of a task of a graph `graph.name`, is then PICKLED_TASK.
    pickled: PickledSlots | None = None

    @property
    def task(self) -> str:
        """The name of the task."""
        if self.pickled is not None:
            return self.pickled.name
        return self.name if self.graph is None else self.graph.name


_decoder = msgspec.msgpack.Decoder(TaskCall)


def decode_call(body: bytes) -> TaskCall:
    """Returns the call; raises InvalidArgument for a message without a task."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(f"the message is no task: {error}") from None


class BodyFrame:
    """The common parts of the bodies of one task."""

    __slots__ = ("_long", "_short")

    def __init__(self, name: str) -> None:
        raw = encode(name)
        self._short = b"\x93" + raw
        self._long = b"\x94" + raw

    def body(self, args: bytes, kwargs: bytes, options: CallOptions = NO_OPTIONS) -> bytes:
        if options == NO_OPTIONS:
            return self._short + args + kwargs
        return self._long + args + kwargs + encode(options)

    def around(
        self, head: bytes, tail: bytes, kwargs: bytes, options: CallOptions = NO_OPTIONS
    ) -> tuple[bytes, bytes]:
        """The beginning and the end of bodies that differ between `head` and `tail` alone."""
        if options == NO_OPTIONS:
            return self._short + head, tail + kwargs
        return self._long + head, tail + kwargs + encode(options)


def queue_name(app: str, queue: str) -> str:
    """The queue of an app: no two apps share a queue."""
    return f"{app}.{queue}"


def result_prefix(app: str, task_id: MessageId) -> str:
    """The prefix of the keys with the results of the tasks of one batch."""
    return f"{results_of_producer(app, task_id)}{task_id.batch:010x}/"


def results_of_producer(app: str, task_id: MessageId) -> str:
    """The prefix of all results of the tasks of one client."""
    return f"tasks/{app}/r/{task_id.producer:014x}"


def batch_of(task_id: int) -> int:
    """The batch of a task as one number, with its partition and producer."""
    return task_id >> INDEX_BITS


def claim_key(app: str, task_id: MessageId) -> str:
    """The key written by a worker before the start of a task with once="start"."""
    return f"tasks/{app}/c/{task_id}"


def progress_key(app: str, task_id: MessageId) -> str:
    """The key with the progress of a running task."""
    return f"tasks/{app}/p/{task_id}"


def loss_key(app: str, task_id: MessageId) -> str:
    """The key with the reason of the last death of a process with the task."""
    return f"tasks/{app}/l/{task_id}"


def failed_prefix(app: str, task_id: MessageId) -> str:
    """The prefix of the keys with the calls of failed tasks of one batch, for a retry."""
    return f"tasks/{app}/f/{task_id.producer:014x}{task_id.batch:010x}/"


def retry_key(app: str, task_id: MessageId) -> str:
    """The key with the id of the task that repeats a failed one."""
    return f"tasks/{app}/t/{task_id}"


def chunk_key(app: str, name: str, number: int) -> str:
    """A key with a part of a large result; `name` is random."""
    return f"tasks/{app}/x/{name}/{number}"


def check_app_name(name: object) -> str:
    arguments.check_queue_name("name", name)
    assert isinstance(name, str)
    if len(name) > APP_NAME_MAX:
        raise InvalidArgument(f"the name of an app has at most {APP_NAME_MAX} characters")
    return name


def check_queue(app: str, queue: object) -> str:
    arguments.check_text("queue", queue, 1, APP_NAME_MAX - 1)
    arguments.check_queue_name("queue", f"{app}.{queue}")
    return str(queue)
