"""Access: who may do what, decided by one function for every path.

A caller shows a *token*. It belongs to a *principal*, which has *grants*: a permission and a
pattern of names, ``push:orders.*``. What no grant allows is denied. `allow` is the only place that
knows which verb needs which permission; gRPC and ZeroMQ both come through `Access.check`, and a
verb that is not in the table is denied, so a new one cannot be forgotten.

| permission | lets                                                                    |
|------------|-------------------------------------------------------------------------|
| push       | push to the queue                                                       |
|            | (stage, publish and abort are pushes)                                   |
| consume    | pop, peek, ack, nack and extend; subscriptions                          |
| admin      | create, update, delete, purge and redrive the queue, back it up and     |
|            | restore it; release and delete subscriptions; with ``*`` the whole      |
|            | cluster, join and leave                                                 |
| watch      | list queues and read the figures, of names that the pattern covers      |
| table      | every verb of the hash table, by key                                    |

Any valid token may ask who is in the cluster (a client must, to connect) and how a node does; any
grant on a queue lets describe it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Protocol

from weft.errors import InvalidArgument, PermissionDenied, Unauthenticated
from weft.proto import streams, wire

PERMISSIONS: Final = ("push", "consume", "admin", "watch", "table")
#: Letters of names and ``*``, which stands for any of them, also none.
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*:/-]{1,80}")

#: What a verb needs on its queue or key.
_NEEDS: Final[dict[type, str]] = {
    wire.Push: "push",
    wire.Pop: "consume",
    wire.Peek: "consume",
    wire.Ack: "consume",
    wire.Nack: "consume",
    wire.Extend: "consume",
    streams.OpenSubscription: "consume",
    streams.Reserve: "consume",
    streams.DescribeReservation: "consume",
    streams.ReadReserved: "consume",
    streams.AckThrough: "consume",
    streams.Heartbeat: "consume",
    streams.ReleaseAll: "admin",
    streams.DeleteSubscription: "admin",
    streams.Stage: "push",
    streams.CloseStage: "push",
    streams.Publish: "push",
    streams.Abort: "push",
    streams.LastPublished: "push",
    wire.CreateQueue: "admin",
    wire.UpdateQueue: "admin",
    wire.DeleteQueue: "admin",
    wire.PurgeQueue: "admin",
    wire.Redrive: "admin",
    wire.Snapshot: "admin",
    wire.Restore: "admin",
    wire.Insert: "table",
    wire.Lookup: "table",
    wire.Remove: "table",
    wire.Append: "table",
    wire.CompareAndSwap: "table",
}
#: Any grant on the queue will do.
_FIGURES: Final = (
    wire.DescribeQueue, wire.Where, streams.SubscriptionStats, streams.ListSubscriptions,
)  # fmt: skip
#: Verbs of the data path, each about one queue: what was once allowed is remembered.
_OFTEN: Final = frozenset({wire.Push, wire.Pop, wire.Ack, wire.Nack, wire.Extend})
#: Decisions that are remembered; beyond that it begins anew.
ALLOWED_MAX: Final = 4_096
#: Verbs that any principal may use.
_FOR_ALL: Final = (wire.View, wire.Status, wire.ClusterStatus)
#: Verbs that need ``admin:*``.
_FOR_OPERATORS: Final = (wire.Join, wire.Leave)


@dataclass(frozen=True, slots=True)
class Grant:
    permission: str
    pattern: str

    @classmethod
    def parse(cls, text: str) -> Grant:
        permission, colon, pattern = text.partition(":")
        if permission not in PERMISSIONS or not colon or not _PATTERN.fullmatch(pattern):
            raise InvalidArgument(
                f"a grant is PERMISSION:PATTERN, as push:orders.*, with a permission of "
                f"{', '.join(PERMISSIONS)}, not {text[:100]!r}"
            )
        return cls(permission, pattern)

    def __str__(self) -> str:
        return f"{self.permission}:{self.pattern}"

    def names(self, name: str) -> bool:
        return fnmatchcase(name, self.pattern)

    def covers(self, prefix: str) -> bool:
        """Whether it names everything that begins with this."""
        start, star, rest = self.pattern.partition("*")
        return bool(star) and not rest and prefix.startswith(start)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a token may take at each node; 0 for no limit. See ``quota``."""

    #: Messages, and bytes of messages, pushed in a second.
    rate: int = 0
    bytes_rate: int = 0
    #: Queues that its admin grants name.
    queues: int = 0

    @property
    def on_pushes(self) -> bool:
        return bool(self.rate or self.bytes_rate)


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    grants: tuple[Grant, ...]
    limits: Limits = Limits()


class Tokens(Protocol):
    """Who shows this token; None when nobody may. Called from several threads.

    It is the same object for as long as nothing about the principal has changed.
    """

    def principal(self, token: str) -> Principal | None: ...


def allow(principal: Principal, verb: type, name: str) -> bool:
    """Whether the principal may do this to the queue, the key, or the prefix of that name."""
    grants = principal.grants
    if (needs := _NEEDS.get(verb)) is not None:
        return any(grant.permission == needs and grant.names(name) for grant in grants)
    if verb in _FIGURES:
        return any(grant.permission != "table" and grant.names(name) for grant in grants)
    if verb is wire.ListQueues:
        return any(g.permission in ("watch", "admin") and g.covers(name) for g in grants)
    if verb in _FOR_OPERATORS:
        return any(grant.permission == "admin" and grant.pattern == "*" for grant in grants)
    return verb in _FOR_ALL


class Access:
    """The door of one node."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        #: Who was allowed what. The principal is looked up each time: when its token is revoked,
        #: expires or gets other grants, it is none, or another object.
        self._allowed: dict[tuple[str, type, str], Principal] = {}

    def check(self, token: str, request: wire.AnyRequest) -> Principal:
        """Who it is. Raises Unauthenticated or PermissionDenied; nothing was done then."""
        # As `_known`, without a call: this stands before every request.
        principal = self._tokens.principal(token) if token else None
        if principal is None:
            raise _unknown(token)
        verb = type(request)
        if verb not in _OFTEN:
            self._check(principal, request)
            return principal
        queue: str = request.queue  # type: ignore[union-attr, assignment]
        key = principal.name, verb, queue
        if self._allowed.get(key) is not principal:
            self._check(principal, request)
            if len(self._allowed) >= ALLOWED_MAX:
                self._allowed.clear()
            self._allowed[key] = principal
        return principal

    def _check(self, principal: Principal, request: wire.AnyRequest) -> None:
        # That a node has nothing left is known to who was there for messages.
        as_consumer = isinstance(request, wire.Where) and request.fallen
        verb = wire.Pop if as_consumer else type(request)
        for name in _names(request):
            if not allow(principal, verb, name):
                raise PermissionDenied(
                    f"{principal.name} may not {verb.__name__} {name[:100]!r}: ask for a token "
                    "with such a grant (weft token create)"
                )

    def whose(self, token: str) -> Principal | None:
        """For the audit log."""
        return self._tokens.principal(token) if token else None

    def check_figures(self, token: str) -> None:
        """For who reads the figures of all queues."""
        principal = self._known(token)
        if not allow(principal, wire.ListQueues, ""):
            raise PermissionDenied(f"{principal.name} may not read the figures: grant it watch:*")

    def _known(self, token: str) -> Principal:
        principal = self._tokens.principal(token) if token else None
        if principal is None:
            raise _unknown(token)
        return principal


def _unknown(token: str) -> Unauthenticated:
    if not token:
        return Unauthenticated("this node wants a token: connect with token=, or WEFT_TOKEN")
    return Unauthenticated("the token is unknown, revoked or expired: ask for another")


def _names(request: wire.AnyRequest) -> list[str]:
    """What a request is about. A dead letter queue is written to, so it counts as well."""
    if isinstance(request, wire.ListQueues):
        return [request.prefix]
    name = getattr(request, "queue", None)
    names = [getattr(request, "key", "") if name is None else name]
    if isinstance(request, wire.CreateQueue):
        names.append(request.settings.dead_letter or names[0])
    elif isinstance(request, wire.UpdateQueue):
        names.append(str(request.changes.get("dead_letter") or names[0]))
    elif isinstance(request, wire.Restore):
        names += [part.queue for part in request.kept.parts]
    return names
