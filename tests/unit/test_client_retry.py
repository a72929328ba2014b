"""Which requests are retried, and the error when the deadline passes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from weft import errors
from weft.client.routing import session
from weft.client.routing.cluster_view import ClusterNode, ClusterView
from weft.client.routing.discovery import Discovery
from weft.client.routing.router import ANY, Router
from weft.client.transport.blocking_link import run
from weft.client.transport.link import Answered, Asked, NodeAddress, OpenLink
from weft.client.transport.pending_calls import NotSent
from weft.client.transport.runtime import BlockingRuntime
from weft.proto import wire
from weft.proto.idempotence import ONCE

NO_COPY = wire.Failure("UNAVAILABLE", "no second copy now", True)
NOT_ME = wire.Failure("NOT_PRIMARY", "not me", True)
FULL = wire.Failure("QUEUE_FULL", "full", True)
PUSH = wire.Push("q", 1, 2, 1)
PUSHED = wire.Pushed(1, 1, 2, 1, False, "disk")


class Script:
    """A link that answers at once with the next line of a script; the last line repeats."""

    breaks = 0
    quiet = True
    fail_fast = False

    def __init__(self, *lines: wire.AnyAnswer | errors.WeftError) -> None:
        self.lines = list(lines)
        self.asked: list[wire.AnyRequest] = []

    async def call(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float
    ) -> Answered:
        if isinstance(request, wire.GetView):
            nodes = [wire.NodeInfo("n", "127.0.0.1:1", "127.0.0.1:2", "active")]
            return wire.ViewInfo("cluster", 1, 16, nodes), ()
        self.asked.append(request)
        line = self.lines.pop(0) if len(self.lines) > 1 else self.lines[0]
        if isinstance(line, errors.WeftError):
            raise line
        return line, ()

    async def call_all(self, asked: Sequence[Asked], deadline: float) -> list[Answered | Exception]:
        ends: list[Answered | Exception] = []
        for request, payload in asked:
            try:
                ends.append(await self.call(request, payload, deadline))
            except errors.WeftError as error:
                ends.append(error)
        return ends

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the router's carrier sleeps")

    def close(self, *, retired: bool = False) -> None:
        pass


class Scripted(BlockingRuntime):
    def __init__(self, script: Script) -> None:
        self._script = script

    def open(self, place: NodeAddress) -> OpenLink:
        return self._script


def router_to(script: Script) -> Router:
    discovery = Discovery(["127.0.0.1:1"])
    discovery.view = ClusterView("cluster", 16, (ClusterNode("n", "127.0.0.1:1", "127.0.0.1:2"),))
    return Router(Scripted(script), discovery)


def ask(
    script: Script, request: wire.AnyRequest, expected: type[wire.Answer], seconds: float = 20
) -> wire.Answer:
    deadline = time.monotonic() + seconds
    return run(session.ask(router_to(script), ANY, request, expected, deadline))[0]


def ask_all(script: Script, request: wire.AnyRequest, seconds: float) -> list[object]:
    deadline = time.monotonic() + seconds
    asked = [(3, (request, ()))]
    return list(run(session.ask_all(router_to(script), asked, wire.Pushed, deadline)))


@pytest.mark.parametrize("failure", [NO_COPY, NOT_ME, FULL, NotSent("x"), errors.ShuttingDown()])
def test_a_push_is_made_again_under_its_name(failure: wire.Failure | errors.WeftError) -> None:
    script = Script(failure, failure, PUSHED)
    assert ask(script, PUSH, wire.Pushed) == PUSHED
    assert script.asked == [PUSH] * 3
    script = Script(failure, PUSHED)
    assert ask_all(script, PUSH, 20) == [PUSHED]
    assert script.asked == [PUSH] * 2


ONCE_REQUESTS: list[wire.AnyRequest] = [
    wire.Append("k", b"v"), wire.CompareAndSwap("k", None, b"v"), wire.Remove("k"),
    wire.DeleteQueue("q"), wire.PurgeQueue("q"), wire.Redrive("q"), wire.DeleteTopic("t"),
    wire.Unbind("t", "q"),
]  # fmt: skip


def test_the_list_is_whole() -> None:
    assert {type(request) for request in ONCE_REQUESTS} == set(ONCE)


@pytest.mark.parametrize("request_", ONCE_REQUESTS)
@pytest.mark.parametrize(
    "failure", [NO_COPY, errors.ConnectionLost("broke"), errors.DeadlineExceeded("late")]
)
def test_what_may_have_been_done_is_not_made_again(
    request_: wire.AnyRequest, failure: wire.Failure | errors.WeftError
) -> None:
    script = Script(failure, wire.Done(1))
    with pytest.raises(errors.Unavailable):
        ask(script, request_, wire.Done)
    assert script.asked == [request_]


CANCEL = wire.Cancel("q", 1, 2, 3, 0)
LEASED = wire.Failure("MESSAGE_LEASED", "a consumer holds it", False)


@pytest.mark.parametrize(
    "failure", [NO_COPY, errors.ConnectionLost("broke"), errors.DeadlineExceeded("late")]
)
def test_a_cancel_that_may_have_been_done_is_repeated(
    failure: wire.Failure | errors.WeftError,
) -> None:
    """The first attempt removed the message: the second one finds none, which is no error."""
    script = Script(failure, wire.Done(0))
    assert ask(script, CANCEL, wire.Done) == wire.Done(0)
    assert script.asked == [CANCEL] * 2


@pytest.mark.parametrize(
    ("failure", "error"), [(NO_COPY, errors.Unavailable), (NOT_ME, errors.MessageLeased)]
)
def test_a_refused_cancel_is_final_only_without_an_attempt_in_doubt(
    failure: wire.Failure, error: type[errors.WeftError]
) -> None:
    with pytest.raises(error, match="a consumer holds it"):
        ask(Script(failure, LEASED), CANCEL, wire.Done)


@pytest.mark.parametrize("request_", ONCE_REQUESTS)
@pytest.mark.parametrize("failure", [NOT_ME, FULL, NotSent("x"), errors.ShuttingDown()])
def test_what_was_surely_not_done_is_made_again(
    request_: wire.AnyRequest, failure: wire.Failure | errors.WeftError
) -> None:
    script = Script(failure, wire.Done(1))
    assert ask(script, request_, wire.Done) == wire.Done(1)
    assert script.asked == [request_] * 2


@pytest.mark.parametrize(
    ("first", "error", "says"),
    [
        (NO_COPY, errors.DeadlineExceeded, r"may or may not have been stored.*not me"),
        (NOT_ME, errors.NotPrimary, "^not me$"),
        (FULL, errors.NotPrimary, "^not me$"),
    ],
)
def test_the_last_word_says_whether_it_may_have_been_stored(
    first: wire.Failure, error: type[errors.WeftError], says: str
) -> None:
    with pytest.raises(error, match=says):
        ask(Script(first, NOT_ME), PUSH, wire.Pushed, 0.2)
    (end,) = ask_all(Script(first, NOT_ME), PUSH, 0.2)
    assert type(end) is error
