"""The state that the gRPC methods of one server share, and the checks that each request passes.

A method (``grpc_method``) is a row of functions without state. A server creates one `GrpcServices`
and passes it to every call: the call log, the drain gate, access and audit, and the node.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from typing import Final

from weft import ids
from weft.errors import Refused
from weft.proto import wire
from weft.server.node.batch_names import BatchNames
from weft.server.node.node_api import NodeApi
from weft.server.observability.log import fields
from weft.server.security.access import Access
from weft.server.security.audit import Audit
from weft.server.security.caller import Caller

from .call_log import CallLog
from .drain_gate import DrainGate
from .outstanding_messages import LeaseHolders

log = logging.getLogger(__name__)

#: The callers of a node without access control, by host.
_caller_at: Final = lru_cache(maxsize=1024)(lambda peer: Caller(None, peer))


class GrpcServices:
    """Belongs to the thread of its server, as `gate` and `calls` do."""

    def __init__(
        self,
        node: NodeApi,
        gate: DrainGate,
        calls: CallLog,
        access: Access | None = None,
        audit: Audit | None = None,
        batch_names: BatchNames | None = None,
    ) -> None:
        self.node: Final = node
        self.gate: Final = gate
        self.calls: Final = calls
        #: The streams that deliver messages, by the leases of these messages.
        self.holders: Final = LeaseHolders()
        self._access = access
        self._audit = audit
        #: (producer, batch) for each push without a name: this server is then its producer.
        self.drawn: Final[Iterator[tuple[int, int]]] = zip(
            itertools.repeat(secrets.randbits(ids.PRODUCER_BITS)), itertools.count(1), strict=False
        )
        self._batch_names = batch_names
        #: Queues whose unnamed batches stay on this node: `draw` names them.
        self.local: Final[Container[str]] = () if batch_names is None else batch_names.local
        #: The last answer to a View, and its encoded response.
        self.view: tuple[wire.ViewInfo, bytes] | None = None
        #: Names for the batches of these queues.
        self.local_names: Final = self.drawn if batch_names is None else batch_names.of(self.drawn)

    def names(self, queue: str) -> Iterator[tuple[int, int]]:
        """(producer, batch) for pushes without a name, on this node if the queue is stochastic."""
        return self.local_names if queue in self.local else self.drawn

    def partition(self, name: tuple[int, int]) -> int:
        return 0 if self._batch_names is None else self._batch_names.partition(name)

    def caller(self, request: wire.AnyRequest, token: str, peer: str) -> Caller:
        """Checks the token for a request; raises Refused, and writes the refusal to the audit log.

        Every request of every call passes here, including the next pop of a stream: a revoked token
        ends a stream at its next request.
        """
        if self._access is None:
            return _caller_at(peer)
        try:
            return Caller(self._access.check(token, request), peer)
        except Refused as error:
            if self._audit is not None:
                self._audit.refused(Caller(self._access.whose(token), peer), request, error)
            raise

    def give_back(self, request: wire.AnyRequest, answer: wire.AnyAnswer) -> None:
        """Returns the messages leased by a pop, when no client is left to take them."""
        if isinstance(request, wire.Pop) and isinstance(answer, wire.Popped):
            leases = [wire.Receipt(lent.partition, lent.lsn, lent.nonce) for lent in answer.lent]
            self.give_back_receipts(request.queue, leases)

    def give_back_receipts(self, queue: str, receipts: list[wire.Receipt]) -> None:
        """Returns messages that no client has seen, without waiting for the result.

        No delivery is counted.
        """
        if receipts:
            self.send_off(wire.Nack(queue, receipts, counted=False))

    def send_off(self, request: wire.Nack | wire.Extend) -> None:
        """Sends a request about the leases of a departed client, and only logs a failure."""
        self.node.submit(request, (), _log_failure)


def _log_failure(answer: wire.AnyAnswer, _: Sequence[bytes]) -> None:
    if isinstance(answer, wire.Failure):
        # The queue is gone, or the node stops: the leases end either way.
        log.info("could not give leases back", extra=fields(code=answer.code))
