"""The seam between what the client says and how it is carried.

Everything above a link is written once, as coroutines. `AsyncLink` suspends them while they wait;
`BlockingLink` blocks inside and never suspends, so a synchronous caller can run the same coroutine
to its end with a single step (`run`), without an event loop and without another thread.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from weft.proto import wire

#: How long an attempt stays unanswered, beyond the request's own wait, before it is sent again.
ATTEMPT_S: Final = 5.0
#: How long a node is unreachable before the seeds are asked for its address again.
LOST_S: Final = 1.0
#: How long that asking takes at most.
LOOK_S: Final = 1.0
#: Requests of one caller that are under way at once.
PIPELINE_MAX: Final = 16

#: A request and its payload frames.
Asked = tuple[wire.AnyRequest, Sequence[bytes]]
#: An answer and its payload frames.
Answered = tuple[wire.AnyAnswer, Sequence[wire.Frame]]

T = TypeVar("T")


class Place(Protocol):
    """What a link knows of its node."""

    @property
    def address(self) -> str:
        """Where its data path is, as far as is known: HOST:PORT."""
        ...

    @property
    def token(self) -> str:
        """What its node is shown with every request; empty: nothing."""
        ...

    @property
    def key(self) -> bytes | None:
        """The public key of its node's data path; None: the connection is not encrypted."""
        ...

    def refresh(self, within_s: float) -> str | None:
        """Asks where it is now, in any thread; None when nobody says."""
        ...

    def looked(self) -> None:
        """Called after a refresh, in the link's own thread: there may be other nodes now."""
        ...


class Link(Protocol):
    """Carries requests to one node. Times are of `time.monotonic`."""

    async def call(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float
    ) -> Answered:
        """The node's answer; a Failure is an answer. Raises Unavailable when there is none."""
        ...

    async def call_all(self, asked: Sequence[Asked], deadline: float) -> list[Answered | Exception]:
        """Several at once, answered in the order of asking; at most PIPELINE_MAX."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    @property
    def breaks(self) -> int:
        """Grows when a connection was lost: leases may be void."""
        ...


class OpenLink(Link, Protocol):
    """A link as its router holds it."""

    #: Whether a call ends with its connection (there are other nodes to go to), or is held until
    #: the node is back (it is the only one). May change at any time.
    fail_fast: bool

    def close(self, *, retired: bool = False) -> None:
        """Ends all calls. With `retired` the node is gone and not the client: calls may go on at
        another node, and their errors say so."""
        ...


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine over a blocking link: it never suspends, so one step ends it."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise AssertionError("a blocking link suspended")
