"""The two kinds of gRPC methods: what a row of ``grpc_methods`` can be.

An *exchange method* has one request message and one response message, and needs no coroutine:
`ask` translates the request message to a request of ``weft.proto.wire``, `reply` translates the
node's answer to the response message. A method that needs the node twice (a retried part of an ack)
returns another `Asked` from `reply`.

A *stream method* has a stream in one or both directions: a coroutine over a `StreamCall`
(``stream_call``), which both servers can run.

Messages are bytes here, so a hot method may translate without an object of protobuf; `exchange`
makes a method from functions over the generated classes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto

from weft.errors import InvalidArgument
from weft.proto import wire

if TYPE_CHECKING:
    from .grpc_services import GrpcServices
    from .stream_call import StreamCall

#: The package of weft.proto.
PACKAGE: Final = "weft.v1"

In = TypeVar("In", bound=Proto)
Kind = TypeVar("Kind", bound=wire.Answer)


class Asked(NamedTuple):
    """One request of a method to the node."""

    request: wire.AnyRequest
    payload: Sequence[bytes] = ()
    #: A value that the method passes from `ask` to `reply`, and that no server looks at.
    kept: Any = None


#: `ask(services, message, remaining_s)`: the request message, and the seconds until the client's
#: deadline or None. Raises WeftError to refuse the call.
Ask = Callable[["GrpcServices", bytes, float | None], Asked]
#: `reply(services, asked, answer, frames)`: the response message, or the next request. The answer
#: is of the method's `kind`; a `Failure` never gets here.
Reply = Callable[["GrpcServices", Asked, Any, Sequence[bytes]], bytes | Asked]


@dataclass(frozen=True, slots=True)
class _Method:
    #: ``Service.Method``, as in the column `grpc` of the verb table.
    name: str
    #: The method without its service: the name in the call log and in the metrics.
    call: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "call", self.name.partition(".")[2])

    @property
    def path(self) -> str:
        """The path of HTTP/2."""
        service, _, method = self.name.partition(".")
        return f"/{PACKAGE}.{service}/{method}"


@dataclass(frozen=True, slots=True)
class ExchangeMethod(_Method):
    ask: Ask
    reply: Reply


@dataclass(frozen=True, slots=True)
class StreamMethod(_Method):
    #: The coroutine of one call. It awaits only methods of the call, and raises WeftError to refuse
    #: the call; a return ends the call with the status OK.
    run: Callable[[StreamCall], Coroutine[Any, Any, None]]
    #: The client sends a stream of messages, and not exactly one.
    client_streams: bool


def parse(message: bytes, kind: type[In]) -> In:
    """The message of a generated class; raises InvalidArgument for any other bytes."""
    try:
        return kind.FromString(message)
    except DecodeError:
        raise malformed(kind.DESCRIPTOR.full_name) from None


def malformed(what: str) -> InvalidArgument:
    return InvalidArgument(
        f"the bytes are not a message {what}: generate the client from this node's weft.proto"
    )


def exchange(
    name: str,
    message: type[In],
    ask: Callable[[In], wire.AnyRequest],
    kind: type[Kind],
    reply: Callable[[Kind], Proto],
) -> ExchangeMethod:
    """A method without payloads and state: two functions over generated classes and structs."""

    def ask_bytes(_: GrpcServices, data: bytes, remaining_s: float | None) -> Asked:
        return Asked(ask(parse(data, message)))

    def reply_bytes(_: GrpcServices, asked: Asked, answer: Any, frames: Sequence[bytes]) -> bytes:
        assert isinstance(answer, kind), f"{name} is not answered with {answer}"
        return reply(answer).SerializeToString()

    return ExchangeMethod(name, ask_bytes, reply_bytes)
