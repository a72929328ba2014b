"""Sample values of wire structs, derived from their annotations.

A sample sets every field to a value that differs from its default, so that a recorded frame shows
every field and its position.
"""

from __future__ import annotations

import types
import typing
from itertools import count
from typing import Any

import msgspec


def structs_of(union: object) -> list[type[msgspec.Struct]]:
    """The struct types of a (nested) union, in the order of their tags."""
    if isinstance(union, type):
        return [union] if issubclass(union, msgspec.Struct) else []
    found = {each for part in typing.get_args(union) for each in structs_of(part)}
    return sorted(found, key=lambda each: str(each.__struct_config__.tag))


def sample(kind: type[msgspec.Struct]) -> msgspec.Struct:
    return typing.cast(msgspec.Struct, _value(kind, count(1)))


def _value(kind: Any, numbers: count[int]) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        first = next(each for each in arguments if each is not type(None))
        return _value(first, numbers)
    if origin is list:
        return [_value(arguments[0], numbers)]
    if origin is dict:
        return {_value(arguments[0], numbers): _value(arguments[1], numbers)}
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return (_value(arguments[0], numbers),)
        return tuple(_value(each, numbers) for each in arguments)
    if origin is typing.Literal:
        return arguments[-1]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _value(hints[name], numbers) for name in kind.__struct_fields__})
    number = next(numbers)
    scalars = {
        bool: True,
        int: number,
        float: number / 2,
        str: f"s{number}",
        bytes: b"b%d" % number,
    }
    return scalars[kind]
