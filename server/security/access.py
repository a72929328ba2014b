"""Access control: one function decides, for every path, which principal may use which verb.

A client presents a *token*. The token belongs to a *principal* with *grants*: a permission and a
pattern of names, ``push:orders.*``. Without a matching grant access is denied. The verb table
(``proto.verbs``) has the permission of each verb, and `allow` alone reads it; gRPC and ZeroMQ both
call `Access.check`. A verb without a row or without a permission is denied, so a new verb cannot be
forgotten.

| permission | lets                                                                    |
|------------|-------------------------------------------------------------------------|
| push       | push to the queue, or to the topic; a multicast needs it for each queue  |
|            | (stage, publish and abort are pushes)                                   |
| consume    | pop, peek, ack, nack, extend and cancel; subscriptions                  |
| admin      | create, delete, bind and unbind the topic; a bind needs it for the queue |
|            | too; create, update, delete, purge and redrive the queue, back it up and |
|            | restore it; release and delete subscriptions; with ``*`` the whole      |
|            | cluster, join and leave                                                 |
| watch      | list queues and read the stats, of names that the pattern covers        |
| table      | every verb of the hash table, by key                                    |

Any valid token may read the cluster's members (a client needs them to connect) and a node's status;
any grant on a queue allows describing the queue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Protocol

from weft.errors import InvalidArgument, PermissionDenied, Unauthenticated
from weft.proto import wire
from weft.proto.verb import Permission
from weft.proto.verbs import VERBS, requests_where

PERMISSIONS: Final = ("push", "consume", "admin", "watch", "table")
#: Characters of names, and ``*``, which stands for any number of them, also none.
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*:/-]{1,80}")

#: Verbs of the data path, each about one queue: `Access` caches positive decisions for them.
_CACHED: Final = requests_where(lambda verb: verb.cached_access)
#: Size of the decision cache; a full cache is cleared.
ALLOWED_MAX: Final = 4_096


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
        """True if the grant covers every name with the prefix."""
        start, star, rest = self.pattern.partition("*")
        return bool(star) and not rest and prefix.startswith(start)


@dataclass(frozen=True, slots=True)
class Limits:
    """Quotas of a token at each node; 0 for no limit. See ``quota``."""

    #: Messages, and bytes of messages, pushed in a second.
    rate: int = 0
    bytes_rate: int = 0
    #: Queues covered by the token's admin grants.
    queues: int = 0

    @property
    def on_pushes(self) -> bool:
        return bool(self.rate or self.bytes_rate)


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    grants: tuple[Grant, ...]
    limits: Limits = Limits()


class TokenLookup(Protocol):
    """Maps a token to its principal; None for an invalid token. Called from several threads.

    The lookup returns the same object for as long as nothing about the principal has changed.
    """

    def principal(self, token: str) -> Principal | None: ...


def allow(principal: Principal, verb: type[wire.Request], name: str) -> bool:
    """True if the principal may use the verb on the queue, key or prefix of the given name."""
    row, grants = VERBS.get(verb), principal.grants
    match row.permission if row is not None else Permission.NOBODY:
        case Permission.ANYONE:
            return True
        case Permission.NOBODY:
            return False
        case Permission.ANY_GRANT:
            return any(grant.permission != "table" and grant.names(name) for grant in grants)
        case Permission.LISTING:
            return any(g.permission in ("watch", "admin") and g.covers(name) for g in grants)
        case Permission.TABLE_PREFIX:
            return any(grant.permission == "table" and grant.covers(name) for grant in grants)
        case Permission.OPERATOR:
            return any(grant.permission == "admin" and grant.pattern == "*" for grant in grants)
        case needs:
            return any(grant.permission == needs.value and grant.names(name) for grant in grants)


class Access:
    """The access checks of one node."""

    def __init__(self, tokens: TokenLookup) -> None:
        self._tokens = tokens
        #: Cache of positive decisions. The principal is looked up each time: a token that was
        #: revoked, has expired or has other grants yields None or another object.
        self._allowed: dict[tuple[str, type, str], Principal] = {}

    def check(self, token: str, request: wire.AnyRequest) -> Principal:
        """Returns the principal. Raises Unauthenticated or PermissionDenied, before any change."""
        # Inlines `_known`: every request passes here.
        principal = self._tokens.principal(token) if token else None
        if principal is None:
            raise _unknown(token)
        verb = type(request)
        if verb not in _CACHED:
            self._check(principal, request)
            return principal
        queue: str = request.queue  # type: ignore[attr-defined]
        key = principal.name, verb, queue
        if self._allowed.get(key) is not principal:
            self._check(principal, request)
            if len(self._allowed) >= ALLOWED_MAX:
                self._allowed.clear()
            self._allowed[key] = principal
        return principal

    def _check(self, principal: Principal, request: wire.AnyRequest) -> None:
        if isinstance(request, wire.Commit | wire.Move):
            for effect in _effects(request):
                self._check(principal, effect)
            return
        # Only a consumer of the queue learns that a node has no messages left.
        as_consumer = isinstance(request, wire.Where) and request.fallen
        verb = wire.Pop if as_consumer else type(request)
        if isinstance(request, wire.WatchKeys) and request.exact:
            verb = wire.Lookup  # a watch of one key needs the grant of that key only
        names = _names(request)
        if len(names) > 1 and any(_grants_all(verb, grant) for grant in principal.grants):
            return
        for name in names:
            if not allow(principal, verb, name):
                raise PermissionDenied(
                    f"{principal.name} may not {verb.__name__} {name[:100]!r}: use a token with "
                    "this grant (weft token create)"
                )

    def whose(self, token: str) -> Principal | None:
        """The token's principal, for the audit log."""
        return self._tokens.principal(token) if token else None

    def check_figures(self, token: str) -> None:
        """Checks a reader of the stats of all queues."""
        principal = self._known(token)
        if not allow(principal, wire.ListQueues, ""):
            raise PermissionDenied(
                f"{principal.name} may not read the metrics: use a token with the grant watch:*"
            )

    def _known(self, token: str) -> Principal:
        principal = self._tokens.principal(token) if token else None
        if principal is None:
            raise _unknown(token)
        return principal


def _grants_all(verb: type[wire.Request], grant: Grant) -> bool:
    """True if the grant covers every name, so that no name of a batch needs a look."""
    return grant.pattern == "*" and grant.permission == VERBS[verb].permission.value


def _unknown(token: str) -> Unauthenticated:
    if not token:
        return Unauthenticated("this node requires a token: connect with token=, or WEFT_TOKEN")
    return Unauthenticated("the token is unknown, revoked or expired: create another token")


def _effects(request: wire.Commit | wire.Move) -> list[wire.AnyRequest]:
    """The requests with the effects of a commit: one for each queue acked or pushed to, and one for
    each key. A move is an ack in one queue and a push to another."""
    if isinstance(request, wire.Move):
        return [wire.Ack(request.queue, []), wire.Room(request.to, 0, 0, 0)]
    acked = {each.queue: wire.Ack(each.queue, []) for each in request.acks}
    pushed: dict[str, wire.AnyRequest] = {each.push.queue: each.push for each in request.pushes}
    if isinstance(request, wire.CommitGraph):  # who may push to a queue may release its messages
        for each in request.arrivals:
            pushed.setdefault(each.queue, wire.PushWaiting(each.queue, 0, 0, 0))
    return [*acked.values(), *pushed.values(), *request.writes]


def _names(request: wire.AnyRequest) -> list[str]:
    """The names that a request concerns; a dead-letter queue counts, since messages move there."""
    if isinstance(request, wire.ListQueues | wire.ListTopics | wire.ScanKeys | wire.WatchKeys):
        return [request.prefix]
    keys: list[str] | None = getattr(request, "keys", None)
    if keys is not None:
        return keys
    if isinstance(request, wire.Multicast):
        return request.queues
    topic: str | None = getattr(request, "topic", None)
    if topic is not None:
        return [topic, request.queue] if isinstance(request, wire.Bind) else [topic]
    name = getattr(request, "queue", None)
    names = [getattr(request, "key", "") if name is None else name]
    if isinstance(request, wire.CreateQueue):
        names.append(request.settings.dead_letter or names[0])
    elif isinstance(request, wire.UpdateQueue):
        names.append(str(request.changes.get("dead_letter") or names[0]))
    elif isinstance(request, wire.Restore):
        names += [part.queue for part in request.kept.parts]
    return names
