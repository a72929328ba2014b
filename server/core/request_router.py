"""Routes requests: to the engine, to an answer of the node core, or to an operation. Pure.

The verb table (``proto.verbs``) has the facts; the router only executes them:

| route of the verb | on a node that is one of several                          | on a single node |
|-------------------|-----------------------------------------------------------|------------------|
| NODE              | this node answers                                         | the same         |
| PRIMARY           | smart client: this node answers, or refuses as not primary| this node answers|
|                   | plain client: an operation asks the primaries             |                  |
| SEARCH            | smart client: this node answers; plain: ``remote_pop``    | this node answers|
| CLUSTER           | an operation asks all nodes                               | this node answers|
| OPERATION         | an operation                                              | the same         |
| INTERNAL          | refused from a client; another node's is answered here    | the same         |

The driver answers verbs with the route DRIVER before they reach the router.

Invariant: a node answers a request for a partition only if it leads the partition (``refusal``),
and a request for a queue only if its catalogue is known to have the queue's latest changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from weft.dht.view import Member
from weft.proto import wire
from weft.proto.verb import Partitions, Route
from weft.proto.verbs import INTERNAL, VERBS, WITH_PAYLOAD, requests_where
from weft.server.engine.engine import Engine
from weft.server.engine.handlers import handles

from . import (
    data_loss_recovery,
    fanout,
    membership,
    publish_operations,
    reserve_operations,
)  # fmt: skip
from .backup_waits import BackupWaits
from .catalogue_operations import refreshed
from .catalogue_sync import CatalogueSync
from .metadata_list import MetadataLists
from .node_verbs import answer_of
from .operation import LIFE_US, Inner, Operation, operation_of
from .operations import Operations
from .primary_operations import at_its_primary
from .refusal import Leader, refusal
from .remote_pop import RemotePop
from .request_checks import check_of
from .routing import places

#: Modules with operations: the import registers the operations of each.
_MODULES: Final = (data_loss_recovery, fanout, membership, publish_operations, reserve_operations)
_ROUTES: Final = {request: verb.route for request, verb in VERBS.items()}
_OPERATIONS: Final = operation_of.by_request
_ANSWERS: Final = answer_of.by_request
_CHECKS: Final = check_of.by_request
#: Requests that name a queue which must exist.
_NAMES_QUEUE: Final = requests_where(lambda verb: verb.names_queue)
#: New batches, on the partition of the batch or of an ordered queue.
_BATCHES: Final = requests_where(lambda verb: verb.payload and verb.partitions is Partitions.BATCH)
#: Requests that the engine answers alone on a node which is its whole cluster.
ENGINE_ALONE: Final = frozenset(
    request
    for request, route in _ROUTES.items()
    if route in (Route.PRIMARY, Route.SEARCH, Route.CLUSTER)
    and request in handles.by_request
    and request not in _CHECKS
)
_NOT_YET: Final = wire.Failure("UNAVAILABLE", "this node is in no cluster: ask another", True)


class RouterHost(Leader, Protocol):
    """The node as seen by routing and operations."""

    @property
    def cluster(self) -> str: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def me(self) -> Member | None: ...


class RequestRouter:
    def __init__(
        self,
        host: RouterHost,
        engine: Engine,
        operations: Operations,
        metadata_lists: MetadataLists,
        catalogue_sync: CatalogueSync,
        backup_waits: BackupWaits,
        remote_pop: RemotePop,
    ) -> None:
        self.host = host
        self.engine = engine
        self.metadata_lists = metadata_lists
        self.catalogue_sync = catalogue_sync
        self.backup_waits = backup_waits
        self._operations = operations
        self._remote_pop = remote_pop

    def handle(
        self, request: wire.AnyRequest, payload: Sequence[bytes], to: object, *, plain: bool
    ) -> None:
        """Handles a client request. A plain client knows one node; a smart client, the view."""
        failure = self._unfit(request, payload)
        if failure is not None:
            self.engine.answer(to, failure)
        elif (operation := self._operation(request, payload, plain=plain)) is None:
            self.direct(request, payload, to)
        else:
            wait_ms = request.wait_ms if isinstance(request, wire.Pop) else 0
            self._start(operation, to, wait_ms * 1000 + LIFE_US)

    def direct(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None:
        """Answers a request on this node alone, if possible."""
        if self._needs_catalogue_sync(request) and not (isinstance(to, Inner) and to.fresh):
            self._start(refreshed(self.host, request, payload), to, LIFE_US)
            return
        failure = refusal(self.host, request)
        if failure is not None:
            self.engine.answer(to, failure)
        elif (answer := _ANSWERS.get(type(request))) is not None:
            answer(self, request, payload, to)
        else:
            self.engine.handle(request, payload, to)

    def _start(self, operation: Operation, to: object, life_us: int) -> None:
        self._operations.start(operation, to, self.host.now + life_us)

    def _operation(
        self, request: wire.AnyRequest, payload: Sequence[bytes], *, plain: bool
    ) -> Operation | None:
        """The operation for a client's request; None if this node answers directly."""
        kind = type(request)
        route = _ROUTES[kind]
        if route is not Route.OPERATION:
            if len(self.host.view.members) < 2:
                return None
            if route is Route.SEARCH:
                assert isinstance(request, wire.Pop)
                return self._remote_pop.pop(request, payload) if plain else None
            if route is Route.PRIMARY:
                if not plain and not self._is_astray(request):
                    return None
            elif route is not Route.CLUSTER:
                return None
        return _OPERATIONS.get(kind, at_its_primary)(self.host, request, payload)

    def _unfit(self, request: wire.AnyRequest, payload: Sequence[bytes]) -> wire.Failure | None:
        """Checks a client request before any handler runs; returns the failure, or None."""
        kind, words = type(request), None
        if len(payload) != (kind in WITH_PAYLOAD):
            words = f"{len(payload)} payload frames do not go with this verb"
        elif kind in INTERNAL:
            words = "this request is internal to the cluster"
        elif (check := _CHECKS.get(kind)) is not None:
            words = check(request, self.host.core.catalogue)
        if words is not None:
            return wire.Failure("INVALID_ARGUMENT", words, False)
        return None if self.host.node in self.host.view.members else _NOT_YET

    def _is_astray(self, request: wire.AnyRequest) -> bool:
        """True if a smart client sent a batch here by mistake: the client does not know yet that
        the queue is ordered, or that the queue is no longer ordered."""
        if type(request) not in _BATCHES:
            return False
        queue: str = request.queue  # type: ignore[attr-defined]
        doubtful = self.host.is_ordered(queue) or self.metadata_lists.keeps(queue)
        return doubtful and places(self.host, request)[0] not in self.host.led

    def _needs_catalogue_sync(self, request: wire.AnyRequest) -> bool:
        """True if the request names a queue, and this node may lack changes of that queue."""
        if type(request) not in _NAMES_QUEUE:
            return False
        name: str | None = request.queue  # type: ignore[attr-defined]
        return (
            name is not None
            and (name not in self.engine.queues or self.catalogue_sync.doubtful)
            and self.host.core.catalogue not in self.host.led
        )
