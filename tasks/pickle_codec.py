"""Pickles values that msgpack cannot encode. No other module imports cloudpickle.

Unpickling runs code chosen by the writer of the data. So this module is called only where both
sides have asked: the app of the submitter (`App(pickle=True)`) and the worker (`--allow-pickle`),
or, for a result, the worker and the app of the reader. Exceptions are never pickled: failures are
texts.
"""

from __future__ import annotations

import io
import platform
from functools import cache
from typing import Any

from weft.errors import InvalidArgument, MissingExtra, TaskFailed, TooLarge, WeftError


@cache
def _library() -> Any:
    try:
        import cloudpickle
    except ImportError:
        raise MissingExtra(
            "values that msgpack cannot encode need cloudpickle: pip install 'weft[pickle]'"
        ) from None
    return cloudpickle


@cache
def _pickler() -> Any:
    base: Any = _library().Pickler

    def reducer_override(self: Any, value: Any) -> Any:
        if isinstance(value, BaseException):
            raise InvalidArgument(
                f"an exception ({type(value).__name__}) is never pickled: pass its text"
            )
        return base.reducer_override(self, value)

    return type("TaskPickler", (base,), {"reducer_override": reducer_override})


def require_cloudpickle() -> None:
    """Raises MissingExtra if the library is not installed."""
    _library()


def python_version() -> str:
    """The version whose bytecode the functions among pickled values have."""
    return ".".join(platform.python_version_tuple()[:2])


def pickle_value(value: Any, what: str, bytes_max: int) -> bytes:
    """Raises InvalidArgument, TooLarge and MissingExtra; `what` names the value in them."""
    file = io.BytesIO()
    try:
        _pickler()(file).dump(value)
    except MissingExtra as error:
        raise MissingExtra(f"{what} ({type(value).__name__}): {error.message}") from None
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error.message}") from None
    except WeftError:  # an interrupt of the running task
        raise
    except Exception as error:
        raise InvalidArgument(
            f"{what} ({type(value).__name__}) can be encoded by neither msgpack nor pickle: {error}"
        ) from error
    if (size := file.tell()) > bytes_max:
        raise TooLarge(
            f"{what} has {size} bytes pickled, at most {bytes_max} are allowed: store it "
            "elsewhere and pass its address"
        )
    return file.getvalue()


def unpickle_value(data: bytes, what: str, python: str = "") -> Any:
    """Runs code of the writer of the data. Raises InvalidArgument and MissingExtra."""
    library = _library()
    try:
        return library.loads(data)
    except TaskFailed:  # an interrupt of the running task
        raise
    except Exception as error:
        text = f"{what} cannot be unpickled: {type(error).__name__}: {error}"
        if python and python != python_version():
            text += f" (pickled by Python {python}, this is Python {python_version()})"
        raise InvalidArgument(text) from error
