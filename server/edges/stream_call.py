"""A streaming gRPC call, as its method sees it and as a server runs it.

The method is a coroutine, and `wait` is its only suspension: it returns after any event (a client's
message, an answer of the node, sent bytes, `wake`, the time `until`), perhaps without one. A method
therefore checks its conditions, waits, and checks again; `receive`, `send` and `ask` are such
loops. Nothing here is asyncio: the server calls `step` when the call asks to be resumed.

| the method uses                    |                                                             |
|------------------------------------|-------------------------------------------------------------|
| `receive`, `take`, `ended`         | the next message of the client, waiting or not; its end     |
| `send`, `post`, `unsent`           | send a message and wait for flow control, or only queue it  |
| `ask`, `submit`, `withdraw`        | request the node and wait, or get the answer by a callback  |
| `wait`, `wake`, `now`              | events and time                                             |
| `time_remaining`                   | seconds until the client's deadline                         |

| the server calls                   | when                                                        |
|------------------------------------|-------------------------------------------------------------|
| `start(deadline)`                  | the headers have arrived                                    |
| `deliver(message)`, `end_of_input` | a message has arrived; the client has ended its side. While |
|                                    | `full`, the server reads no further message                 |
| `step()`                           | soon after `_resume`, from the top of its own loop          |
| `sent(size)`                       | flow control has taken a message given to `_send`           |
| `wake()`                           | at the time of `_set_alarm`                                 |
| `cancel()`                         | the client has left, or its deadline has passed             |

A method ends in one of three ways: it returns (OK), it raises a WeftError (that status), or
`CallCancelled` is raised at its wait: then the client receives nothing any more. While the node
drains, an idle wait raises ShuttingDown.
"""

from __future__ import annotations

import time
import types
from abc import abstractmethod
from collections import deque
from collections.abc import Generator, Sequence
from typing import Final, TypeVar

from weft import limits
from weft.errors import WeftError, from_code
from weft.proto import wire
from weft.proto.verbs import MESSAGE_WAITS
from weft.server.node.node_api import OnAnswer

from .grpc_call import CallHeaders, ServedCall
from .grpc_method import StreamMethod
from .grpc_services import GrpcServices

Kind = TypeVar("Kind", bound=wire.Answer)

#: Client messages, and their bytes, that wait for the method. Past either, the server stops reading
#: until the method has taken some, and flow control holds the client back. One network read of
#: small messages fits, so that a method can take them together.
INBOX_MESSAGES_MAX: Final = 1024
INBOX_BYTES_MAX: Final = limits.MIB


class CallCancelled(BaseException):
    """Raised at the wait of a method whose client has left. As a BaseException, no method's
    handler of errors catches it by accident."""


@types.coroutine
def _pause() -> Generator[None, None, None]:
    yield


class _Pending:
    """A request without an answer yet."""

    __slots__ = ("call", "on_answer", "request", "ticket", "withdrawn")

    def __init__(self, call: StreamCall, request: wire.AnyRequest, on_answer: OnAnswer) -> None:
        self.call = call
        self.request = request
        self.on_answer = on_answer
        self.withdrawn = False
        self.ticket: int | None = None

    def answered(self, answer: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
        self.call.pending.discard(self)
        if self.withdrawn:
            self.call.services.give_back(self.request, answer)
            return
        self.on_answer(answer, frames)
        self.call.wake()


class StreamCall(ServedCall):
    """Hooks beside those of `ServedCall`: `_send`, `_resume`, `_set_alarm`, `_taken`."""

    def __init__(
        self, services: GrpcServices, method: StreamMethod, headers: CallHeaders, peer: str
    ) -> None:
        super().__init__(services, method.call, headers, peer)
        self._method = method
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        #: The client has ended its side, and the inbox may still hold messages.
        self._end_of_input = False
        #: Bytes given to `_send` and not yet taken by flow control.
        self.unsent = 0
        self.pending: set[_Pending] = set()
        self._deadline: float | None = None
        #: An event has come since the last wait.
        self._woken = False
        self._paused = self._resumed = self._running = False

    # --- hooks of the server ------------------------------------------------------------------

    @abstractmethod
    def _send(self, message: bytes) -> None:
        """Queues a message for the client; `sent(len(message))` when flow control has taken it."""

    @abstractmethod
    def _resume(self) -> None:
        """Has `step` called soon. The call does not ask again before that."""

    @abstractmethod
    def _set_alarm(self, at: float | None) -> None:
        """Has `wake` called at this time of `now`; replaces the last alarm. None: no alarm."""

    def _taken(self, message: bytes) -> None:
        """The method has taken this message: a server may read more, or grant flow control."""

    # --- for the method -----------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """The client has ended its side, and every message was taken."""
        return self._end_of_input and not self._inbox

    def take(self) -> bytes | None:
        """The next message of the client, if one has arrived."""
        if not self._inbox:
            return None
        message = self._inbox.popleft()
        self._inbox_bytes -= len(message)
        self._taken(message)
        return message

    async def receive(self) -> bytes | None:
        """The next message of the client; None after the last."""
        while not self._inbox:
            if self._end_of_input:
                return None
            await self.wait(idle=True)
        return self.take()

    def post(self, message: bytes) -> None:
        """Queues a message for the client. The method bounds `unsent`."""
        self.unsent += len(message)
        self._send(message)

    async def send(self, message: bytes) -> None:
        """Sends a message, and waits until flow control has taken it and all before it."""
        self.post(message)
        while self.unsent:
            await self.wait(idle=True)

    def submit(
        self, request: wire.AnyRequest, payload: Sequence[bytes], on_answer: OnAnswer
    ) -> _Pending:
        """Requests the node; `on_answer` is called with the answer, also a `Failure`, then `wake`.

        Raises Refused if the token does not allow the request. The callback comes in the server's
        thread, never after `withdraw` and never after the end of the call.
        """
        who = self._who(request)
        pending = _Pending(self, request, on_answer)
        self.pending.add(pending)
        pending.ticket = self._submit(request, payload, pending.answered, who)
        return pending

    def withdraw(self, pending: _Pending) -> None:
        """Cancels a request: messages leased by its answer go back to their queue."""
        if pending in self.pending and not pending.withdrawn:
            pending.withdrawn = True
            if pending.ticket is not None:
                self._cancel(pending.ticket)

    async def ask(
        self, request: wire.AnyRequest, payload: Sequence[bytes], kind: type[Kind]
    ) -> tuple[Kind, Sequence[bytes]]:
        """The answer and its payload frames; raises a `Failure` as the error that it names."""
        answers: list[tuple[wire.AnyAnswer, Sequence[bytes]]] = []
        pending = self.submit(request, payload, lambda *answered: answers.append(answered))
        idle = type(request) in MESSAGE_WAITS
        try:
            while not answers:
                await self.wait(idle=idle)
        except BaseException:
            self.withdraw(pending)
            if answers:
                self.services.give_back(request, answers[0][0])
            raise
        ((answer, frames),) = answers
        if isinstance(answer, wire.Failure):
            raise from_code(answer.code, answer.message)
        assert isinstance(answer, kind), f"{type(request).__name__} is not answered with {answer}"
        return answer, frames

    async def wait(self, until: float | None = None, *, idle: bool) -> None:
        """Waits for any event, until a time of `now` at the latest.

        `idle`: the call does no work meanwhile, and waits for an event that may never happen; the
        wait raises ShuttingDown when the node drains.
        """
        if self._woken:
            self._woken = False
            return
        self.services.gate.begin_wait(self, idle=idle)
        if until is not None:
            self._set_alarm(until)
        self._paused = True
        try:
            await _pause()
        finally:
            self._paused = self._woken = False
            self.services.gate.end_wait(self)
            if until is not None:
                self._set_alarm(None)

    def wake(self) -> None:
        """Ends the wait of the call, or the next one."""
        self._woken = True
        if self._paused and not self._resumed:
            self._resumed = True
            self._resume()

    def now(self) -> float:
        """The clock of `wait`, in seconds."""
        return time.monotonic()

    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; None without a deadline."""
        return None if self._deadline is None else self._deadline - self.now()

    # --- for the server -----------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return len(self._inbox) >= INBOX_MESSAGES_MAX or self._inbox_bytes >= INBOX_BYTES_MAX

    def start(self, remaining_s: float | None = None) -> None:
        self._deadline = None if remaining_s is None else self.now() + remaining_s
        try:
            self._enter()
        except WeftError as error:
            self._end_with(error)
            return
        self._coroutine = self._method.run(self)
        self._advance(None)

    def deliver(self, message: bytes) -> None:
        self._inbox.append(message)
        self._inbox_bytes += len(message)
        self.wake()

    def end_of_input(self) -> None:
        self._end_of_input = True
        self.wake()

    def sent(self, size: int) -> None:
        self.unsent -= size
        self.wake()

    def step(self) -> None:
        self._resumed = False
        if self._paused and not self.closed:
            self._advance(None)

    def fail(self, error: WeftError) -> None:
        """The drain gate ends the wait with an error, which the method may handle."""
        self._advance(error)

    def cancel(self) -> None:
        if not self.closed:
            self._advance(CallCancelled())

    def _advance(self, error: BaseException | None) -> None:
        """Runs the method until its next wait or its end."""
        assert not self._running, "a step inside a step: `_resume` must not call `step` itself"
        self._running = True
        try:
            if error is None:
                self._coroutine.send(None)
            else:
                self._coroutine.throw(error)
        except StopIteration:
            self._settle()
            self._succeed(b"")
        except CallCancelled:
            self._settle()
            self._end_cancelled()
        except Exception as failure:
            self._settle()
            self._end_with(failure)
        finally:
            self._running = False

    def _settle(self) -> None:
        """Withdraws the requests of an ended call."""
        for pending in list(self.pending):
            self.withdraw(pending)
