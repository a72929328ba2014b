"""The sites of a task's data: from its submission, or from the argument that the task declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.errors import InvalidArgument
from weft.tasks.blocks.block import Block
from weft.tasks.pickled_arguments import decode_unpickled

from .site import check_site

if TYPE_CHECKING:
    from weft.tasks.call import TaskCall
    from weft.tasks.task import AppTask


def near_site(value: Any) -> str:
    """The site of a value: of a block, of most bytes of several blocks, or its name; "" for any.

    Raises InvalidArgument for other values.
    """
    if value is None or value == "":
        return ""
    if isinstance(value, Block):
        return value.site
    if isinstance(value, str):
        return check_site(value)
    if isinstance(value, list | tuple) and all(isinstance(each, Block) for each in value):
        sizes = Counter[str]()
        for each in value:
            sizes[each.site] += max(1, each.size)
        return max(sizes, key=lambda site: sizes[site], default="")
    raise InvalidArgument(
        f"near must be a block, blocks, or the name of a site, not {value!r:.100}"
    )


def check_declared(name: str, near: str | bool, parameters: Sequence[str]) -> None:
    """Raises InvalidArgument unless `near` is False, True or the name of an argument."""
    if not isinstance(near, bool) and near not in parameters:
        raise InvalidArgument(
            f"task {name}: near must be True, or the name of an argument with a block or a site, "
            f"not {near!r}"
        )


def location_of(task: AppTask[Any, Any], call: TaskCall) -> str:
    """The site of the data of a call; "" for any. A malformed value is left to the run."""
    if call.options.near:
        return call.options.near
    if not isinstance(task.options.near, str):
        return ""
    try:
        args, kwargs = decode_unpickled(task, call)
        return near_site(task.signature.argument(task.options.near, args, kwargs))
    except InvalidArgument:
        return ""


Locate = Callable[[bytes], str]
