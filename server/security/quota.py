"""Quotas of a node, and of each token at the node. Used by the node's thread only.

| limit              | of          | past it                                            |
|--------------------|-------------|----------------------------------------------------|
| `queues_max`       | the cluster | QUOTA_EXCEEDED, not retriable                      |
| `bytes_max`        | this node   | STORAGE_FULL for pushes, until something is acked  |
| `push_rate_max`    | this node   | RATE_LIMITED for pushes, for less than a second    |
| `in_flight_max`    | this node   | OVERLOADED for pops, until something is settled    |
| `connections_max`  | a port      | the connection is closed                           |
| a token's `rate`, `bytes_rate` | the token, at this node | RATE_LIMITED              |
| a token's `queues` | the queues that its admin grants name | QUOTA_EXCEEDED           |

The engine's leases enforce `in_flight_max` and the edges enforce `connections_max`, where each is
counted. A rate is a bucket with a capacity of one second: while the bucket is not empty a push of
any size passes, and later pushes are refused until the excess is refilled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from weft import limits
from weft.errors import QuotaExceeded, RateLimited, StorageFull
from weft.proto import wire
from weft.proto.verb import Quota
from weft.proto.verbs import requests_where
from weft.server.config import Config
from weft.server.engine.queue import QueueState

from .access import Grant, Principal
from .token_file import TOKENS_MAX

_SECOND_US: Final = 1_000_000
_PUSHES: Final = requests_where(lambda verb: verb.quota is Quota.PUSHES)
_MULTICASTS: Final = (wire.Multicast, wire.PushTopic)
_MAKE_QUEUES: Final = requests_where(lambda verb: verb.quota is Quota.QUEUES)
#: The bytes of all queues are summed up at most this often.
_SUM_US: Final = 100_000


class Meter:
    """A rate limiter: a bucket with the capacity of one second."""

    __slots__ = ("_at", "_level", "_per_second")

    def __init__(self, per_second: int, now: int) -> None:
        self._per_second = per_second
        self._level = float(per_second)
        self._at = now

    def has_some(self, now: int) -> bool:
        fresh = (now - self._at) * self._per_second / _SECOND_US
        self._level = min(float(self._per_second), self._level + fresh)
        self._at = now
        return self._level > 0

    def take(self, amount: int) -> None:
        self._level -= amount


class Quotas:
    def __init__(self, config: Config, now: int) -> None:
        self._queues_max = config.queues_max
        self._bytes_max = config.bytes_max
        self._rate = Meter(config.push_rate_max, now) if config.push_rate_max else None
        self._rate_max = config.push_rate_max
        #: (quota, token's name, limit) -> its meter; a changed limit starts a new meter.
        self._meters: dict[tuple[str, str, int], Meter] = {}
        self._held, self._sum_at = 0, 0
        #: True if a push may be refused regardless of its token.
        self.limits_pushes = bool(config.push_rate_max or config.bytes_max)

    def check(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        principal: Principal | None,
        queues: Mapping[str, QueueState],
        now: int,
        copies: Callable[[wire.AnyRequest], int] = lambda request: 1,
    ) -> None:
        """Raises the error of an exceeded quota; nothing was done then.

        `copies`: the destinations of a multicast, each of which counts.
        """
        kind = type(request)
        if kind in _PUSHES:
            if not self.limits_pushes and (principal is None or not principal.limits.on_pushes):
                return
            count, size = _pushed(request, payload)
            if kind in _MULTICASTS:
                count *= max(1, copies(request))
            if count:
                self._push(count, size, principal, queues, now)
        elif kind in _MAKE_QUEUES:
            self._create(_new_queues(request), principal, queues)

    def _push(
        self,
        count: int,
        size: int,
        principal: Principal | None,
        queues: Mapping[str, QueueState],
        now: int,
    ) -> None:
        meters: list[tuple[Meter, int]] = []
        if self._rate is not None:
            if not self._rate.has_some(now):
                raise RateLimited(
                    f"this node accepts {self._rate_max} messages a second (push_rate_max)"
                )
            meters.append((self._rate, count))
        for what, amount in (("rate", count), ("bytes_rate", size)) if principal else ():
            assert principal is not None
            most = getattr(principal.limits, what)
            if not most:
                continue
            meter = self._meter(what, principal.name, most, now)
            if not meter.has_some(now):
                unit = "messages" if what == "rate" else "bytes"
                raise RateLimited(
                    f"{principal.name} may push {most} {unit} a second to this node (its {what})"
                )
            meters.append((meter, amount))
        if self._bytes_max and self._sum(queues, now) + size > self._bytes_max:
            raise StorageFull(
                f"this node's queues have {self._held} bytes of {self._bytes_max} (bytes_max): ack "
                "or purge messages"
            )
        for meter, amount in meters:
            meter.take(amount)
        self._held += size

    def _sum(self, queues: Mapping[str, QueueState], now: int) -> int:
        if now >= self._sum_at:
            self._sum_at = now + _SUM_US
            self._held = sum(queue.bytes for queue in queues.values())
        return self._held

    def _meter(self, what: str, name: str, most: int, now: int) -> Meter:
        key = what, name, most
        found = self._meters.get(key)
        if found is None:
            if len(self._meters) >= 2 * TOKENS_MAX:
                self._meters.clear()  # drops meters of revoked tokens and changed limits
            found = self._meters[key] = Meter(most, now)
        return found

    def _create(
        self, wanted: set[str], principal: Principal | None, queues: Collection[str]
    ) -> None:
        new = wanted.difference(queues)
        if not new:
            return
        if len(queues) + len(new) > self._queues_max:
            raise QuotaExceeded(
                f"the cluster has {len(queues)} of at most {self._queues_max} queues (queues_max)"
            )
        if principal is None or not principal.limits.queues:
            return
        most = principal.limits.queues
        own = sum(any(g.names(name) for g in _admin(principal)) for name in queues)
        if own + len(new) > most:
            raise QuotaExceeded(
                f"{principal.name} may have at most {most} queues (limit `queues` of the token), "
                f"and has {own}"
            )


def _pushed(request: wire.AnyRequest, payload: Sequence[bytes]) -> tuple[int, int]:
    """The messages and bytes that a request pushes; a node has not checked the numbers yet."""
    if isinstance(request, wire.Commit):
        counts = (_bounded(each.push.count) for each in request.pushes)
        return sum(counts), sum(len(each.payload) for each in request.pushes)
    return _bounded(request.count), sum(map(len, payload))  # type: ignore[attr-defined]


def _bounded(count: int) -> int:
    return max(1, min(count, limits.BATCH_COUNT_MAX))


def _new_queues(request: wire.AnyRequest) -> set[str]:
    """The queues that a request makes if they do not exist, dead-letter queues included."""
    match request:
        case wire.CreateQueue():
            return {request.queue, request.settings.dead_letter or request.queue}
        case wire.UpdateQueue():
            return {str(request.changes.get("dead_letter", ""))} - {""}
    return {request.queue}  # type: ignore[attr-defined]


def _admin(principal: Principal) -> list[Grant]:
    return [grant for grant in principal.grants if grant.permission == "admin"]
