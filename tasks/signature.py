"""The arguments of a task: bound to the function's signature, and encoded as msgpack.

The types of the signature decide on the arguments of a worker's function: a `datetime`, a dataclass
or a `set` arrives as such, an argument without a type arrives as plain msgpack values. A
submission is decoded once by its own client: wrong arguments are refused before anything is sent.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from weft.errors import InvalidArgument

#: The encoding of no keyword arguments.
NO_KEYWORDS: Final = b"\x80"
#: The first byte of a body without options.
_BODY_OF_THREE: Final = b"\x93"
#: The name of the result among the types of a signature.
RESULT: Final = "return"
#: Values that msgpack carries without a change of their class.
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
#: Errors of values without an encoding; the last one of values that are nested too deeply.
_UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
_NoKeywords = typing.Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=0)]
#: First bytes of a msgpack array of up to 15 elements, and of one with a length of 16 bits.
_FIXARRAY, _FIXARRAY_END, _ARRAY16 = 0x90, 0x9F, 0xDC
#: The path of an element of the outermost array, in an error of msgspec.
_ELEMENT: Final = re.compile(r"`\$\[(\d+)\]")

encode = msgspec.msgpack.Encoder().encode
_decode_keywords = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_plain = msgspec.msgpack.Decoder()


class TaskSignature:
    """The arguments and the result of one task."""

    def __init__(self, name: str, function: Callable[..., Any], pickle: bool = False) -> None:
        self.name = name
        #: The arguments, or RESULT, with a type unknown to msgpack, which are pickled.
        self.opaque: set[str] = set()
        self._pickle = pickle
        #: The types as written, for the classes of pickled values.
        self._classes: dict[str, Any] = {}
        self._signature = inspect.signature(function)
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError) as error:
            raise InvalidArgument(
                f"the types of task {name} cannot be read: {error}. Import them at module level"
            ) from None
        self._positional: list[str] = []
        self._rest: str | None = None
        self._keywords_name = ""
        self._types: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            kind, wanted = parameter.kind, self._known_type(parameter.name, hints)
            self._types[parameter.name] = wanted
            if kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._positional.append(parameter.name)
            elif kind is parameter.VAR_POSITIONAL:
                self._rest = parameter.name
            elif kind is parameter.VAR_KEYWORD:
                self._keywords_name = parameter.name
        self.result = msgspec.msgpack.Decoder(self._known_type(RESULT, hints))
        self._arrays: dict[int, msgspec.msgpack.Decoder[Any]] = {}
        #: The decoders of whole bodies, by the number of arguments.
        self._columns: dict[int, msgspec.msgpack.Decoder[Any]] = {}
        self._column_head = _BODY_OF_THREE + encode(name)
        self._keywords: dict[str, msgspec.msgpack.Decoder[Any]] = {}

    def _known_type(self, name: str, hints: dict[str, Any]) -> Any:
        """The type of an argument, or of the result, for msgpack."""
        wanted = self._classes[name] = _hint(hints, name)
        try:
            what = "the result" if name == RESULT else f"argument {name!r}"
            _check_type(self.name, what, wanted)
        except InvalidArgument:
            if not self._pickle:
                raise
            self.opaque.add(name)
            return Any
        return wanted

    @property
    def parameters(self) -> list[str]:
        return list(self._signature.parameters)

    def argument(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """One argument of an unpacked call, or its default."""
        if name in kwargs:
            return kwargs[name]
        position = self._positional.index(name) if name in self._positional else len(args)
        if position < len(args):
            return args[position]
        default = self._signature.parameters[name].default
        return None if default is inspect.Parameter.empty else default

    # --- at the submitter ---

    def pack(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[bytes, bytes]:
        """Returns the encoded arguments of one call. Raises InvalidArgument naming the argument."""
        args, kwargs = self.bind(args, kwargs)
        packed = self._encode(list(args), args)
        words = self._encode(kwargs, kwargs.values()) if kwargs else NO_KEYWORDS
        self.unpack(packed, words)
        return packed, words

    def bind(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as the function's parameters take them, with as few keywords as possible.
        Raises InvalidArgument."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(f"task {self.name}: {error}") from None
        return bound.args, bound.kwargs

    def check_argument(self, slot: int | str, value: Any) -> None:
        """Raises InvalidArgument if a bound argument, by position or keyword, has a wrong type."""
        name = self.name_of(slot)
        self.decode_argument(name, self._encode(value, [value], f"argument {name!r}"))

    def is_opaque(self, name: str, value: Any) -> bool:
        """True for a value to be pickled: msgpack would change its class."""
        return name in self.opaque and type(value) not in _SCALARS

    def check_class(self, name: str, value: Any) -> None:
        """Raises InvalidArgument if a pickled argument is of another class than its type.

        The class is checked alone: msgspec looks into values of msgpack only.
        """
        wanted = self._classes.get(name, self._classes.get(self._keywords_name, Any))
        if not _is_instance(value, wanted):
            raise InvalidArgument(
                f"task {self.name}, argument {name!r}: expected {wanted}, got "
                f"{type(value).__name__}, which msgpack cannot encode"
            )

    def item_type(self, name: str) -> Any:
        """The type of the elements of a list argument."""
        wanted = self._types.get(name, Any)
        inner = typing.get_args(wanted)
        return inner[0] if inner and typing.get_origin(wanted) not in _UNIONS else Any

    def pack_around(self, value: Any, kwargs: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """Encodes a call whose first argument is this value, for other values in its place: returns
        the bytes before and after the value, and the keywords."""
        packed, words = self.pack((value,), kwargs)
        marks = 1 if packed[0] <= _FIXARRAY_END else 3
        # After the value: bound keywords.
        return packed[:marks], packed[marks + len(encode(value)) :], words

    def pack_column(self, values: Sequence[Any], head: bytes, tail: bytes) -> list[bytes]:
        """Encodes first arguments, each between `head` and `tail`. Raises InvalidArgument."""
        try:
            column = [head + encode(value) + tail for value in values]
        except _UNENCODABLE:
            for position, value in enumerate(values):
                self._encode(value, [value], f"item {position}")
            raise
        first = self._positional[0] if self._positional else self._rest
        wanted = self._types.get(first or "", Any)
        if wanted is not Any:
            try:
                msgspec.msgpack.decode(encode(values), type=list[wanted])  # type: ignore[valid-type]
            except msgspec.ValidationError as error:
                place = _ELEMENT.search(str(error))
                item = f"item {place.group(1)}" if place else "an item"
                raise InvalidArgument(
                    f"task {self.name}, argument {first!r}, {item}: {error}"
                ) from None
        return column

    def _encode(self, value: Any, parts: Iterable[Any], what: str = "an argument") -> bytes:
        try:
            return encode(value)
        except _UNENCODABLE as error:
            for part in parts:
                try:
                    encode(part)
                except _UNENCODABLE:
                    what = f"{what} ({type(part).__name__})"
                    break
            raise InvalidArgument(
                f"task {self.name}: {what} cannot be encoded as msgpack: {error}"
            ) from None

    # --- at the worker ---

    def unpack(
        self, packed: bytes | msgspec.Raw, words: bytes | msgspec.Raw
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Returns the arguments as the signature types them. Raises InvalidArgument."""
        data = bytes(packed)
        count = data[0] - _FIXARRAY
        if not 0 <= count <= _FIXARRAY_END - _FIXARRAY:
            count = int.from_bytes(data[1:3], "big") if data[0] == _ARRAY16 else -1
        decoder = self._arrays.get(count) or self._array(count)
        try:
            args = decoder.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            place = _ELEMENT.search(str(error))
            name = self.name_of(int(place.group(1))) if place else "?"
            raise InvalidArgument(f"task {self.name}, argument {name!r}: {error}") from None
        if bytes(words) == NO_KEYWORDS:
            return args, {}
        return args, {
            name: self.decode_argument(name, raw) for name, raw in _decode_keywords(words).items()
        }

    def unpack_column(self, bodies: Sequence[bytes]) -> list[Sequence[Any]] | None:
        """Returns the arguments of bodies of this task without keywords and options, all with as
        many arguments. Raises msgspec.DecodeError if a body differs, or has wrong arguments."""
        at = len(self._column_head)
        head = bodies[0][: at + 1]
        count = head[at] - _FIXARRAY if len(head) > at else -1
        if not head.startswith(self._column_head) or not 0 <= count <= _FIXARRAY_END - _FIXARRAY:
            return None
        decoder = self._columns.get(count)
        if decoder is None:
            try:
                types = self._array_types(count)
            except InvalidArgument:
                return None
            body = tuple[typing.Literal.__getitem__(self.name), types, _NoKeywords]  # type: ignore[misc, valid-type]
            decoder = self._columns[count] = msgspec.msgpack.Decoder(body)
        return [row[1] for row in map(decoder.decode, bodies)]

    def _array(self, count: int) -> msgspec.msgpack.Decoder[Any]:
        """The decoder for so many positional arguments."""
        decoder = self._arrays[count] = msgspec.msgpack.Decoder(self._array_types(count))
        return decoder

    def _array_types(self, count: int) -> Any:
        names = self._positional[:count]
        if count < 0 or (count > len(names) and self._rest is None):
            raise InvalidArgument(
                f"task {self.name} takes {len(self._positional)} positional arguments, not {count}"
            )
        types = [self._types[name] for name in names]
        if self._rest is not None:
            types += [self._types[self._rest]] * (count - len(names))
        return tuple.__class_getitem__(tuple(types))

    def check_count(self, count: int) -> None:
        """Raises InvalidArgument for too many positional arguments."""
        self._array_types(count)

    def decode_argument(self, name: str, raw: bytes | msgspec.Raw) -> Any:
        """One argument, as the signature types it. Raises InvalidArgument."""
        decoder = self._keywords.get(name)
        if decoder is None:
            wanted = self._types.get(name, self._types.get(self._keywords_name))
            if wanted is None:
                raise InvalidArgument(f"task {self.name} has no argument {name!r}")
            decoder = self._keywords[name] = msgspec.msgpack.Decoder(wanted)
        try:
            return decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgument(f"task {self.name}, argument {name!r}: {error}") from None

    def name_of(self, slot: int | str) -> str:
        """The name of an argument, by its position or keyword."""
        if isinstance(slot, str):
            return slot
        position = slot
        if position < len(self._positional):
            return self._positional[position]
        return self._rest or str(position)


def plain_result(raw: bytes | msgspec.Raw) -> Any:
    """Decodes a result without a type."""
    return _plain.decode(raw)


_UNIONS: Final = (typing.Union, types.UnionType)


def _is_instance(value: Any, wanted: Any) -> bool:
    """False if the class of a value shows that its type is wrong."""
    if wanted is Any:
        return True
    origin = typing.get_origin(wanted)
    if origin in _UNIONS:
        return any(_is_instance(value, each) for each in typing.get_args(wanted))
    if origin is typing.Annotated:
        return _is_instance(value, typing.get_args(wanted)[0])
    kind = type(None) if wanted is None else origin or wanted
    try:
        return not isinstance(kind, type) or isinstance(value, kind)
    except TypeError:  # a protocol
        return True


def _hint(hints: dict[str, Any], name: str) -> Any:
    wanted = hints.get(name, Any)
    return Any if wanted is object else wanted


def _check_type(task: str, what: str, wanted: Any) -> None:
    try:
        info = msgspec.inspect.type_info(wanted)
    except (TypeError, NameError) as error:
        raise InvalidArgument(
            f"task {task}: {what} has a type that is no msgpack: {error}"
        ) from None
    for custom in _customs(info, set()):
        raise InvalidArgument(
            f"task {task}: {what} has the type {custom.__name__}, which msgpack cannot carry: use "
            "builtins, dataclasses, msgspec structs, dates, UUIDs, enums and collections of these"
        )


def _customs(info: Any, seen: set[int]) -> Iterable[type]:
    """The classes inside a type unknown to msgspec."""
    if isinstance(info, msgspec.inspect.CustomType):
        yield info.cls
    for name in ("item_type", "key_type", "value_type", "type"):
        inner = getattr(info, name, None)
        if isinstance(inner, msgspec.inspect.Type):
            yield from _customs(inner, seen)
    for name in ("item_types", "types", "fields"):
        for inner in getattr(info, name, ()) if id(info) not in seen else ():
            kind = (
                inner if isinstance(inner, msgspec.inspect.Type) else getattr(inner, "type", None)
            )
            if kind is not None:
                yield from _customs(kind, seen | {id(info)})
