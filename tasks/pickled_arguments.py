"""Calls with pickled arguments, of apps made with `pickle=True`.

An argument that msgpack cannot encode is pickled as a whole, and is a byte string in the call. The
call's `PickledSlots` name these arguments, so no plain byte string is ever unpickled. Other
arguments stay msgpack. A worker unpickles only with `--allow-pickle`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from weft import limits
from weft.errors import InvalidArgument, TooLarge, UsageError

from .call import PICKLED_TASK, CallOptions, PickledSlots, Slot, TaskCall
from .pickle_codec import pickle_value, python_version, unpickle_value
from .signature import TaskSignature, encode

if TYPE_CHECKING:
    from .app import App
    from .task import AppTask

_decode_array = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_decode_bytes = msgspec.msgpack.Decoder(bytes).decode


# --- at the submitter ---


def encode_argument(
    signature: TaskSignature, slot: int | str, value: Any, slots: list[Slot]
) -> msgspec.Raw:
    """One argument as msgpack or, then also added to `slots`, pickled. Raises InvalidArgument."""
    name = signature.name_of(slot)
    if not signature.is_opaque(name, value):
        try:
            raw = encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass
        else:
            signature.decode_argument(name, raw)
            return msgspec.Raw(raw)
    signature.check_class(name, value)
    what = f"task {signature.name}: argument {name!r}"
    slots.append((slot, -1))
    return msgspec.Raw(encode(pickle_value(value, what, limits.BODY_BYTES_MAX)))


def encode_item(
    signature: TaskSignature, place: Slot, value: Any, slots: list[Slot]
) -> msgspec.Raw:
    """One element of an argument with results of other tasks, like `encode_argument`."""
    try:
        return msgspec.Raw(encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    what = f"task {signature.name}: argument {signature.name_of(place[0])!r}, item {place[1]}"
    slots.append(place)
    return msgspec.Raw(encode(pickle_value(value, what, limits.BODY_BYTES_MAX)))


def pickled_body(
    task: AppTask[Any, Any], args: Sequence[Any], kwargs: dict[str, Any], options: CallOptions
) -> bytes:
    """The body of a call; a plain one, if msgpack can encode all arguments."""
    signature, slots = task.signature, list[Slot]()
    args, kwargs = signature.bind(args, kwargs)
    packed = encode([encode_argument(signature, at, each, slots) for at, each in enumerate(args)])
    words = encode(
        {name: encode_argument(signature, name, each, slots) for name, each in kwargs.items()}
    )
    if not slots:
        return task.frame.body(packed, words, options)
    body = encode_pickled(task.name, packed, words, options, slots)
    if len(body) > limits.BODY_BYTES_MAX:
        raise TooLarge(
            f"task {task.name}: the call has {len(body)} bytes, at most {limits.BODY_BYTES_MAX} "
            "are allowed: pass the address of large data"
        )
    return body


def encode_pickled(
    name: str, packed: bytes, words: bytes, options: CallOptions, slots: list[Slot]
) -> bytes:
    """The body of a call with pickled arguments."""
    marks = PickledSlots(name, slots, python_version())
    args, kwargs = msgspec.Raw(packed), msgspec.Raw(words)
    return encode(TaskCall(PICKLED_TASK, args, kwargs, options, None, marks))


# --- at the worker ---


def decode_arguments(
    task: AppTask[Any, Any], call: TaskCall
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a call. Raises UsageError if this worker does not unpickle."""
    if call.pickled is None or not call.pickled.slots:
        return task.signature.unpack(call.args, call.kwargs)
    check_allowed(task.app, f"task {task.name}: the call has pickled arguments")
    python = call.pickled.python

    def load(name: str, data: bytes) -> Any:
        return unpickle_value(data, f"task {task.name}: argument {name!r}", python)

    return _decoded(task.signature, call, load)


def decode_unpickled(
    task: AppTask[Any, Any], call: TaskCall
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a call with None for pickled ones: nothing is unpickled."""
    if call.pickled is None:
        return task.signature.unpack(call.args, call.kwargs)
    return _decoded(task.signature, call, lambda name, data: None)


def check_allowed(app: App, what: str) -> None:
    """Raises UsageError, naming the option, unless this worker pickles."""
    if app.pickle_allowed:
        return
    if app.inline_runner is not None:
        raise UsageError(f"{what}: use app.inline(allow_pickle=True)")
    raise UsageError(
        f"{what}, and this worker was started without --allow-pickle: start weft worker "
        "--allow-pickle if you trust every submitter, and retry the task"
    )


def _decoded(
    signature: TaskSignature, call: TaskCall, load: Callable[[str, bytes], Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    assert call.pickled is not None
    marks: dict[int | str, set[int]] = {}
    for slot, item in call.pickled.slots:
        marks.setdefault(slot, set()).add(item)

    def value_of(slot: int | str, raw: msgspec.Raw) -> Any:
        name, items = signature.name_of(slot), marks.get(slot)
        if items is None:
            return signature.decode_argument(name, raw)
        if -1 in items:
            value = load(name, _decode_bytes(raw))
            if value is not None:
                signature.check_class(name, value)
            return value
        decode = msgspec.msgpack.Decoder(signature.item_type(name)).decode
        return [
            load(name, _decode_bytes(each)) if at in items else decode(each)
            for at, each in enumerate(_decode_array(raw))
        ]

    try:
        packed = _decode_array(call.args)
        signature.check_count(len(packed))
        args = [value_of(slot, raw) for slot, raw in enumerate(packed)]
        return args, {name: value_of(name, raw) for name, raw in _decode_map(call.kwargs).items()}
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"task {signature.name}: {error}") from None
