"""Arguments of a task of a graph: some are results of other tasks, which do not exist yet.

At the submission a result's place is taken by None, and an `Input` names the parent. The types of
all other arguments are checked. At the worker the results take their places, still encoded, and the
arguments are decoded by the types of the signature, as for any task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from weft.errors import InvalidArgument, UsageError

from .call import PickledSlots, Slot, TaskCall
from .graph_links import Input
from .outcome import PickledResult
from .pickled_arguments import encode_argument, encode_item
from .signature import TaskSignature, encode

if TYPE_CHECKING:
    from .task import AppTask

_decode_array = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode

N = TypeVar("N")

#: A node that is deeper in an argument is reported as a value that cannot be encoded.
_DEPTH_MAX: Final = 8


def split_inputs(
    value: Any, kind: type[N], slot: int | str
) -> tuple[Any, list[tuple[int | str, int, N]]]:
    """An argument with None for the tasks in it, and their places. A list may mix both."""
    if isinstance(value, kind):
        return None, [(slot, -1, value)]
    if isinstance(value, list | tuple) and any(isinstance(each, kind) for each in value):
        places = [(slot, at, each) for at, each in enumerate(value) if isinstance(each, kind)]
        return [None if isinstance(each, kind) else each for each in value], places
    return value, []


def bound(
    task: AppTask[Any, Any], args: Sequence[Any], kwargs: dict[str, Any], kind: type[N]
) -> tuple[bytes, bytes, list[tuple[int | str, int, N]], list[Slot]]:
    """The encoded arguments, the places of results and of pickled arguments. Raises
    InvalidArgument."""
    signature = task.signature
    if task.pickles:
        return _bound_pickled(signature, args, kwargs, kind)
    args, kwargs = signature.bind(args, kwargs)
    places: list[tuple[int | str, int, N]] = []
    plain: list[Any] = []
    for position, value in enumerate(args):
        value, found = split_inputs(value, kind, position)
        plain.append(value)
        places += found
        if not found:
            signature.check_argument(position, value)
    words: dict[str, Any] = {}
    for name, value in kwargs.items():
        words[name], found = split_inputs(value, kind, name)
        places += found
        if not found:
            signature.check_argument(name, words[name])
    if not places:
        return *signature.pack(args, kwargs), [], []
    return encode(plain), encode(words), places, []


def _bound_pickled(
    signature: TaskSignature, args: Sequence[Any], kwargs: dict[str, Any], kind: type[N]
) -> tuple[bytes, bytes, list[tuple[int | str, int, N]], list[Slot]]:
    args, kwargs = signature.bind(args, kwargs)
    places: list[tuple[int | str, int, N]] = []
    slots: list[Slot] = []

    def encoded(slot: int | str, value: Any) -> msgspec.Raw:
        value, found = split_inputs(value, kind, slot)
        places.extend(found)
        if not found:
            return encode_argument(signature, slot, value, slots)
        if isinstance(value, list):
            items = enumerate(value)
            value = [encode_item(signature, (slot, at), each, slots) for at, each in items]
        return msgspec.Raw(encode(value))

    packed = encode([encoded(position, value) for position, value in enumerate(args)])
    words = encode({name: encoded(name, value) for name, value in kwargs.items()})
    return packed, words, places, slots


def filled(
    call: TaskCall,
    inputs: Sequence[Input],
    result_of: Callable[[bytes], msgspec.Raw | PickledResult],
) -> TaskCall:
    """The call with the results in their places. Raises UsageError for a pickled result in a graph
    of an app that did not ask."""
    if not inputs:
        return call
    args = _decode_array(call.args)
    words = _decode_map(call.kwargs)
    lists: dict[int | str, list[msgspec.Raw]] = {}
    slots: list[Slot] = []
    for each in inputs:
        place: Any = args if isinstance(each.slot, int) else words
        result: Any = result_of(each.task)
        if isinstance(result, PickledResult):
            slots.append((each.slot, each.item))
            result = msgspec.Raw(encode(result.data))
        if each.item < 0:
            place[each.slot] = result
            continue
        if each.slot not in lists:
            lists[each.slot] = _decode_array(place[each.slot])
        lists[each.slot][each.item] = result
    for slot, items in lists.items():
        place = args if isinstance(slot, int) else words
        place[slot] = msgspec.Raw(encode(items))
    pickled = call.pickled
    if slots and pickled is None:
        raise UsageError(
            "the result of a task before this one is pickled, and the app that submitted the graph "
            "did not ask for it: make it with weft.tasks.App(..., pickle=True)"
        )
    if slots and pickled is not None:
        pickled = PickledSlots(pickled.name, [*pickled.slots, *slots], pickled.python)
    return TaskCall(
        call.name, msgspec.Raw(encode(args)), msgspec.Raw(encode(words)), call.options, call.graph,
        pickled,
    )  # fmt: skip


def check_depth(task: str, value: Any, kind: type[Any], depth: int = 0) -> None:
    """Raises InvalidArgument for a node inside of an argument, deeper than in its list."""
    inner = value.values() if isinstance(value, dict) else value
    if depth > _DEPTH_MAX or not isinstance(value, dict | list | tuple | set | frozenset):
        return
    for each in inner:
        if isinstance(each, kind) and (depth or not isinstance(value, list | tuple)):
            raise InvalidArgument(
                f"task {task}: {each!r} is inside of an argument: a node stands for its result as "
                "an argument or in a list that is an argument, and nowhere else"
            )
        check_depth(task, each, kind, depth + 1)


def check_calls(value: Any) -> None:
    """A future of a task outside of the graph cannot be waited for."""
    from .future import FutureCore

    several = isinstance(value, list | tuple)
    for each in value if several else [value]:
        if isinstance(each, FutureCore):
            raise InvalidArgument(
                f"{each!r} is of a task that was submitted before: add that task to the graph, or "
                "pass its result"
            )
