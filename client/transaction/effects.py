"""The effects of a transaction: collected and checked by the client, sent as one commit.

Nothing is sent before the commit. The home of the commit is the partition of the acknowledged
messages; without messages, the partition of the first write with a condition, else of the first
push, else of the first key.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from weft import limits
from weft.client import arguments
from weft.client.consumer import lease as leases
from weft.client.consumer.lease import Claim, ClientLease
from weft.client.consumer.message import BaseMessage
from weft.client.producer.batch import (
    Body,
    Columns,
    Headers,
    batches,
    check_body,
    check_dedup_key,
    check_group,
    check_headers,
    check_keys,
    check_one,
    measured,
)
from weft.client.routing.session import RESEND_MS_MAX, ClientSession
from weft.errors import InvalidArgument, LeaseLost, TooLarge, UsageError
from weft.ids import MessageId, partition_of
from weft.proto import wire

from .home_numbers import HomeNumbers


class PendingPush(NamedTuple):
    """One batch of the transaction."""

    queue: str
    messages: int
    frame: bytes
    delay_ms: int = 0
    priority: int = 0
    dedup_key: str | None = None
    group: str | None = None


class TransactionKv:
    """The table writes of a transaction: they happen with the commit, in the order of the calls."""

    def __init__(self, owner: TransactionEffects) -> None:
        self._owner = owner

    def insert(
        self, key: str, value: Body, *, ttl_ms: int | None = None, if_version: int | None = None
    ) -> None:
        """Sets the value of the key. With `if_version` the commit raises VersionMismatch, and
        changes nothing, unless the key has this version; 0 stands for an absent key."""
        if ttl_ms is not None:
            arguments.check_integer("ttl_ms", ttl_ms, 1, limits.TABLE_TTL_MS_MAX)
        condition = _condition(if_version, 0)
        self._add(wire.Put(_key(key), _value(value), 0, 0, ttl_ms or 0, condition))

    def append(self, key: str, value: Body) -> None:
        """Appends to the value of the key."""
        self._add(wire.AppendKey(_key(key), _value(value), 0, 0))

    def remove(self, key: str, *, if_version: int | None = None) -> None:
        """Removes the key, if it exists. `if_version` as for `insert`."""
        self._add(wire.RemoveKey(_key(key), 0, 0, _condition(if_version, 1)))

    def compare_and_swap(self, key: str, old: Body | None, new: Body | None) -> None:
        """Sets `new` if the value is `old`; otherwise the commit raises VersionMismatch, and
        changes nothing. `old` None means absent, `new` None removes the key."""
        before = None if old is None else _value(old, "old")
        after = None if new is None else _value(new, "new")
        self._add(wire.SwapKey(_key(key), before, after, 0, 0))

    def _add(self, write: wire.AnyWrite) -> None:
        self._owner.add_write(write)


class TransactionEffects:
    """What a transaction will do. The methods check their arguments and send nothing."""

    def __init__(self, session: ClientSession, numbers: HomeNumbers) -> None:
        self._session = session
        self._numbers = numbers
        self._claims: list[Claim] = []
        self._acked: dict[ClientLease, set[int]] = {}
        self._pushes: list[PendingPush] = []
        self._writes: list[wire.AnyWrite] = []
        #: Of task graphs: the ends of parents, and batches with names of their own.
        self._arrivals: list[wire.Arrival] = []
        self._waiting: list[wire.CommitPush] = []
        self._keys: set[str] = set()
        self._size = 0
        self._request: wire.Commit | None = None
        #: The time of the first attempt.
        self._sent_at = 0.0
        self._ended = ""
        #: After the commit, the first id and the messages of each push.
        self._pushed: list[tuple[MessageId, int]] = []
        #: The table writes of the transaction.
        self.kv = TransactionKv(self)

    @property
    def ids(self) -> list[MessageId]:
        """The ids of the pushed messages in the order of the pushes, after the commit."""
        if self._ended != "committed":
            raise UsageError("the transaction is not committed: its messages have no ids yet")
        return [
            MessageId(number)
            for first, count in self._pushed
            for number in range(first, first + count)
        ]

    def ack(self, message: BaseMessage) -> None:
        """Acknowledges the message with the commit."""
        self.ack_many([message])

    def ack_many(self, messages: Iterable[BaseMessage]) -> None:
        """Acknowledges the messages with the commit. All must be on one partition: see
        `weft.lots`, which splits messages by partition."""
        self.ack_claims(leases.group(messages))

    def ack_claims(self, claims: Iterable[Claim]) -> None:
        """As `ack_many`, for messages that are named by their leases."""
        self._check_open()
        for claim in claims:
            leases.check_leased(claim)
            seen = self._acked.setdefault(claim.lease, set())
            if not seen.isdisjoint(claim.indexes):
                raise InvalidArgument("a transaction acks each message once")
            seen.update(claim.indexes)
            self._claims.append(claim)

    def push(
        self,
        queue: str,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        dedup_key: str | None = None,
        group: str | None = None,
    ) -> None:
        """Pushes a message with the commit; the arguments are those of `queue.push`."""
        if dedup_key is not None:
            check_dedup_key(dedup_key)
        columns = Columns([check_body(body)], *check_one(headers, key))
        self._push(queue, columns, delay_ms, priority, dedup_key, group)

    def push_many(
        self,
        queue: str,
        bodies: Iterable[Body],
        *,
        headers: Iterable[Headers | None] | None = None,
        keys: Iterable[str | None] | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        group: str | None = None,
    ) -> None:
        """Pushes messages with the commit, all of one `group` if the queue is grouped."""
        arguments.check_iterable("bodies", bodies, "bytes")
        column = measured(bodies if isinstance(bodies, list) else list(bodies))[0]
        count = len(column)
        columns = Columns(column, check_headers(headers, count), check_keys(keys, count))
        if column:
            self._push(queue, columns, delay_ms, priority, None, group)

    def _push(
        self, queue: str, columns: Columns, delay_ms: int, priority: int, dedup_key: str | None,
        group: str | None,
    ) -> None:  # fmt: skip
        self._check_open()
        arguments.check_queue_name("queue", queue)
        arguments.check_push_options(delay_ms, priority)
        if group is not None:
            check_group(group)
            if delay_ms or priority or dedup_key is not None:
                raise InvalidArgument(
                    "a message with a group has neither a delay, a priority nor a dedup key"
                )
        added = [
            PendingPush(queue, each.messages, each.frame, delay_ms, priority, dedup_key, group)
            for each in batches(columns)
        ]
        if len(self._pushes) + len(added) > limits.COMMIT_PUSHES_MAX:
            raise TooLarge(f"a transaction has at most {limits.COMMIT_PUSHES_MAX} pushes")
        self._grow(sum(len(each.frame) for each in added))
        self._pushes += added

    def add_write(self, write: wire.AnyWrite) -> None:
        self._check_open()
        if write.key in self._keys:
            raise InvalidArgument(
                f"the transaction writes the key {write.key[:100]!r} twice: write it once"
            )
        if len(self._writes) >= limits.COMMIT_WRITES_MAX:
            raise TooLarge(f"a transaction has at most {limits.COMMIT_WRITES_MAX} table writes")
        self._grow(len(wire.encode(write)))
        self._keys.add(write.key)
        self._writes.append(write)

    def add_arrivals(self, arrivals: Sequence[wire.Arrival]) -> None:
        """Tells, with the commit, the end of what messages of task graphs wait for."""
        self._check_open()
        if len(self._arrivals) + len(arrivals) > limits.COMMIT_ARRIVALS_MAX:
            raise TooLarge(
                f"a transaction has arrivals for at most {limits.COMMIT_ARRIVALS_MAX} batches"
            )
        self._arrivals += arrivals

    def add_waiting(self, pushes: Sequence[wire.CommitPush]) -> None:
        """Pushes, with the commit, batches of a task graph, which have their names already."""
        self._check_open()
        if len(self._pushes) + len(self._waiting) + len(pushes) > limits.COMMIT_PUSHES_MAX:
            raise TooLarge(f"a transaction has at most {limits.COMMIT_PUSHES_MAX} pushes")
        self._grow(sum(len(each.payload) for each in pushes))
        self._waiting += pushes

    def _grow(self, size: int) -> None:
        if self._size + size > limits.COMMIT_BYTES_MAX:
            raise TooLarge(
                f"a transaction has at most {limits.COMMIT_BYTES_MAX} bytes, and would have "
                f"{self._size + size}: split it"
            )
        self._size += size

    def abort(self) -> None:
        """Discards all effects: nothing was sent, and the messages stay leased."""
        self._check_open()
        self._ended = "aborted"

    # --- the commit ---

    def _check_open(self) -> None:
        if self._ended:
            raise UsageError(f"the transaction is {self._ended}: start another one")
        if self._request is not None:
            raise UsageError("the transaction was sent: commit it again, or start another one")

    def _prepared(self) -> wire.Commit | None:
        """The request, the same for each attempt; None if there is nothing to do."""
        if self._ended:
            raise UsageError(f"the transaction is {self._ended}: start another one")
        some = self._claims or self._pushes or self._writes or self._arrivals or self._waiting
        if self._request is None and some:
            self._request = self._build()
            self._sent_at = time.monotonic()
        return self._request

    def _timeout_ms(self, timeout_ms: int | None) -> int | None:
        """The timeout of an attempt. Raises UsageError if it could repeat the effects of an earlier
        one: the name is forgotten, and no lease shows that the commit was executed."""
        if self._claims:
            return timeout_ms
        left_ms = RESEND_MS_MAX - self._age_ms()
        if left_ms <= 0:
            raise UsageError(
                f"the transaction was first sent more than {RESEND_MS_MAX // 1000} s ago, and the "
                "nodes forget commits: it may or may not have been done. Look for its effects, "
                "and start another one"
            )
        return min(left_ms, self._session.named_timeout_ms(timeout_ms))

    def _lease_lost(self, error: LeaseLost) -> LeaseLost:
        """The error of an attempt; the node may have forgotten that it executed an earlier one."""
        if self._age_ms() < RESEND_MS_MAX:
            return error
        return LeaseLost(
            f"the lease of a message of the commit is lost. An attempt more than "
            f"{RESEND_MS_MAX // 1000} s ago may have been executed; if not, the messages are "
            "delivered again",
            in_doubt=True,
        )

    def _age_ms(self) -> int:
        """The time since the first attempt."""
        return int((time.monotonic() - self._sent_at) * 1000)

    def _build(self) -> wire.Commit:
        session = self._session
        partitions = {claim.lease.lent.partition for claim in self._claims}
        if len(partitions) > 1:
            raise InvalidArgument(
                f"the messages of a transaction are on one partition, these are on "
                f"{len(partitions)}: use a transaction for each of weft.lots(messages)"
            )
        home, first = partitions.pop() if partitions else None, None
        if home is None:
            home, first = self._chosen_home()
        by_queue: dict[str, list[wire.Receipt]] = {}
        for claim in self._claims:
            by_queue.setdefault(claim.lease.queue, []).append(claim.receipt)
        acks = [wire.CommitAck(queue, receipts) for queue, receipts in by_queue.items()]
        pushes: list[wire.CommitPush] = []
        for pending in self._pushes:
            number = first if first is not None else self._numbers.take(home)
            first = None
            pushes.append(wire.CommitPush(self._push_request(pending, number), pending.frame))
        name = session.producer, next(session.batches)
        if self._arrivals or self._waiting:
            pushes += self._waiting
            return wire.CommitGraph(home, *name, acks, pushes, self._writes, self._arrivals)
        return wire.Commit(home, *name, acks, pushes, self._writes)

    def _chosen_home(self) -> tuple[int, int | None]:
        """The home without messages, and the number of the first push if it led there."""
        session = self._session
        router = session.router
        for write in self._writes:
            if getattr(write, "if_version", 0) >= 0 and not isinstance(write, wire.AppendKey):
                return router.of_text(write.key), None
        if not self._pushes and self._writes:
            return router.of_text(self._writes[0].key), None
        if not self._pushes:
            return self._arrivals[0].partition if self._arrivals else self._waiting_home(), None
        number = next(session.batches)
        request = self._push_request(self._pushes[0], number)
        return router.of_push(request.queue in session.ordered, request), number

    def _waiting_home(self) -> int:
        push = self._waiting[0].push
        return partition_of(push.producer, push.batch, self._session.router.partitions)

    def _push_request(self, pending: PendingPush, number: int) -> wire.AnyPush:
        producer, (queue, count, _, delay_ms, priority, dedup_key, group) = (
            self._session.producer, pending,
        )  # fmt: skip
        if group is None:
            return wire.Push(queue, producer, number, count, delay_ms, priority, dedup_key)
        return wire.PushGroup(queue, producer, number, count, group=group)

    def _committed(self, request: wire.Commit | None, answer: wire.Committed | None) -> None:
        self._ended = "committed"
        leases.close(self._claims)
        if request is None or answer is None:
            return
        for each, partition in zip(request.pushes, answer.partitions, strict=True):
            if isinstance(each.push, wire.PushWaiting):
                continue  # its caller has chosen the name
            first = MessageId.of(partition, each.push.producer, each.push.batch, 0)
            self._pushed.append((first, each.push.count))


def _key(key: str) -> str:
    arguments.check_text("key", key, 1, limits.TABLE_KEY_BYTES_MAX)
    return key


def _condition(if_version: int | None, low: int) -> int:
    if if_version is None:
        return -1
    arguments.check_integer("if_version", if_version, low, limits.NUMBER_MAX)
    return if_version


def _value(value: Body, name: str = "value") -> bytes:
    return arguments.as_bytes(
        name, value, limits.TABLE_VALUE_BYTES_MAX, "split it over several keys"
    )
