"""The interface between the client's protocol code and its transport.

All code above a link is written once, as coroutines. `AsyncLink` suspends the coroutines while they
wait. `BlockingLink` blocks and never suspends, so a synchronous caller runs the same coroutine to
its end with a single step (`blocking_link.run`), without an event loop and without another thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from weft.proto import wire

#: How long an attempt stays unanswered, beyond the request's own wait, before a resend.
ATTEMPT_S: Final = 5.0
#: How long a node is unreachable before the client asks the seeds for its address again.
LOST_S: Final = 1.0
#: Timeout of one such query to the seeds.
LOOK_S: Final = 1.0
#: Limit on requests of one caller in flight at once.
PIPELINE_MAX: Final = 16

#: A request and its payload frames.
Asked = tuple[wire.AnyRequest, Sequence[bytes]]
#: An answer and its payload frames.
Answered = tuple[wire.AnyAnswer, Sequence[wire.Frame]]


class NodeAddress(Protocol):
    """The address and keys of a link's node."""

    @property
    def address(self) -> str:
        """The last known address of the node's data path: HOST:PORT."""
        ...

    @property
    def token(self) -> str:
        """The token sent with every request; empty means no token."""
        ...

    @property
    def key(self) -> bytes | None:
        """The public key of the node's data path; None means no encryption."""
        ...

    def refresh(self, within_s: float) -> str | None:
        """Asks the seeds for the current address, from any thread; None if no seed answers."""
        ...

    def looked(self) -> None:
        """Called after a refresh, in the link's own thread: the view may have other nodes now."""
        ...


class Link(Protocol):
    """Carries requests to one node. Times are of `time.monotonic`."""

    async def call(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float
    ) -> Answered:
        """Returns the node's answer, perhaps a Failure. Raises Unavailable without an answer."""
        ...

    async def call_all(self, asked: Sequence[Asked], deadline: float) -> list[Answered | Exception]:
        """Makes up to PIPELINE_MAX calls at once; answers are in the order of `asked`."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    @property
    def breaks(self) -> int:
        """Increases with every lost connection: leases may be void."""
        ...

    @property
    def quiet(self) -> bool:
        """True if no abandoned call can still hold a lease."""
        ...


class OpenLink(Link, Protocol):
    """A link with the controls that the router uses."""

    #: True: a call fails with its connection, because other nodes can serve the call. False: a call
    #: waits until the node is back, because it is the only node. May change at any time.
    fail_fast: bool

    def close(self, *, retired: bool = False) -> None:
        """Ends all calls.

        With `retired` the node is gone and not the client: callers may retry at another node, and
        the errors of the calls say so.
        """
        ...
