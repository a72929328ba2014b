"""Pickled results: made by a worker that allows it, read by an app that asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import InvalidArgument, UsageError
from weft.ids import MessageId

from .outcome import RESULT_BYTES_MAX, PickledResult
from .pickle_codec import pickle_value, unpickle_value
from .pickled_arguments import check_allowed

if TYPE_CHECKING:
    from .task import AppTask


def pickle_result(task: AppTask[Any, Any], value: Any, refusal: str) -> PickledResult:
    """The pickled result of a task. `refusal`: why msgpack cannot encode the value.

    Raises InvalidArgument, also for a task of an app without `pickle=True`; UsageError, TooLarge
    and MissingExtra.
    """
    what = f"the result of task {task.name}"
    if not task.pickles:
        raise InvalidArgument(f"{what} cannot be encoded as msgpack: {refusal}")
    check_allowed(task.app, f"{what} ({type(value).__name__}) must be pickled")
    return PickledResult(pickle_value(value, what, RESULT_BYTES_MAX))


def unpickle_result(app: str, task_id: MessageId, data: bytes, asked: bool) -> Any:
    """Raises UsageError, naming the option, for an app without `pickle=True`."""
    what = f"the result of task {task_id}"
    if not asked:
        raise UsageError(
            f"{what} is pickled, and this app does not unpickle: make it with "
            f"weft.tasks.App({app!r}, pickle=True) if you trust its workers"
        )
    return unpickle_value(data, what)
